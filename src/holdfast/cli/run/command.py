"""`run`: the command and its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from holdfast.cli.agent_runtime import agents_options, find_agents
from holdfast.cli.bindings import rlm_options
from holdfast.cli.errors import usage_error
from holdfast.cli.models import HOST, MODEL_VARIABLE, model_of_strategy, model_options
from holdfast.cli.options import common, options_as, project_option, service_option, settings, wait_option
from holdfast.cli.parameter_types import ProgramType, SessionType
from holdfast.cli.run.program import Language
from holdfast.cli.served import serve_option
from holdfast.core.errors import HoldfastError
from holdfast.programs.language import NullForm


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What was given to `run` on the command line."""

    program: str | None
    task: str | None
    ctx_json: str | None
    fields: tuple[str, ...]
    budget: tuple[str, ...]
    prices: tuple[str, ...]
    session_id: str | None
    trusted: bool
    project: Path | None
    deadline: float | None
    memory: int | None
    null: NullForm | None
    variables: tuple[str, ...]
    language: Language | None
    dry_run: bool
    full: bool
    model: str | None
    base_url: str | None
    resume: str | None
    wait: float | None
    rlm: bool
    files: tuple[Path, ...]
    bindings: tuple[str, ...]
    agents: tuple[str, ...]
    no_agents: bool

    @property
    def is_new_session_described(self) -> bool:
        """Whether any option is given that only makes sense for a new session."""
        values = (
            self.task,
            self.ctx_json,
            self.session_id,
            self.project,
            self.deadline,
            self.memory,
            self.null,
            self.language,
        )
        flags = (self.budget, self.prices, self.trusted, self.variables, self.fields, self.dry_run, self.full)
        return any(value is not None for value in values) or any(flags) or bool(self.files or self.bindings)

    def check(self) -> None:
        """Raise a usage error if the options do not go together."""
        if self.base_url is not None and self.model is None:
            raise usage_error("--base-url needs --model")
        if self.rlm:
            self._check_rlm()
            return
        if self.agents or self.no_agents:
            raise usage_error("--agents and --no-agents need --rlm")
        if (self.program is None) == (self.resume is None):
            raise usage_error("Give a program to start, or --resume SESSION.")
        if self.resume is not None and self.is_new_session_described:
            raise usage_error("with --resume, only --model, --base-url, --serve and --wait are allowed")
        if self.dry_run and self.model is not None:
            raise usage_error("a dry run asks nobody: leave out --model")
        if self.dry_run and (self.session_id is not None or self.wait is not None):
            raise usage_error("a dry run makes no session: leave out --id and --wait")
        if self.full and not self.dry_run:
            raise usage_error("--full needs --dry-run")

    def _check_rlm(self) -> None:
        """Raise a usage error if an option is given that has no meaning for an agent in cells."""
        if self.program is not None or self.resume is not None:
            raise usage_error("--rlm runs an agent, not a program: give --task, and leave out PROGRAM and --resume")
        if self.task is None or not self.task.strip():
            raise usage_error("--rlm needs --task TEXT")
        unused = (self.ctx_json, self.project, self.deadline, self.memory, self.null, self.language, self.wait)
        if any(value is not None for value in unused) or any((self.fields, self.variables, self.trusted, self.dry_run)):
            raise usage_error(
                "with --rlm, only --task, --file, --bind, --agents, --id, --model and --base-url are allowed"
            )


