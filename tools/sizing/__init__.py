"""Sizes of a training run before it starts: its effective batch, its memory."""
