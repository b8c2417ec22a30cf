"""The kind `lua`: strategies that run in VMs of worker processes, and are rebuilt by replay."""

from __future__ import annotations

import asyncio
import itertools
import os
import weakref
from collections.abc import Awaitable, Sequence

import msgspec

from holdfast.alc.lua import frames
from holdfast.alc.lua.limits import DEADLINE_S, HOT_VMS, MAX_DEATHS, MAX_WORKERS, MEMORY_MIB, REPLAY_SLACK
from holdfast.alc.lua.outcomes import deadline_text, memory_text, raised, step_of
from holdfast.alc.lua.packages import Roots, find_package, find_roots
from holdfast.alc.lua.pool import Pool, StuckError
from holdfast.alc.lua.source import KIND, LuaSource, source_of
from holdfast.alc.lua.trust import NOT_ALLOWED, is_allowed
from holdfast.core.budget import remaining
from holdfast.core.ids import query_id
from holdfast.core.queries import Answer, Failure, Value
from holdfast.core.records import Program
from holdfast.core.replay import Waking
from holdfast.core.values import encode
from holdfast.programs.contract import Fold, Step
from holdfast.programs.errors import InstanceLostError, ProgramNotFoundError
from holdfast.programs.paths import algocline_home, home


class LuaKind:
    """Lua programs, in workers of this engine."""

    kind = KIND

    def __init__(
        self,
        *,
        workers: int = MAX_WORKERS,
        hot_vms: int = HOT_VMS,
        deadline_s: float = DEADLINE_S,
        memory_mib: int = MEMORY_MIB,
    ) -> None:
        self.pool = Pool(workers=workers, hot_vms=hot_vms)
        self.deadline_s = deadline_s
        self.memory_mib = memory_mib
        self.deaths: dict[str, int] = {}
        """How often in a row a worker died during a step of a session."""
        self._numbers = itertools.count(1)

    def knows(self, program: Program) -> bool:
        try:
            self.check(program)
        except ProgramNotFoundError:
            return False
        return True

    def check(self, program: Program) -> None:
        """Raise `ProgramNotFoundError`, with the reason, if the program cannot be run here."""
        self._found(program)

    async def admit(self, program: Program) -> None:
        self.check(program)

    def create(self, fold: Fold) -> LuaInstance:
        session = fold.session
        if session.started is None:
            raise ValueError(f"session '{session.id}' has not started")
        return LuaInstance(fold, self._found(session.started.program), self, next(self._numbers))

    def close(self) -> None:
        self.pool.close()

    def _found(self, program: Program) -> LuaSource:
        """What to run. A package that was not kept and has moved is looked up again, as for a new session."""
        source = source_of(program)
        if not is_allowed(source):
            raise ProgramNotFoundError(program.name, f"it {NOT_ALLOWED}")
        if source.package is None or source.package in source.modules:
            return source
        if find_package(source.roots, source.package) is not None:
            return source
        here = find_roots()
        if find_package(here, source.package) is None:
            where = ", ".join([*source.roots.roots, *here.roots]) or "no directories"
            raise ProgramNotFoundError(source.package, f"there is no such package in {where}")
        return msgspec.structs.replace(source, roots=_both(source.roots, here))


