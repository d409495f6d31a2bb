"""Real checkpoints: which there are (catalog), how each family stores its heads (families), weights and whole models."""
