"""What Lua workers and the engine send each other, changed: the session ends or goes on, and no other is harmed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest

from holdfast.alc.lua.frames import Frames, StepReply, StepsRequest, VmSpec, VmWaking, frame
from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.limits import MAX_FRAME_BYTES
from holdfast.alc.lua.outcomes import step_of
from holdfast.alc.lua.packages import Roots
from holdfast.alc.lua.pipes import PipeEnds, connected_pipes
from holdfast.alc.lua.source import lua_code
from holdfast.alc.lua.worker import VmServer
from holdfast.core.events import CompletedEvent, Event, PausedEvent
from holdfast.core.values import Json, encode
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.contract import AskStep, RaiseStep, ReturnStep
from holdfast.testing.patience import HANG_S
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import DEEP, NESTED, Draw, changed_bytes, changed_json

CODE = """
local first = alc.llm("First?")
alc.log("info", "so far")
local many = alc.llm_batch({ { prompt = "x" }, { prompt = "y" } })
return { first = first, many = many }
"""

STEPS: list[Json] = [
    [
        "asked",
        [["llm", "q-0", "First?", None, 50, False, False, '{"t":1}'], ["tool", "q-1", "add", '{"a":1}']],
        "strategy:2",
        ["a prompt"],
        '[{"type":"logged","message":"so"},{"type":"progressed","step":1,"total":2},{"type":"stat","key":"n","value":1}]',
    ],
    [
        "asked",
        [["human", "q-0", "Sure?", '["yes"]', 1_000], ["timer", "q-1", 10], ["child", "q-2", "cot", "{}"]],
        "",
        [],
        None,
    ],
    ["returned", '{"a": [1, null]}', None],
    ["raised", "it broke", "runtime", None],
]


@st.composite
def changed_steps(draw: Draw) -> bytes:
    """The message of a step, changed in a value or in its bytes."""
    value = draw(changed_json(STEPS))
    try:
        message = msgspec.msgpack.encode(_spelled_out(value))
    except (OverflowError, UnicodeError, ValueError):  # what msgpack has no form for
        message = msgspec.msgpack.encode(draw(st.sampled_from(STEPS)))
        return draw(changed_bytes([message]))
    return draw(changed_bytes([message], most=2)) if draw(st.integers(0, 3)) == 0 else message


def _spelled_out(value: Json) -> Json:
    """The value with nesting in place of its marks: JSON within JSON may be as deep as it likes."""
    match value:
        case list():
            return [_spelled_out(each) for each in value]
        case dict():
            return {name: _spelled_out(each) for name, each in value.items()}
        case str() if value in (DEEP, NESTED):
            return "[" * 100_000 if value == DEEP else "[" * 600 + "]" * 600
        case _:
            return value


KNOWN_STEPS = [
    msgspec.msgpack.encode(["returned", "[" * 100_000, None]),
    msgspec.msgpack.encode(["returned", "1", "[" * 100_000]),
]


def test_the_changed_message_of_a_step_is_a_step(fuzzer: Fuzzer) -> None:
    def check(message: bytes) -> None:
        assert isinstance(step_of(message), AskStep | ReturnStep | RaiseStep)

    fuzzer.run(check, changed_steps(), examples=150, known=KNOWN_STEPS)


# --- from a worker to the engine -----------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Which reply of the worker is changed, and how."""

    number: int
    data: bytes | None = None
    """Said in its place."""
    steps: list[bytes] | None = None
    """Those of the reply."""
    copies: int = 1


class HostileWorker(subprocess.Popen[bytes]):
    """A worker that is served in a thread of this process, and says something else at times."""

    fault = Fault(-1)

    def __init__(self, command: list[str], *, pass_fds: list[int], **_: Any) -> None:
        self._pipes = PipeEnds(*map(os.dup, pass_fds))
        super().__init__(["sleep", "1000"], stdin=subprocess.DEVNULL)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        fault, type(self).fault = type(self).fault, Fault(-1)
        server, said = VmServer(self._pipes), 0

        def send(reply: StepReply) -> None:
            nonlocal said
            data = frame(reply)
            if said == fault.number:
                if fault.steps is not None:
                    data = frame(StepReply(reply.number, fault.steps))
                data = fault.data if fault.data is not None else data * fault.copies
            said += 1
            self._pipes.send_all(data)

        server._send = send  # type: ignore[method-assign]
        with contextlib.suppress(OSError), self._pipes:
            server.say_hello()
            server.serve()


