"""The `pkg` commands."""
