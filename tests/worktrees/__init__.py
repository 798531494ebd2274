"""Real repositories, real processes, real kills."""
