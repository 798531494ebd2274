"""What reads typed metrics from what a run left behind."""
