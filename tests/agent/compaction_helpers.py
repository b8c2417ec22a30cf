"""What the tests of summing up share: a small window, long texts, and what the model was asked."""

from __future__ import annotations

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.results import TurnResult
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.summary_prompt import SUMMARY_SYSTEM
from holdfast.testing import ScriptedProvider
from holdfast.testing.patience import soon

LONG = "word " * 160
"""200 tokens."""

WINDOW = 900
"""Tokens of the model's window; 600 of them may be in use."""

NOTES = "The user says words."


def requests(runtime: Runtime) -> list[ModelRequest]:
    provider = runtime.providers["scripted"]
    assert isinstance(provider, ScriptedProvider)
    return provider.requests


def summaries(runtime: Runtime) -> list[str]:
    """What was to be summed up, each time."""
    return [request.messages[0].text for request in requests(runtime) if request.system == SUMMARY_SYSTEM]


def shown(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


async def talked(session: AgentSession, turns: int, text: str = LONG) -> TurnResult:
    results = [await soon(session.turn(f"{number}: {text}").run()) for number in range(turns)]
    assert all(result.is_success for result in results), [result.outcome for result in results]
    return results[-1]


async def frames(session: AgentSession) -> list[tuple[str, str]]:
    """Why, and with which summary, windows were begun after the first."""
    return [(frame.reason, frame.summary) for frame in (await session.read_view()).frames[1:]]
