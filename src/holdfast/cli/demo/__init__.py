"""`demo`: see a session survive the death of its process."""

from holdfast.cli.demo.command import demo_command

__all__ = ["demo_command"]
