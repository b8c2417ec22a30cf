"""The pages about the bundled strategies, made from what each says about itself and from a rehearsal of it.

`python -m holdfast.strategies.pages docs/strategies` writes them.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from holdfast.core.values import Json
from holdfast.programs.parameters import Parameter, StrategyMeta
from holdfast.programs.sandbox.library import BUNDLED
from holdfast.strategies.catalog import StrategyEntry, find_entry
from holdfast.strategies.diagram import DiagramLoop, DiagramPause, Part, diagram
from holdfast.strategies.dry_run import DryRun, dry_run
from holdfast.strategies.python_language import PythonLanguage

INDEX = "README.md"

_LIBRARY = "src/holdfast/strategies/library"
"""Where the sources are, seen from the pages."""

_COLUMNS = 116
"""Of a line in a diagram: as wide as pages are shown without scrolling."""

_LABEL_COLUMNS = 18

_INDEX_HEAD = """\
# The bundled strategies

Written from the papers, in the sandboxed Python that [your own](../how-to/write-a-strategy.md) are written in. Each
reads `ctx["task"]` and leaves its answer in `ctx["result"]`, so that they can be put one behind another.
`holdfast strategies` lists them, `holdfast run NAME --task "…"` runs one, and `--dry-run` shows what it would ask.

They shape how a model is asked. They do not make it right: what a paper measured with its model and its tasks need not
hold for yours. Calls are the most that are made with the parameters as they are by default.

