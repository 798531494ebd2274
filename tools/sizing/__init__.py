"""Sizes of a training run before it starts: its effective batch, its learning rate's scale, its memory."""
