"""Learning from a teacher: its answers as training data, or its logits kept in a file for the student's loss."""
