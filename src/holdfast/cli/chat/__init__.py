"""`chat`: talk with a model in a durable session."""

from holdfast.cli.chat.command import chat_command

__all__ = ["chat_command"]
