"""How the agents work together: the LangGraph supervisor, its state and its checkpoints."""
