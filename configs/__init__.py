"""What a person declares: the study model, its loading and checking, ready-made templates."""
