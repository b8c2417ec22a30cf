"""`run`: start a strategy, or resume a session."""

from holdfast.cli.run.command import run_command

__all__ = ["run_command"]
