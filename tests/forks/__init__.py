"""Python processes for tests, forked from a parent that has imported all they need: real ones that start at once."""
