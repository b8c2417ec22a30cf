"""`strategies`: list the strategies in Python, and show what each does and asks."""

from holdfast.cli.strategies.command import strategies_command

__all__ = ["strategies_command"]
