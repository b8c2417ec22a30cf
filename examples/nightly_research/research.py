"""Research by night: a schedule starts a strategy, which reads, writes a report, and saves it. See README.md."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

import holdfast
from holdfast.agent.processes.processes import strategy
from holdfast.engine.drivers import Attempt

QUESTIONS = 3


@holdfast.strategy
async def research(ctx: holdfast.Context) -> str:
    """Ask what to find out, find it out, and save a report."""
    topic = ctx["topic"]
    asked = await ctx.llm(f"Name {QUESTIONS} questions to research about {topic}, one a line, without numbers.")
    questions = [line.strip() for line in asked.splitlines() if line.strip()][:QUESTIONS]
    found = await ctx.llm_batch([f"Answer in a paragraph: {question}" for question in questions])
    notes = "\n\n".join(f"{question}\n{answer}" for question, answer in zip(questions, found, strict=True))
    report = await ctx.llm(f"Write a report about {topic} from these notes. Say what is uncertain.\n\n{notes}")
    saved: str = await ctx.tool("save_report", topic=topic, text=report)
    return saved


def saver(folder: Path) -> Any:
    """The tool that saves a report. The same call again writes the same file, so a crash in the middle does no harm."""

    async def save_report(topic: str, text: str, attempt: Attempt) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{topic.replace(' ', '-')}-{attempt.session_id}.md"
        file.write_text(text, encoding="utf-8")
        return str(file)

    return save_report


async def work(store: str, folder: Path, topic: str, *, now: bool = False, **options: Any) -> str | None:
    """Keep the schedule until this is cancelled; with `now`, run it once and give the file."""
    async with holdfast.Runtime(store, **options) as runtime, runtime.work():
        runtime.mount.holdfast.drive("save_report", saver(folder), recovery="idempotent")
        target, triggers = strategy(research, {"topic": topic}), runtime.triggers
        if now:
            started = await runtime.processes.start(target, recovery="rerunnable")
            done: str = (await runtime.processes.wait(started.id)).result
            return done
        if "nightly" not in {each.name for each in await triggers.list()}:
            await triggers.schedule("nightly", target, cron="0 2 * * *", zone="Europe/Berlin")
        await asyncio.Event().wait()
        return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--now", action="store_true", help="run it once, now")
    given = parser.parse_args()
    model = os.environ.get("HOLDFAST_MODEL", "openai:gpt-5")
    print(asyncio.run(work("sqlite:///research.db", Path("reports"), given.topic, now=given.now, model=model)))
