"""`Plan`: what is to be evaluated, as people write it; and `FrozenPlan`, what an evaluation records of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.core.budget import Budget, Price
from holdfast.core.values import Json
from holdfast.strategies.evaluation.arms import Arm, Subject, make_arms
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.data.dataset import Dataset
from holdfast.strategies.evaluation.digests import first_difference
from holdfast.strategies.evaluation.errors import PlanError
from holdfast.strategies.evaluation.graders.spec import GraderFunction, GraderSpec, make_grader

MAX_REPEAT = 1_000
"""Tries of one case by one arm."""

MAX_TRIALS = 1_000_000
"""Trials of one evaluation."""


class DataSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where the cases came from, so that they can be read again."""

    path: str
    fields: dict[str, str] = {}
    limit: int | None = None
    sample: int | None = None


class FrozenPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A plan as it was when its evaluation began."""

    arms: list[Arm]
    graders: list[GraderSpec]
    dataset: str
    dataset_digest: str
    source: DataSource | None = None
    """None if the cases were given as values."""
    repeat: int = 1
    cluster: str | None = None
    seed: int = 0
    budget: Budget | None = None
    prices: dict[str, Price] = {}
    """Prices that were given; others come from genai-prices."""
    service: str | None = None
    reuse: list[str] = []
    """Evaluations whose trials are taken over where they ran the same."""
    warnings: list[str] = []
    holdfast: str = __version__

    def arm(self, name: str) -> Arm:
        """The arm of that name. Raises `PlanError`."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise PlanError(name, f"there is no such arm; there are {', '.join(arm.name for arm in self.arms)}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be evaluated: each strategy with each model on each case, `repeat` times."""

    strategies: Sequence[Subject]
    data: Dataset | str | Path | Sequence[Mapping[str, Any]]
    models: Sequence[str | Mapping[str, Any]] = ()
    graders: Sequence[str | Mapping[str, Any] | GraderSpec | GraderFunction] = ()
    """Empty for those of the dataset; else `choice` where all cases have choices, and `exact_match` otherwise."""
    repeat: int = 1
    cluster: str | None = None
    """The field, of a row or of its context, that says which cases belong together."""
    fields: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    budget: Budget | Mapping[str, Any] | None = None
    prices: Mapping[str, Price | Mapping[str, float]] = field(default_factory=dict)
    service: str | None = None
    """The service that trials belong to; None for that of the process. Workers that serve it take them."""
    reuse: Sequence[str] = ()
    """Evaluations of the same store whose trials are taken over where they ran the same arm on the same input."""
    project: Path | None = None

    def freeze(self) -> tuple[FrozenPlan, list[Case]]:
        """The plan with everything found, checked and fingerprinted, and its cases. Raises what is wrong with it."""
        if not 1 <= self.repeat <= MAX_REPEAT:
            raise PlanError("repeat", f"from 1 to {MAX_REPEAT}, got {self.repeat}")
        dataset = self.dataset()
        arms = make_arms(self.strategies, self.models, self.project)
        by_default = ["choice" if all(case.choices for case in dataset) else "exact_match"]
        graders = [make_grader(each) for each in self.graders or dataset.graders or by_default]
        _check_graders(graders, arms)
        if (trials := len(arms) * len(dataset) * self.repeat) > MAX_TRIALS:
            raise PlanError("size", f"{trials:,} trials; at most {MAX_TRIALS:,} are allowed")
        source = None
        if dataset.path is not None:
            source = DataSource(path=str(dataset.path), fields=dict(self.fields), limit=self.limit, sample=self.sample)
        frozen = FrozenPlan(
            arms=arms,
            graders=graders,
            dataset=dataset.name,
            dataset_digest=dataset.digest,
            source=source,
            repeat=self.repeat,
            cluster=self.cluster,
            seed=self.seed,
            budget=self._budget(),
            prices=self._prices(),
            service=self.service,
            reuse=list(self.reuse),
            warnings=_warnings(graders, arms),
        )
        return frozen, dataset.cases

    def dataset(self) -> Dataset:
        """The cases: read from their file if they are in one, and only so many as are wanted."""
        if isinstance(self.data, Dataset):
            data = self.data
        elif isinstance(self.data, (str, Path)):
            data = Dataset.load(self.data, fields=self.fields, cluster=self.cluster)
        else:
            data = Dataset(self.data)
        if self.limit is not None:
            data = data.first(self.limit)
        return data if self.sample is None else data.sample(self.sample, self.seed)

    def _budget(self) -> Budget | None:
        if self.budget is None or isinstance(self.budget, Budget):
            return self.budget
        known = ("max_cost", "max_tokens", "max_llm_calls")
        if unknown := sorted(set(self.budget) - set(known)):
            raise PlanError("budget", f"an evaluation has no limit '{unknown[0]}'; there are {', '.join(known)}")
        limits: Budget = _converted(dict(self.budget), Budget, "budget")
        return limits

    def _prices(self) -> dict[str, Price]:
        return {
            model: price if isinstance(price, Price) else _converted(dict(price), Price, f"prices.{model}")
            for model, price in self.prices.items()
        }

    @classmethod
    def load(cls, file: str | Path, **changes: Any) -> Plan:
        """The plan in a TOML file. Paths in it are relative to the file; `changes` win over what it says."""
        path = Path(file)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise PlanError(str(path), str(error.strerror)) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PlanError(str(path), f"it is not TOML: {error}") from None
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(set(table) - known):
            raise PlanError(str(path), f"unknown key '{unknown[0]}'; there are {', '.join(sorted(known))}")
        table |= {name: value for name, value in changes.items() if value is not None}
        for name in ("strategies", "data"):
            if name not in table:
                raise PlanError(str(path), f"it names no {name}")
        here = path.parent
        if isinstance(table["data"], str) and "data" not in changes:
            table["data"] = here / table["data"]
        table["strategies"] = [_relative_subject(each, here) for each in table["strategies"]]
        table["graders"] = [_relative_grader(each, here) for each in table.get("graders", [])]
        return cls(**table)

    def with_(self, **changes: Any) -> Plan:
        """The plan with other values for what is not None."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


