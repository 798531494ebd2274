"""What to try next and what to believe. Pure functions: no I/O, no graph, no backend."""
