"""The study behind the signal score: what sparse databases pay to real wrong predictions."""
