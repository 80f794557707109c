"""The question pool as trainers take it: schedule, export, one file a trainer."""
