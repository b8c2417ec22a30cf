"""The statistics of evaluations: pure functions of numbers, in plain Python."""