class LuaInstance:
    """One run of a Lua program."""

    def __init__(self, fold: Fold, source: LuaSource, kind: LuaKind, vm: int) -> None:
        self.fold = fold
        self._session_id = fold.session.id
        self._source: LuaSource | None = source
        """Until the VM has been made of it."""
        self._kind = kind
        self._vm = vm
        self._deadline_s = source.deadline_s or kind.deadline_s
        self._memory_mib = source.memory_mib or kind.memory_mib
        weakref.finalize(self, kind.pool.drop, vm).atexit = False

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step | Awaitable[Step]:
        return self._step(self._waking(at, answers))

    def refuse(self, at: int, failure: Failure) -> Step | Awaitable[Step]:
        return self._step(self._waking(at, [], failure))

    def close(self) -> None:
        self._kind.pool.drop(self._vm)

    # --- replay ------------------------------------------------------------------------------------

    def step_request(self, waking: Waking) -> frames.VmWaking:
        """A waking in the form that a worker takes, with what the program may know at this moment."""
        return self._waking(waking.at, waking.answers, waking.refusal)

    def replay(self, requests: list[frames.VmWaking]) -> Awaitable[list[Step]]:
        """Begin to take many steps in one go."""
        return self._steps(self._request(requests, is_replay=True))

    async def _steps(self, messages: list[bytes] | Awaitable[list[bytes]]) -> list[Step]:
        return [step_of(each) for each in (messages if isinstance(messages, list) else await messages)]

    # --- inside ------------------------------------------------------------------------------------

    def _waking(
        self, at: int, answers: Sequence[tuple[str, Answer]], refusal: Failure | None = None
    ) -> frames.VmWaking:
        session = self.fold.session
        started, spent = session.started, session.metrics
        left = remaining(started.budget, spent, at) if started and started.budget else None
        forms, bodies = _in_order(answers)
        return frames.VmWaking(
            at=at,
            first_id=session.queries_asked,
            llm_calls=spent.llm_calls,
            left=encode(left) if left is not None else None,
            refusal=encode(refusal) if refusal is not None else None,
            answers=bodies,
            forms=forms,
        )

    def _step(self, waking: frames.VmWaking) -> Step | Awaitable[Step]:
        steps = self._request([waking])
        return step_of(steps[0]) if isinstance(steps, list) else self._later(steps)

    async def _later(self, steps: Awaitable[list[bytes]]) -> Step:
        return step_of((await steps)[0])

    def _request(
        self, wakings: list[frames.VmWaking], *, is_replay: bool = False
    ) -> list[bytes] | Awaitable[list[bytes]]:
        spec = self._spec() if self._source is not None else None
        try:
            deadline_s = self._deadline_s * (REPLAY_SLACK if is_replay else 1)
            steps = self._kind.pool.request(self._vm, spec, wakings, deadline_s=deadline_s, is_replay=is_replay)
        except InstanceLostError as error:
            return [self._lost(error)]
        self._source = None
        if isinstance(steps, list):
            return self._succeeded(steps, is_replay)
        return self._settled(steps, is_replay)

    async def _settled(self, steps: asyncio.Future[list[bytes]], is_replay: bool) -> list[bytes]:
        try:
            return self._succeeded(await steps, is_replay)
        except InstanceLostError as error:
            return [self._lost(error)]
        except StuckError:
            return [raised(f"{deadline_text(self._deadline_s)}. Its worker was stopped", "deadline")]

    def _succeeded(self, steps: list[bytes], is_replay: bool) -> list[bytes]:
        if self._kind.deaths and not is_replay:  # a replay comes before each new try of the step that may be to blame
            self._kind.deaths.pop(self._session_id, None)
        return steps

    def _lost(self, error: InstanceLostError) -> bytes:
        """Raise the error, so that the program is rebuilt; unless it has killed its worker too often."""
        if not error.is_suspect:
            raise error
        deaths = self._kind.deaths[self._session_id] = self._kind.deaths.get(self._session_id, 0) + 1
        if deaths < MAX_DEATHS:
            raise error
        del self._kind.deaths[self._session_id]
        return raised(f"the Lua worker died {deaths} times while it ran this step of the strategy", "worker_died")

    def _spec(self) -> frames.VmSpec:
        source, session = self._source, self.fold.session
        started = session.started
        assert source is not None
        assert started is not None
        budget = started.budget
        config = {
            "name": started.program.name,
            "code": source.code,
            "package": source.package,
            "ctx": started.ctx,
            "seed": started.seed,
            "at": session.metrics.started_at,
            "deadline_s": self._deadline_s,
            "replay_slack": REPLAY_SLACK,
            "over": deadline_text(self._deadline_s),
            "full": memory_text(self._memory_mib),
            "getenv": source.variables,
            "env": source.env,
            "absent": source.absent,
            "dirs": {name: str(home() / name) for name in ("state", "cards", "scenarios")},
            "max_llm_calls": budget.max_llm_calls if budget is not None else None,
        }
        kept = {name: value for name, value in config.items() if value is not None or name == "ctx"}
        return frames.VmSpec(
            config=encode(kept),
            modules=source.modules,
            roots=source.roots,
            is_trusted=source.is_unconfined,
            memory_mib=self._memory_mib,
            scenarios=os.pathsep.join(str(each / "scenarios") for each in (home(), algocline_home())),
            null_is_nil=source.null == "nil",
        )


def _in_order(answers: Sequence[tuple[str, Answer]]) -> tuple[bytes, list[bytes]]:
    """Answers in the order of their queries, in the form that a worker takes, and the letters of those forms."""
    if len(answers) == 1:
        form, body = _formed(answers[0][1])
        return form, [body]
    formed = [_formed(answer) for _, answer in sorted(answers, key=_number)]
    return b"".join(form for form, _ in formed), [body for _, body in formed]


def _number(answered: tuple[str, Answer]) -> int:
    return int(answered[0].removeprefix(query_id(0)[:-1]))


def _formed(answer: Answer) -> tuple[bytes, bytes]:
    """The letter of the form that an answer takes, and the answer in it."""
    if type(answer) is Value and type(answer.value) is str:
        return b"s", answer.value.encode()  # as nearly always
    match answer:
        case Value(value=str() as text):
            return b"s", text.encode()
        case Value(value=value):
            return b"j", encode(value)
        case Failure():
            return b"f", encode(answer)


def _both(first: Roots, second: Roots) -> Roots:
    return msgspec.structs.replace(
        first,
        roots=list(dict.fromkeys([*first.roots, *second.roots])),
        pinned={**second.pinned, **first.pinned},
        variants={**second.variants, **first.variants},
    )
