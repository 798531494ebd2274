"""What a finalist bears: load on a served model, harder slices of an evaluation file, and the job around them."""
