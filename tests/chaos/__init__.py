"""Real processes on a real store, to which everything happens at once; see `tests.chaos.run`."""