def _converted(table: dict[str, Any], kind: Any, what: str) -> Any:
    try:
        return msgspec.convert(table, kind, strict=False)
    except msgspec.ValidationError as error:
        raise PlanError(what, str(error)) from None


def _relative_subject(given: Any, here: Path) -> Any:
    if isinstance(given, dict):
        return {**given, "strategy": _relative_subject(given.get("strategy"), here)}
    if not isinstance(given, str):
        return given
    prefix, text = ("agent:", given.removeprefix("agent:")) if given.startswith("agent:") else ("", given)
    file, colon, name = text.rpartition(":") if ".py:" in text else (text, "", "")
    return f"{prefix}{here / file}{colon}{name}" if (here / file).suffix in (".py", ".lua", ".md") else given


def _relative_grader(given: Any, here: Path) -> Any:
    if isinstance(given, dict) and isinstance(given.get("grader"), str):
        return {**given, "grader": _relative_grader(given["grader"], here)}
    if isinstance(given, str) and given.startswith("python:"):
        return f"python:{here / given.removeprefix('python:')}"
    return given


def _check_graders(graders: Sequence[GraderSpec], arms: Sequence[Arm]) -> None:
    names = [spec.name for spec in graders]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise PlanError("graders", f"two are called '{repeated}'; give one of them another name")
    if not any(spec.weight for spec in graders):
        raise PlanError("graders", "all have the weight 0")
    known = [arm.name for arm in arms]
    for spec in graders:
        baseline = spec.options.get("baseline")
        if spec.grader == "pairwise" and baseline not in known:
            raise PlanError(spec.name, f"its baseline '{baseline}' is no arm; there are {', '.join(known)}")


def model_family(model: str) -> str:
    """What models of one maker have in common: the first word of their name."""
    name = model.partition("?")[0].rpartition("/")[2].rpartition("#")[2].rpartition(":")[2]
    return name.partition("-")[0].rstrip("0123456789.").lower()


def _warnings(graders: Sequence[GraderSpec], arms: Sequence[Arm]) -> list[str]:
    families = {model_family(arm.model): arm.name for arm in arms if arm.model is not None}
    return [
        f"the judge {judge} of '{spec.name}' is kin of {families[model_family(judge)]}: judges prefer their own family"
        for spec in graders
        for judge in spec.judges
        if model_family(judge) in families
    ]


# --- drift -----------------------------------------------------------------------------------------------


def drift(before: FrozenPlan, cases: Sequence[Case], now: FrozenPlan, cases_now: Sequence[Case]) -> list[str]:
    """How a plan differs from the one that was frozen, in sentences with both digests; empty if it does not.

    Arms and graders that were added are no drift, nor are more repeats.
    """
    found: list[str] = []
    theirs = {arm.name: arm for arm in now.arms}
    for arm in before.arms:
        other = theirs.get(arm.name)
        if other is None:
            found.append(f"arm {arm.name} ({arm.digest}): it is not in the plan any more")
        elif other.digest != arm.digest:
            where = first_difference(arm.identity, other.identity)
            found.append(f"arm {arm.name}: {arm.digest} then, {other.digest} now; first difference: {where}")
    if before.dataset_digest != now.dataset_digest:
        rows = [msgspec.to_builtins(list(each)) for each in (cases, cases_now)]
        where = first_difference(rows[0], rows[1], "case ")
        found.append(f"dataset: {before.dataset_digest} then, {now.dataset_digest} now; first difference: {where}")
    named = {spec.name: spec for spec in now.graders}
    for spec in before.graders:
        other_spec = named.get(spec.name)
        if other_spec is None:
            found.append(f"grader {spec.name} ({spec.digest}): it is not in the plan any more")
        elif other_spec.digest != spec.digest:
            sides: list[Json] = [msgspec.to_builtins(each) for each in (spec, other_spec)]
            where = first_difference(sides[0], sides[1])
            found.append(f"grader {spec.name}: {spec.digest} then, {other_spec.digest} now; first difference: {where}")
    return found
