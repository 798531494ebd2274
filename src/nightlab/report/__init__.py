"""What a person reads in the morning."""
