"""Declared end-to-end runs, the demo, and the benchmarks. They compose; they decide nothing."""
