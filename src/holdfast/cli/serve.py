"""`serve`: sessions and agents over HTTP, for other programs and for people without a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from holdfast.cli.agent_runtime import agents_options, find_agents, make_runtime, model_names
from holdfast.cli.errors import InputError
from holdfast.cli.limits import declared_limits
from holdfast.cli.models import MODEL_VARIABLE, close_provider
from holdfast.cli.options import common, service_option, settings
from holdfast.cli.output import plain, print_json
from holdfast.cli.own_process import collect_seldom
from holdfast.cli.served import load_served, serve_option
from holdfast.cli.tools import find_servers, find_tools
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.agent.runtime import Runtime
    from holdfast.serve.http.door import Door
    from holdfast.serve.http.site import SiteOptions
    from holdfast.serve.listener import HttpSettings

DEMO_TURNS = 4
"""Turns that the demo runs at a time, unless it is told otherwise."""


@click.command("serve")
@click.argument("app", required=False, metavar="[MODULE:NAME|FILE.py:NAME]")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8420, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="A name that clients may use. Repeatable.")
@click.option(
    "--work",
    "turns",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Run up to this many turns of queued items at a time, as `holdfast worker` does.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="SERVICE:MODEL",
    help=f"A model for agents and strategies. Repeatable.  [default: env {MODEL_VARIABLE}, else that of holdfast.toml]",
)
@click.option("--base-url", metavar="URL", help="The URL of the server that has the model, as with `holdfast chat`.")
@click.option(
    "--tool", "tools", multiple=True, metavar="MODULE:NAME", help="A function that the models can call. Repeatable."
)
@click.option(
    "--mcp", "servers", multiple=True, metavar="NAME=COMMAND|URL", help="An MCP server with more tools. Repeatable."
)
@agents_options
@click.option(
    "--demo", is_flag=True, help="Show a little world of sessions with scripted models, in a store of its own."
)
@click.option(
    "--log", "log_format", type=click.Choice(["text", "json"]), default="text", help="How the log is written."
)
@click.option("--open-metrics", is_flag=True, help="Show /metrics without a token.")
@click.option(
    "--allow-private-webhooks", is_flag=True, help="Send webhooks to addresses of this machine and its network, too."
)
@click.option("--allow-packages", is_flag=True, help="Let administrators install and remove packages over HTTP.")
@serve_option
@service_option
@common()
def serve_command(
    *,
    app: str | None,
    host: str,
    port: int,
    names: tuple[str, ...],
    turns: int,
    models: tuple[str, ...],
    base_url: str | None,
    tools: tuple[str, ...],
    servers: tuple[str, ...],
    agents: tuple[str, ...],
    no_agents: bool,
    demo: bool,
    log_format: str,
    open_metrics: bool,
    allow_private_webhooks: bool,
    allow_packages: bool,
) -> int:
    """Serve the sessions of a store over HTTP.

    Every request needs a token. That of this machine is made once and kept in a file that only you can read; others
    are made with `holdfast token add`, and may do only what they say.

    APP names a `Runtime`, or a function that makes one, with its tools, plugins and models.
    """
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise InputError("the HTTP server needs the packages `starlette` and `uvicorn`: pip install 'holdfast[serve]'")
    from holdfast.serve.http.site import SiteOptions
    from holdfast.serve.listener import HttpSettings
    from holdfast.serve.local_token import local_token

    _set_up_logging(log_format)
    load_served()
    if demo:
        if app is not None or models or tools or servers or agents:
            raise InputError(
                "the demo has its own models and tools: leave out APP, --model, --tool, --mcp and --agents"
            )
        from holdfast.serve.demo import demo_runtime

        runtime = demo_runtime(settings().store or f"sqlite:///{tempfile.mkdtemp(prefix='holdfast-demo-')}/demo.db")
        turns = turns or DEMO_TURNS
    elif app is not None:
        if models or tools or servers or agents or base_url is not None:
            raise InputError(
                "a runtime that is named has its own models and tools: leave out --model, --tool, --mcp and --agents"
            )
        runtime = _named_runtime(app)
    else:
        url = settings().url(create=True)
        found = [*find_tools(tools), *find_servers(servers)]
        defined = find_agents(agents, none=no_agents)
        declared = declared_limits(())
        runtime = make_runtime(url, model_names(models), base_url, found, agents=defined, limits=declared)
    http = HttpSettings(host, port, local_token(), tuple(map(str.lower, names)))
    asked_for = {"work": turns, "demo": demo, "packages": allow_packages}
    features = frozenset(name for name, wanted in asked_for.items() if wanted)
    options = SiteOptions(open_metrics, allow_private_webhooks, features)
    collect_seldom()
    asyncio.run(_serve(runtime, http, turns, options))
    return ExitCode.OK


async def _serve(runtime: Runtime, http: HttpSettings, turns: int, options: SiteOptions) -> None:
    from holdfast.serve.http.site import serve_site

    await runtime.tools.refresh()
    try:
        async with runtime, contextlib.AsyncExitStack() as stack:
            if turns:
                await stack.enter_async_context(runtime.work(turns))
            if "demo" in options.features:
                await stack.enter_async_context(_living_world(runtime))
            if find_spec("opentelemetry") is not None:
                from holdfast.serve.telemetry import instrument

                instrument(runtime)
            await serve_site(runtime, http, _ready, options)
    finally:
        for provider in runtime.providers.values():
            await close_provider(provider)


@contextlib.asynccontextmanager
async def _living_world(runtime: Runtime) -> AsyncIterator[None]:
    """Let the world of the demo be filled and go on, meanwhile."""
    from holdfast.serve.demo import DemoWorld

    world = DemoWorld(runtime)

    async def go_on() -> None:
        await world.fill()
        await world.live()

    living = asyncio.create_task(go_on())
    try:
        yield
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


def _set_up_logging(log_format: str) -> None:
    from holdfast.serve.http.logs import JsonFormatter

    handler = logging.StreamHandler(sys.stderr)
    is_json = log_format == "json"
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter("holdfast: %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    if is_json:
        logging.getLogger("holdfast").setLevel(logging.INFO)


def _ready(url: str, door: Door) -> None:
    from holdfast.serve.http.paths import PREFIX
    from holdfast.serve.local_token import token_path

    page = f"{url}/#code={door.new_code()}" if "console" in door.features else None
    if settings().json:
        print_json({"type": "ready", "url": url + PREFIX, "token_file": str(token_path()), "console": page})
        return
    if page is not None:
        click.echo(f"holdfast: open {page} (within five minutes)", err=True)
    click.echo(f"holdfast: serving {url}{PREFIX}; its token is in {plain(str(token_path()))}", err=True)


def _named_runtime(where: str) -> Runtime:
    """The runtime that MODULE:NAME or FILE.py:NAME is, or makes."""
    from holdfast.agent.runtime import Runtime
    from holdfast.cli.tools import find_object

    found = find_object(where, where)
    made = found() if callable(found) and not isinstance(found, Runtime) else found
    if not isinstance(made, Runtime):
        raise InputError(f"{where} is no `Runtime`, and no function that makes one, but a {type(made).__name__}")
    return made
