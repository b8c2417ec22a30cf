"""What answers for a model: the protocol, and what speaks it."""
