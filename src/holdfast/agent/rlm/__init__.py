"""RLM mode: the model writes prose and one cell of Python; variables live across cells and turns."""
