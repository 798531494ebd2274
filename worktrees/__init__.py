"""Where an experiment lives: branches and worktrees through git."""
