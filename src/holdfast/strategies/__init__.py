"""What surrounds strategies: their packages, and the running of their specs."""
