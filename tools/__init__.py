"""How the lab touches the world: backends, launchers, metric readers."""