@st.composite
def faults(draw: Draw) -> Fault:
    number = draw(st.integers(0, 3))
    match draw(st.sampled_from(["bytes", "bytes", "size", "steps", "none", "copies"])):
        case "bytes":
            return Fault(number, draw(changed_bytes([frame(StepReply(1, [step])) for step in _MESSAGES])))
        case "size":
            size = draw(st.sampled_from([MAX_FRAME_BYTES + 1, 2**32 - 1]))
            return Fault(number, size.to_bytes(4, "little") + b"x")
        case "steps":
            return Fault(number, steps=draw(st.lists(changed_steps(), max_size=2)))
        case "none":
            return Fault(number, frame(StepReply(99, None, is_gone=True)))
        case _:
            return Fault(number, copies=2)


_MESSAGES = [msgspec.msgpack.encode(step) for step in STEPS]

KNOWN_FAULTS = [
    Fault(1, b"\x01\x00\x00\x00\xc1"),
    Fault(1, b"\xff\xff\xff\xff"),
    Fault(1, steps=[]),
    Fault(1, copies=2),
    Fault(0, frame(StepReply(0, [b""]))),
]
"""What once ended in an error of the event loop, after which a session waited for its deadline, or for ever."""


async def last_event(holdfast: Holdfast, session: str) -> Event:
    """What a run of the strategy comes to."""
    async with asyncio.timeout(HANG_S):
        event = await holdfast.start(lua_code(CODE), id=session)
        for _ in range(4):
            if isinstance(event, PausedEvent):
                event = await holdfast.feed(session, {query.id: "yes" for query in event.queries})
    return event


def test_a_worker_that_says_something_else_is_replaced(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.alc.lua.pool.subprocess.Popen", HostileWorker)
    stray: list[dict[str, Any]] = []

    async def check(fault: Fault) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: stray.append(about))
        HostileWorker.fault = fault
        async with open_holdfast("memory:") as holdfast:
            holdfast.add_kind(LuaKind(workers=1, deadline_s=0.3))
            try:
                await last_event(holdfast, "hurt")
            except Exception as error:
                assert_is_declared(error)
            assert isinstance(await last_event(holdfast, "well"), CompletedEvent)
        assert not stray, stray

    fuzzer.run(lambda fault: asyncio.run(check(fault)), faults(), examples=12, known=KNOWN_FAULTS)


# --- from the engine to a worker -----------------------------------------------------------------------


def _request() -> StepsRequest:
    config = {"name": "t", "code": CODE, "ctx": {"task": "tea"}, "seed": 1, "at": 0, "deadline_s": 1, "memory_mib": 64}
    config |= {"getenv": {}, "env": {}, "dirs": {"state": "/nowhere", "cards": "/nowhere", "scenarios": "/nowhere"}}
    spec = VmSpec(encode(config), Roots(), False, 64, "/nowhere")
    return StepsRequest(1, 1, spec, [VmWaking(0, 0, 0), VmWaking(1, 1, 1, None, None, [b"yes"], b"s")])


@st.composite
def requests(draw: Draw) -> bytes:
    """A request, changed: its config, the answers, or its bytes."""
    request = _request()
    assert request.spec is not None
    match draw(st.sampled_from(["config", "answer", "bytes"])):
        case "config":
            config = draw(changed_json([msgspec.json.decode(request.spec.config)], most=2))
            body = msgspec.json.encode(_encodable(config))
            request = msgspec.structs.replace(request, spec=msgspec.structs.replace(request.spec, config=body))
        case "answer":
            answer = draw(changed_bytes([b"yes", b'{"a":[1]}', b'{"message":"no","code":"x"}']))
            forms = draw(st.sampled_from([b"s", b"j", b"f", b"x", b"", b"ss"]))
            request = msgspec.structs.replace(
                request, wakings=[request.wakings[0], VmWaking(1, 1, 1, None, None, [answer], forms)]
            )
        case _:
            return draw(changed_bytes([frame(request)], most=1))
    return frame(request)


def _encodable(value: Json) -> Json:
    try:
        encode(value)
    except (ValueError, OverflowError, UnicodeError):
        return None
    return value


def test_a_worker_answers_a_changed_request_or_ends(fuzzer: Fuzzer) -> None:
    def check(data: bytes) -> None:
        ours, theirs = connected_pipes()
        with theirs, open(ours.reading, "rb") as replies:
            with open(ours.writing, "wb") as sending:
                sending.write(data)
            os.set_blocking(theirs.writing, False)
            with contextlib.suppress(msgspec.MsgspecError, ValueError, BlockingIOError):  # which end its process
                VmServer(theirs).serve()
            os.set_blocking(ours.reading, False)
            said = replies.read() or b""
            for reply in Frames(StepReply).feed(said):
                for step in reply.steps or []:
                    step_of(step)

    fuzzer.run(check, requests(), examples=30)
