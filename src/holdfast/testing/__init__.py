"""For the tests of those who build on Holdfast: rehearsals, scripted models, replays, store conformance, sessions."""

from holdfast.strategies.rehearsal import Rehearsal, RehearsedCall, rehearse, rehearsed
from holdfast.testing.laws.contract import StoreContract, store_machine
from holdfast.testing.model_server import ModelServer
from holdfast.testing.provider import ScriptedProvider, fault, reasoning, reply, stream, tool_call
from holdfast.testing.replay import check_replay
from holdfast.testing.sessions import ScriptedSession, begin, picture

__all__ = [
    "ModelServer",
    "Rehearsal",
    "RehearsedCall",
    "ScriptedProvider",
    "ScriptedSession",
    "StoreContract",
    "begin",
    "check_replay",
    "fault",
    "picture",
    "reasoning",
    "rehearse",
    "rehearsed",
    "reply",
    "store_machine",
    "stream",
    "tool_call",
]
