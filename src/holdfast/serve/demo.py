"""`holdfast serve --demo`: a little world to look at, with scripted models. Nothing in it needs a key or a network.

It has chats, strategies that are done, that wait for people, that failed and that have children, a fork, labels and
costs; and something happens in it every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import Any

from holdfast.agent.machine.approval import Approval, Rule
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Usage
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.strategies.evaluation.begin import begin_evaluation
from holdfast.strategies.evaluation.data.dataset import Dataset
from holdfast.strategies.evaluation.dispatcher import Jobs
from holdfast.strategies.evaluation.plan import Plan
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, stream, tool_call

EVERY_S = 8.0
"""Seconds between two things that happen by themselves."""

MODEL = "demo-large"
PRICE_PER_TOKEN = 0.000_004

ORDERS = {"A-17": "two lamps, paid, not shipped", "B-42": "one desk, shipped on Monday", "C-08": "a chair, returned"}


def look_up_order(number: str) -> str:
    """What is known about an order."""
    return ORDERS.get(number, f"there is no order {number}")


def refund(number: str, amount: float) -> str:
    """Pay back money for an order."""
    return f"refunded {amount:.2f} for {number}"


@strategy(name="triage")
async def triage(ctx: Context) -> Any:
    """Sort a message, and file it if somebody agrees."""
    ctx.progress(1, 3, "read it")
    kind = await ctx.llm(f"Is this a bug, a wish or a question? {ctx.task}")
    ctx.progress(2, 3, "weigh it")
    urgency = await ctx.llm(f"How urgent is it, from 1 to 5? {ctx.task}")
    ctx.progress(3, 3, "ask")
    filed = await ctx.ask(f"File this as {kind}, with urgency {urgency}?", choices=["file", "drop"])
    return {"kind": kind, "urgency": urgency, "filed": filed == "file"}


@strategy(name="draft")
async def draft(ctx: Context) -> Any:
    """Write one part of a text."""
    return await ctx.llm(f"Write about this: {ctx.task}")


@strategy(name="newsletter")
async def newsletter(ctx: Context) -> Any:
    """Let parts be drafted, put them together, and ask whether they are good."""
    topics = ["what is new", "what was mended", "what comes next"]
    parts = [await ctx.child(draft, {"task": topic}) for topic in topics]
    title = await ctx.llm("A title for a newsletter of three parts?")
    await ctx.ask("Send the newsletter to 1,204 readers?", choices=["send", "wait"])
    return {"title": title, "parts": parts}


@strategy(name="import_prices")
async def import_prices(ctx: Context) -> Any:
    """Read a list of prices; one line of it is broken."""
    ctx.progress(1, 2, "read 310 lines")
    await ctx.llm("Which columns does this list have?")
    raise ValueError("line 118: '12,50 EUR' is no price; the list has a decimal comma there")


@strategy(name="sort_twice")
async def sort_twice(ctx: Context) -> Any:
    """Sort a message, and look closely before saying how."""
    first = await ctx.llm(ctx.task)
    return await ctx.llm(f"Look closely: is it really a {first}? {ctx.task}")


class DemoModel:
    """A model that knows the demo's questions."""

    def provider(self) -> ScriptedProvider:
        return ScriptedProvider([self.answer], loop=True, id="demo")

    def answer(self, request: ModelRequest) -> ScriptStep:
        """What it says to a request: a tool call where an order is named, and else some sentences."""
        last = request.messages[-1] if request.messages else None
        asked = last.text if last is not None else ""
        has_result = last is not None and any(type(block).__name__ == "ToolResultBlock" for block in last.content)
        may_call = bool(request.tools) and not has_result
        if may_call and "refund" in asked.lower():
            return self._reply(asked, tool_call("refund", number="C-08", amount=129.0))
        if may_call and "order a" in asked.lower():
            return self._reply(asked, tool_call("look_up_order", number="A-17"))
        return self._reply(asked, stream(*self._pieces(asked, has_result), every_s=0.03))

    def _pieces(self, asked: str, has_result: bool) -> list[str]:
        if asked.startswith("Look closely"):
            return [next((kind for task, kind in _KINDS.items() if task in asked), "question")]
        for word, said in _SAID.items():
            if word in asked.lower():
                return re.findall(r"\S+\s*", said)
        return re.findall(r"\S+\s*", _AFTER_TOOL if has_result else _OTHERWISE)

    @staticmethod
    def _reply(asked: str, *parts: Any) -> ScriptStep:
        prompt, completion = 240 + len(asked) // 3, 90
        cost = (prompt + 4 * completion) * PRICE_PER_TOKEN
        usage = Usage(prompt_tokens=prompt, completion_tokens=completion, cost=round(cost, 6))
        return reply(*parts, usage=usage, model=MODEL)


