"""Figures, not tests: run by hand, written down in `bench/results/`."""
