"""Measures training and evaluation data: figures, and what they say in the catalog's words."""