| strategy | category | calls | what it does | from |
|---|---|---|---|---|
"""


async def render_pages() -> dict[str, str]:
    """The pages, by the names of their files."""
    # By their files: what else is installed here must not change the pages.
    bundled = [find_entry(str(path)) for path in BUNDLED.glob("*.py") if not path.name.startswith("_")]
    listed = sorted(bundled, key=lambda each: (each.category, each.name))
    pages = {f"{each.name}.md": await _page(each, {other.name for other in listed}) for each in listed}
    return {INDEX: _index(listed), **pages}


# --- the list ------------------------------------------------------------------------------------------


def _index(listed: Iterable[StrategyEntry]) -> str:
    return _INDEX_HEAD + "".join(f"| {' | '.join(_row(each))} |\n" for each in listed)


def _row(listed: StrategyEntry) -> list[str]:
    meta = _meta(listed)
    paper = meta.paper
    source = f"[{_cell(paper.authors)} ({paper.year})]({paper.url})" if paper is not None else "–"
    return [f"[`{listed.name}`]({listed.name}.md)", meta.category, _calls(listed), _cell(meta.description), source]


def _calls(listed: StrategyEntry) -> str:
    cost = listed.cost
    if cost is None:
        return "–"
    return f"`{cost.formula}`" if cost.by_default is None else str(cost.by_default)


# --- a page --------------------------------------------------------------------------------------------


async def _page(listed: StrategyEntry, names: set[str]) -> str:
    meta = _meta(listed)
    run = await dry_run(PythonLanguage().read_program(Path(listed.path)))
    parts = [
        f"# {listed.name}",
        _linked(listed.doc, names - {listed.name}),
        f"```\nholdfast run {listed.name} {_options(meta)}\nholdfast run {listed.name} --dry-run\n```",
        "## Parameters",
        _table(("name", "type", "by default", "what it is"), [_parameter(*each) for each in meta.parameters.items()]),
        "## Calls and result",
        _figures(listed),
        "## Pauses",
        f"{_counted(run)}, in a rehearsal with the answers of its `META`. `‹…›` stands for what was not given.",
        f"```text\n{chr(10).join(_drawn(run))}\n```",
        *(
            ["## From", f"{paper.authors} ({paper.year}): [{paper.title}]({paper.url})."]
            if (paper := meta.paper)
            else []
        ),
        f"Source: `{_LIBRARY}/{listed.name}.py`. This page is made from it, by `make docs`.",
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _meta(listed: StrategyEntry) -> StrategyMeta:
    if listed.meta is None:
        raise ValueError(f"{listed.path}: {listed.error or 'it has no META'}")
    return listed.meta


def _linked(doc: str, names: set[str]) -> str:
    return re.sub(r"`(\w+)`", lambda found: f"[{found[0]}]({found[1]}.md)" if found[1] in names else found[0], doc)


def _options(meta: StrategyMeta) -> str:
    needed = [name for name, parameter in meta.parameters.items() if parameter.required]
    return " ".join('--task "…"' if name == "task" else f"--set {name}=…" for name in needed)


def _parameter(name: str, parameter: Parameter) -> list[str]:
    default = "required" if parameter.required else f"`{json.dumps(parameter.default, ensure_ascii=False)}`"
    bounds = [
        f"{word} {bound:.15g}" for word, bound in (("from", parameter.min), ("to", parameter.max)) if bound is not None
    ]
    choices = ["one of " + ", ".join(f"`{choice}`" for choice in parameter.choices)] if parameter.choices else []
    more = "; ".join([*([" ".join(bounds)] if bounds else []), *choices])
    description = parameter.description.rstrip(".")
    return [f"`{name}`", parameter.type, default, _cell(f"{description} ({more})" if more else description)]


def _figures(listed: StrategyEntry) -> str:
    cost, meta = listed.cost, _meta(listed)
    lines = []
    if cost is not None:
        by_default = f", which is {cost.by_default} by default" if _is_formula(cost.formula) and cost.by_default else ""
        lines.append(f"- calls of models: at most `{cost.formula}`{by_default}")
    if meta.result:
        lines.append(f'- `ctx["result"]`: {meta.result}')
    return "\n".join(lines)


def _is_formula(text: str) -> bool:
    return not text.isdigit()


def _counted(run: DryRun) -> str:
    calls, pauses = run.llm_calls, len(run.pauses)
    return f"{calls} call{'s' if calls != 1 else ''} in {pauses} pause{'s' if pauses != 1 else ''}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(head)
    lines = [cells, ["---"] * len(cells), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- the diagram ---------------------------------------------------------------------------------------


def _drawn(run: DryRun) -> Iterator[str]:
    """The pauses of a rehearsal, one below the other, and how it ends."""
    if run.error is not None:
        raise ValueError(f"{run.program.name}: its rehearsal fails: {run.error}")
    for part in diagram(run):
        yield from _part(part)
        yield "          ↓"
    yield f"result    {_short(_text(_result(run.result)), _COLUMNS - 10)}"


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, DiagramPause):
        yield from _step(part, _COLUMNS)
        return
    assert isinstance(part, DiagramLoop)
    yield f"┌ {part.times} times"
    for number, step in enumerate(part.steps):
        if number:
            yield "│         ↓"
        yield from (f"│ {line}".rstrip() for line in _step(step, _COLUMNS - 2))
    yield "└"


def _step(step: DiagramPause, columns: int) -> Iterator[str]:
    for number, box in enumerate(step.boxes):
        place = f"pause {step.pause}" if number == 0 else ""
        label = f"{box.label}{f' ×{box.times}' if box.times > 1 else ''}"
        left = f"{place:<10}{label:<{_LABEL_COLUMNS}} "
        yield left + _short(box.prompt, columns - len(left))
        yield " " * len(left) + _short(f"→ {box.answer}", columns - len(left))


def _short(text: str, columns: int) -> str:
    return textwrap.shorten(text, columns, placeholder=" …")


def _result(result: Json) -> Json:
    return result["result"] if isinstance(result, Mapping) and "result" in result else result


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def write_pages(directory: Path, pages: Mapping[str, str]) -> None:
    """Write the pages, and remove those of strategies that are not there any more."""
    directory.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in directory.glob("*.md")} - set(pages):
        (directory / stale).unlink()
    for name, text in pages.items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Say where to write the pages: python -m holdfast.strategies.pages docs/strategies")
    write_pages(Path(sys.argv[1]), asyncio.run(render_pages()))