_SAID = {
    "bug, a wish": "bug",
    "how urgent": "4",
    "title for": "Lamps, desks and fewer surprises",
    "columns": "article, price, currency",
    "write about": "This month the shop learnt to **pause**. A question can wait for a week, and nothing is lost.",
    "export": (
        "The export is empty because its filter asks for *yesterday* in UTC, and the orders carry local time. "
        "Two ways to mend it:\n\n1. store UTC\n2. convert in the query\n\nI would take the first."
    ),
    "thank": "You are welcome.",
}
_AFTER_TOOL = "The order is paid and has not been shipped yet. It can still be changed until five o'clock."
_OTHERWISE = "I looked at it. There is nothing unusual, and I would leave it as it is."


def demo_runtime(url: str) -> Runtime:
    """The runtime of the demo."""
    return Runtime(url, provider=DemoModel().provider(), model=MODEL, tools=[look_up_order, refund])


class DemoWorld:
    """Fills a store, and lets something happen in it now and then."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._hf = runtime.mount.holdfast

    async def fill(self) -> None:
        """Make everything that a newcomer should see. What is there already stays as it is."""
        for session_id, labels, inputs in _CHATS:
            await self._chat(session_id, labels, inputs)
        for number, task in enumerate(_TASKS, 1):
            title, labels = "", ["support", "urgent"] if number % 3 == 0 else ["support"]
            await self._start("triage", f"triage-{number}", {"task": task}, title, labels)
        for number in (1, 2):
            with contextlib.suppress(HoldfastError):
                await self._hf.feed(f"triage-{number}", {"q-2": "file"}, by="ann", wait=5.0)
        await self._start("newsletter", "newsletter-november", {"task": "November"}, "Newsletter of November", ["mail"])
        await self._start("import_prices", "prices-118", {"task": "Prices of the winter list"}, "", ["nightly"])
        with contextlib.suppress(HoldfastError):
            await self._hf.fork("chat-export", id="chat-export-other", turn="chat-export-2", wait=0.0)
            await self._turn("chat-export-other", "chat-export-other-1", "And if I cannot change the orders?")
        with contextlib.suppress(HoldfastError):
            await begin_evaluation(self._runtime, "e-sorting", _sorting(), Jobs(2))

    async def live(self) -> None:
        """Let something happen every few seconds, until cancelled."""
        number = 0
        while True:
            await asyncio.sleep(EVERY_S)
            number += 1
            with contextlib.suppress(HoldfastError):
                task = _TASKS[number % len(_TASKS)]
                if number % 2:
                    await self._turn("chat-live", f"live-{self._hf.now()}", f"Anything new about this: {task}")
                else:
                    await self._start(
                        "triage", f"triage-live-{self._hf.now()}", {"task": task}, "", ["support", "live"]
                    )

    async def _start(self, program: str, session_id: str, ctx: Any, title: str, labels: Sequence[str]) -> None:
        with contextlib.suppress(HoldfastError):
            await self._hf.start(program, ctx=ctx, id=session_id, title=title, labels=labels, llm="any", wait=5.0)

    async def _chat(self, session_id: str, labels: Sequence[str], inputs: Sequence[str]) -> None:
        rules = Approval(rules=[Rule.confirm("refund").because("money leaves the house")])
        await self._runtime.session(session_id).approval(rules).open()
        await self._hf.label(session_id, labels=labels, by="demo")
        for number, text in enumerate(inputs, 1):
            await self._turn(session_id, f"{session_id}-{number}", text)

    async def _turn(self, session_id: str, turn: str, text: str) -> None:
        session = await self._runtime.session(session_id).open()
        with contextlib.suppress(HoldfastError, TimeoutError):
            await session.turn(text).id(turn).begin()
            async with asyncio.timeout(5.0):  # one that waits for a person goes on waiting
                await session.turn_result(turn)


def _sorting() -> Plan:
    """An evaluation: how well messages are sorted, at once or at a second look."""
    rows = [
        {"id": f"mail-{number}", "input": f"Is this a bug, a wish or a question? {task}", "expected": kind}
        for number, (task, kind) in enumerate(_KINDS.items(), 1)
    ]
    return Plan(strategies=["model", sort_twice], data=Dataset(rows, name="mail of a week"), repeat=2)


_CHATS: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    ("chat-export", ["shop"], ("Why is the export of orders empty since Monday?", "Thank you. Which would you take?")),
    ("chat-order", ["shop", "support"], ("What about order A-17?", "Thank you!")),
    ("chat-refund", ["shop", "money"], ("Please refund the chair of C-08.",)),
    ("chat-live", ["live"], ("Keep an eye on the incoming mail.",)),
)
_TASKS = (
    "The login page says 'token expired' although I have just logged in.",
    "Could invoices be sent on the first of the month?",
    "How do I change the address of an order?",
    "The lamp arrived broken, and nobody answers the phone.",
    "It would be nice to see the price with tax.",
    "The app closes when I scan a voucher.",
)
_KINDS = dict(zip(_TASKS, ("bug", "wish", "question", "bug", "wish", "bug"), strict=True))