@click.command("run")
@click.argument("program", type=ProgramType(), required=False)
@click.option("--task", metavar="TEXT", help="The task: ctx.task in the strategy.")
@click.option("--ctx", "ctx_json", metavar="JSON|@FILE", help="The input of the strategy.")
@click.option(
    "--set",
    "fields",
    multiple=True,
    metavar="KEY=VALUE",
    help="One parameter of the strategy: a field of ctx. VALUE is JSON, or else text. Repeatable.",
)
@click.option(
    "--budget", multiple=True, metavar="KEY=VALUE|JSON", help="A limit, such as max_llm_calls=10. Repeatable."
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="MODEL=PROMPT,COMPLETION",
    help="What a model costs for a million tokens, if max_cost is set and nobody knows it. Repeatable.",
)
@click.option("--id", "session_id", metavar="ID", help="The id of the new session. Tried again, it is the same one.")
@click.option(
    "--trusted",
    is_flag=True,
    help="Lua: allow files, processes and the environment. FILE.py: run it natively, with all of Python.",
)
@project_option("The project whose packages and strategies are used.  [default: the nearest around this directory]")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Sandbox: computing time between two questions.  [default: 10]",
)
@click.option(
    "--memory", type=click.IntRange(min=1), metavar="MIB", help="Sandbox: memory of the strategy.  [default: 64]"
)
@click.option(
    "--null",
    type=click.Choice(["nil", "userdata"]),
    help="Lua: what JSON's null is; userdata is `alc.null`, which is true in a condition."
    "  [default: env HOLDFAST_LUA_NULL, or nil]",
)
@click.option(
    "--env", "variables", multiple=True, metavar="KEY=VALUE", help="Sandbox: a value of env (Lua: alc.env). Repeatable."
)
@click.option(
    "--language",
    type=click.Choice(["lua", "python"]),
    help="The language of the file or of -.  [default: by the file's extension; lua for -]",
)
@click.option("--dry-run", is_flag=True, help="Show what it would ask, with scripted answers. Nothing is stored.")
@click.option("--full", is_flag=True, help="With --dry-run: show prompts and answers in full.")
@model_options(
    f"The model that answers the strategy's llm queries, such as openai:gpt-5; or URL#MODEL; or {HOST}, to answer them"
    f" yourself.  [default: env {MODEL_VARIABLE}, else that of holdfast.toml, else {HOST}]"
)
@click.option("--resume", type=SessionType(), metavar="SESSION", help="Resume a session instead of starting one.")
@rlm_options
@agents_options
@serve_option
@service_option
@wait_option
@common()
@options_as(RunOptions)
def run_command(options: RunOptions) -> int:
    """Start a strategy, or resume a session.

    PROGRAM is the name of a strategy (`holdfast strategies`) or of a Lua package (`holdfast pkg list`); FILE.py or
    FILE.lua, run in a sandbox; FILE.py:name or module:name, which are native Python; the name of a strategy that this
    store has run before; or - for standard input.

    On a terminal, you are asked what the strategy asks. Leave with Ctrl-C or Ctrl-D and resume later: nothing is lost.
    Elsewhere the first event is printed, and the session waits.
    """
    from holdfast.cli.run.session import resume_session

    options.check()
    if options.rlm:
        return _run_in_cells(options)
    if options.resume is not None:
        model = None if options.model == HOST else options.model
        return resume_session(options.resume, options.wait, model, options.base_url)
    return _start(options)


def _run_in_cells(options: RunOptions) -> int:
    """One turn of a new agent that works in cells."""
    import shlex

    from holdfast.cli.bindings import parse_bindings
    from holdfast.cli.chat.command import talk
    from holdfast.cli.chat.setup import ChatRequest, runtime_for
    from holdfast.core.ids import new_session_id

    request = ChatRequest(
        session_id=options.session_id or new_session_id(),
        recorded=None,
        tools=[],
        instructions=None,
        model=options.model,
        base_url=options.base_url,
        mode="rlm",
        bindings=parse_bindings(options.files, options.bindings),
        agents=find_agents(options.agents, none=options.no_agents),
    )
    again = shlex.join(["holdfast", "chat", request.session_id])
    return talk(runtime_for(request), request, options.task, again)


def _start(options: RunOptions) -> int:
    from holdfast.cli.bindings import bound_texts
    from holdfast.cli.run.inputs import checked_ctx, parse_budget, parse_ctx, parse_env, parse_prices
    from holdfast.cli.run.program import find_program, source_file
    from holdfast.cli.run.session import NewSession, start_session

    assert options.program is not None
    ctx = parse_ctx(options.task, options.ctx_json, options.fields, bound_texts(options.files, options.bindings))
    budget = parse_budget(options.budget)
    program = find_program(
        options.program,
        options.language,
        is_dry=options.dry_run,
        trust="trusted" if options.trusted else "sandbox",
        project=options.project,
        env=parse_env(options.variables),
        deadline_s=options.deadline,
        memory_mib=options.memory,
        null=options.null,
    )
    if ":" in options.program or (options.trusted and options.program.endswith((".py", ".lua"))):
        settings().serve += (options.program,)  # whoever continues the session has to name it, too
    if ctx is None and program.kind == "lua":
        ctx = {}  # so that a package says itself what it needs
    ctx = checked_ctx(program, ctx, options.fields, is_dry=options.dry_run)
    try:
        if options.dry_run:
            from holdfast.cli.run.dry_run import show_dry_run

            return show_dry_run(program, ctx, budget, is_full=options.full)
        session = NewSession(program, ctx, budget, options.session_id, parse_prices(options.prices))
        return start_session(session, options.wait, model_of_strategy(options.model), options.base_url)
    except HoldfastError as error:
        if error.kind != "invalid_source" or settings().json:
            raise
        from holdfast.cli.display.findings import report_invalid_source

        return report_invalid_source(error, program, source_file(options.program, options.project))
