"""Crash tests: a lab that is really killed between any two of its effects, and what must be true afterwards."""
