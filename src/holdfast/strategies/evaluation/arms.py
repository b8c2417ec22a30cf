"""`Arm`: a subject with its options and a model; and how a plan's strategies, models and grids become arms."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.agent.subagents.definition import AgentDefinition, check_definition
from holdfast.agent.subagents.files import read_agent
from holdfast.core.errors import HoldfastError
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.programs.lookup import find_program
from holdfast.programs.registry import Strategy
from holdfast.strategies.evaluation.digests import digest
from holdfast.strategies.evaluation.errors import PlanError

BARE = "model"
"""The subject that is the model alone: the input is its prompt."""

MAX_ARM_CHARS = 48
"""Characters of an arm's name: it is part of the ids of its trials."""

Subject: TypeAlias = str | Strategy | Callable[..., Any] | AgentDefinition | Mapping[str, Any]
"""A strategy by name, file or function; `model`; `agent:FILE.md`; a definition; or a table with options and a grid."""

_AGENT_FILE = "agent:"


class Arm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What runs a case: a subject, its options, and the model that answers."""

    name: str
    subject: str
    """As the plan names it, so that it can be found again."""
    kind: Literal["strategy", "agent", "model"] = "strategy"
    program: Program
    options: dict[str, Json] = {}
    model: str | None = None
    """None for whichever answers here."""
    model_options: dict[str, Json] = {}
    definition: dict[str, Json] | None = None
    """Of an agent."""

    @property
    def digest(self) -> str:
        return digest(self.identity)

    @property
    def identity(self) -> dict[str, Json]:
        """All that decides how it answers."""
        return {
            "program": msgspec.to_builtins(self.program),
            "options": self.options,
            "model": self.model,
            "model_options": self.model_options,
            "definition": self.definition,
        }

    @property
    def llm(self) -> str | None:
        """The name by which the sessions of this arm are assigned to its model; options belong to it."""
        if self.model is None or not self.model_options:
            return self.model
        return f"{self.model}?{msgspec.json.encode(self.model_options, order='sorted').decode()}"


class ModelChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model as a plan names it."""

    model: str
    options: dict[str, Json] = {}
    name: str | None = None


class _Part(msgspec.Struct, frozen=True):
    """A subject with one choice of options."""

    label: str
    arm: Arm


def make_arms(
    strategies: Sequence[Subject], models: Sequence[str | Mapping[str, Any]], project: Path | None
) -> list[Arm]:
    """Every subject with every model. Raises `PlanError`."""
    if not strategies:
        raise PlanError("strategies", f"name at least one; '{BARE}' is the model alone")
    choices: list[ModelChoice | None] = [_model_choice(each) for each in models]
    arms: list[Arm] = []
    for part in itertools.chain.from_iterable(_parts(each, project) for each in strategies):
        for choice in choices or [None]:
            own = choice.name or _model_label(choice) if choice is not None else None
            name = _slug(f"{part.label}@{own}" if own else part.label)
            changes: dict[str, Any] = {"name": name}
            if choice is not None:
                changes |= {"model": choice.model, "model_options": choice.options}
            arms.append(msgspec.structs.replace(part.arm, **changes))
    return _distinct(arms)


def _model_choice(given: str | Mapping[str, Any]) -> ModelChoice:
    if isinstance(given, str):
        return ModelChoice(given)
    try:
        return msgspec.convert(dict(given), ModelChoice)
    except msgspec.ValidationError as error:
        raise PlanError("models", str(error)) from None


def _model_label(choice: ModelChoice) -> str:
    short = re.split(r"[:/#]", choice.model)[-1]
    return ",".join([short, *(f"{key}={value}" for key, value in sorted(choice.options.items()))])


def _parts(given: Subject, project: Path | None) -> list[_Part]:
    """A subject once, or once for each point of its grid."""
    if not isinstance(given, Mapping):
        return [_part(given, {}, None, project)]
    table = dict(given)
    subject, name = table.pop("strategy", None), table.pop("name", None)
    options, grid = table.pop("options", {}), table.pop("grid", {})
    if subject is None or table or not isinstance(options, dict) or not isinstance(grid, dict):
        raise PlanError("strategies", "a table has strategy, and maybe name, options and grid")
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise PlanError("strategies", f"grid.{key} must be a list of values")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [_part(subject, {**options, **point}, _grid_label(name, point), project, point) for point in points]


def _grid_label(name: str | None, point: Mapping[str, Json]) -> str | None:
    return ".".join([name, *(f"{key}={value}" for key, value in point.items())]) if name is not None else None


def _part(
    given: Any,
    options: dict[str, Json],
    label: str | None,
    project: Path | None,
    point: Mapping[str, Json] | None = None,
) -> _Part:
    arm = _arm(given, options, project)
    if label is None:
        shown = (
            Path(arm.subject.removeprefix(_AGENT_FILE)).name.partition(".")[0] if "/" in arm.subject else arm.subject
        )
        shown = (
            arm.program.name.rpartition(":")[2] if arm.program.kind == "native" and arm.kind == "strategy" else shown
        )
        label = ".".join([shown.removeprefix(_AGENT_FILE), *(f"{key}={value}" for key, value in (point or {}).items())])
    return _Part(label, arm)


def _arm(given: Any, options: dict[str, Json], project: Path | None) -> Arm:
    from holdfast.strategies.evaluation.programs import ask_model

    try:
        if given == BARE:
            return Arm(name="", subject=BARE, kind="model", program=ask_model.program, options=options)
        if isinstance(given, str) and given.startswith(_AGENT_FILE):
            return _agent(read_agent(Path(given.removeprefix(_AGENT_FILE))), given, options)
        if isinstance(given, AgentDefinition):
            return _agent(given, f"{_AGENT_FILE}{given.name}", options)
        program = find_program(given, project=project) if isinstance(given, str) else find_program(given)
    except HoldfastError as error:
        raise PlanError(str(given), str(error)) from None
    return Arm(name="", subject=given if isinstance(given, str) else program.name, program=program, options=options)


def _agent(definition: AgentDefinition, subject: str, options: dict[str, Json]) -> Arm:
    if options:
        raise PlanError(subject, "an agent has no options; its file says all about it")
    checked = check_definition(definition)
    described = msgspec.to_builtins(msgspec.structs.replace(checked, result=checked.schema))
    return Arm(name="", subject=subject, kind="agent", program=Program("agent", checked.name), definition=described)


def _slug(text: str) -> str:
    """A name that can be part of an id."""
    made = re.sub(r"[^A-Za-z0-9._@+=-]+", "_", text).strip("_-.@+=")
    return made[:MAX_ARM_CHARS] or "arm"


def _distinct(arms: list[Arm]) -> list[Arm]:
    """Arms with names of their own; two that are the same are an error."""
    names: dict[str, int] = {}
    seen: dict[str, str] = {}
    made: list[Arm] = []
    for arm in arms:
        if arm.digest in seen:
            raise PlanError(arm.name, f"it is the same as '{seen[arm.digest]}'; use repeat to try it several times")
        names[arm.name] = names.get(arm.name, 0) + 1
        number = names[arm.name]
        name = arm.name if number == 1 else f"{arm.name[: MAX_ARM_CHARS - 4]}.{number}"
        seen[arm.digest] = name
        made.append(msgspec.structs.replace(arm, name=name))
    return made
