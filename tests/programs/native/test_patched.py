"""`ctx.patched`: sessions that were past a change keep the old way, the others take the new one, for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidIdError
from holdfast.core.records import Entry, PatchedRecord, Record
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.errors import DivergenceError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from tests.programs.native.helpers import quiet

NAME = "patched-triage"


async def version_1(ctx: Context) -> list[str]:
    kind = await ctx.llm("kind?")
    draft = await ctx.llm("draft?")
    return [kind, draft, await ctx.llm("title?"), await ctx.ask("send?")]


async def version_2(ctx: Context) -> list[str]:
    """Drafts twice, and asks for the title again if so."""
    kind = await ctx.llm("kind?")
    if ctx.patched("two-drafts"):
        draft = " or ".join(await ctx.llm_batch(["short draft?", "long draft?"]))
    else:
        draft = await ctx.llm("draft?")
    title = await ctx.llm("title?")
    if ctx.patched("two-drafts"):
        title += await ctx.llm("another title?")
    return [kind, draft, title, await ctx.ask("send?")]


OLD = ["kind?", "draft?", "title?", "send?"]
NEW = ["kind?", "short draft?", "long draft?", "title?", "another title?", "send?"]


async def restarted(folder: Path, program: Callable[[Context], Any], session_id: str) -> list[str]:
    """Another process with this program answers what the session asks now; the prompts that it answered."""
    strategy(name=NAME)(program)
    async with quiet(folder) as hf:
        pending = (await hf.session(session_id)).pending
        prompts = {asked: getattr(each.query, "prompt", "") for asked, each in pending.items()}
        await hf.feed(session_id, {asked: prompt.upper() for asked, prompt in prompts.items()})
        return list(prompts.values())


async def started(folder: Path, program: Callable[[Context], Any]) -> str:
    strategy(name=NAME)(program)
    async with quiet(folder) as hf:
        return (await hf.start(NAME)).session_id


async def until_ended(folder: Path, program: Callable[[Context], Any], session_id: str) -> list[str]:
    asked: list[str] = []
    while prompts := await restarted(folder, program, session_id) if not await has_ended(folder, session_id) else []:
        asked += prompts
    return asked


async def has_ended(folder: Path, session_id: str) -> bool:
    async with quiet(folder) as hf:
        return (await hf.session(session_id)).is_terminal


async def entries(hf: Holdfast, session_id: str) -> list[Entry]:
    return [entry async for entry in hf.store.journal(session_id)]


async def test_a_new_session_takes_the_new_way_which_is_recorded_once(tmp_path: Path) -> None:
    sid = await started(tmp_path, version_2)
    assert await until_ended(tmp_path, version_2, sid) == NEW
    async with quiet(tmp_path) as hf:
        records: list[Record] = [entry.record for entry in await entries(hf, sid)]
    assert [record for record in records if isinstance(record, PatchedRecord)] == [PatchedRecord(name="two-drafts")]


@pytest.mark.parametrize("answers_before", range(5))
async def test_a_session_takes_the_way_that_it_was_on_when_the_code_changed(
    tmp_path: Path, answers_before: int
) -> None:
    sid = await started(tmp_path, version_1)
    asked = []
    for _ in range(min(answers_before, 4)):
        asked += await restarted(tmp_path, version_1, sid)
    asked += await until_ended(tmp_path, version_2, sid)
    assert asked == (OLD if answers_before else NEW)


async def test_without_it_the_same_change_is_a_divergence(tmp_path: Path) -> None:
    async def careless(ctx: Context) -> list[str]:
        kind = await ctx.llm("kind?")
        return [kind, *await ctx.llm_batch(["short draft?", "long draft?"])]

    sid = await started(tmp_path, version_1)
    await restarted(tmp_path, version_1, sid)
    with pytest.raises(DivergenceError):
        await restarted(tmp_path, careless, sid)


@pytest.mark.parametrize("program", [version_1, version_2])
async def test_a_fork_at_every_place_comes_to_the_same_by_the_same_way(
    tmp_path: Path, program: Callable[[Context], Any]
) -> None:
    sid = await started(tmp_path, program)
    await until_ended(tmp_path, program, sid)
    strategy(name=NAME)(version_2)
    async with quiet(tmp_path) as hf:
        history = await entries(hf, sid)
        result = history[-1].record
        first_old = next(entry.position for entry in history if "draft?" in str(entry.record))
        for position in range(1, len(history)):
            fork = await hf.fork(sid, at=position)
            while pending := (await hf.session(fork.session_id)).pending:
                answers = {asked: getattr(each.query, "prompt", "").upper() for asked, each in pending.items()}
                await hf.feed(fork.session_id, answers)
            ended = (await entries(hf, fork.session_id))[-1].record
            if program is version_2 or position >= first_old:
                assert ended == result, position
            else:
                assert len(await entries(hf, fork.session_id)) > len(history), position


async def test_what_was_not_committed_is_decided_anew(tmp_path: Path) -> None:
    sid = await started(tmp_path, version_2)
    async with quiet(tmp_path) as hf:
        before = await hf.store.session(sid)
        real, hf.store.append = hf.store.append, _refuse  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="the disk is full"):
            await hf.feed(sid, "x")
        hf.store.append = real  # type: ignore[method-assign]
        assert await hf.store.session(sid) == before
    assert await restarted(tmp_path, version_1, sid) == ["kind?"]  # the change was taken back meanwhile
    assert await until_ended(tmp_path, version_2, sid) == OLD[1:]


async def _refuse(*_: object, **__: object) -> Any:
    raise RuntimeError("the disk is full")


async def test_a_name_that_is_no_id_is_refused(tmp_path: Path) -> None:
    seen: list[str] = []

    async def unnamed(ctx: Context) -> None:
        try:
            ctx.patched("")
        except InvalidIdError as error:
            seen.append(str(error))

    async with quiet(tmp_path) as hf:
        await hf.start(unnamed)
    assert "name of a change" in seen[0]
