"""What mailboxes hold, and the proof that something was put into one."""

from __future__ import annotations

import msgspec

from holdfast.core.decide import Message


class MessageReceipt(msgspec.Struct, frozen=True):
    """Proof that a message is durable."""

    session_id: str
    key: str
    number: int
    replayed: bool = False


class MailboxItem(msgspec.Struct, frozen=True):
    """A message that waits for the owner."""

    number: int
    key: str
    at: int
    message: Message
