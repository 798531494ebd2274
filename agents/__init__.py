"""Who decides: analysis, training, evaluation, review, and the brain they share."""
