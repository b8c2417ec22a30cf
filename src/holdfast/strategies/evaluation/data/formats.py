"""File formats of datasets: our own JSONL and CSV, those of Inspect, pydantic-evals, promptfoo and algocline.

Each becomes rows with our names. Which format a file has follows from its extension and from the names in it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import check_value
from holdfast.strategies.evaluation.data.lua_scenario import read_scenario
from holdfast.strategies.evaluation.errors import DatasetError

_OWN = ("id", "input", "expected", "choices", "tags", "cluster", "context", "rubric", "weight")
_LISTS = ("tags", "choices")
_PROMPTFOO = "__"
"""What the columns of promptfoo that are no variables begin with."""


def read_rows(file: Path, fields: Mapping[str, str], cluster: str | None) -> Iterator[dict[str, Any]]:
    """The rows of a file, with our names. Raises `DatasetError`."""
    if wrong := sorted(set(fields) - set(_OWN)):
        raise DatasetError(str(file), f"--field {wrong[0]}=…: there is no such field; there are {', '.join(_OWN)}")
    suffix = file.suffix.lower()
    match suffix:
        case ".jsonl" | ".ndjson":
            rows = _json_lines(file)
        case ".json":
            rows = _document(_parsed_json(file), str(file))
        case ".yaml" | ".yml":
            rows = _document(_parsed_yaml(file), str(file))
        case ".csv" | ".tsv":
            rows = _table(file, "\t" if suffix == ".tsv" else ",")
        case ".lua":
            rows = iter(read_scenario(file)["cases"])
        case ".parquet" | ".arrow":
            how = "write it as JSONL first, such as with `dataset.to_json(FILE)` of Hugging Face datasets"
            raise DatasetError(str(file), f"{suffix} is not read: {how}")
        case _:
            raise DatasetError(str(file), f"unknown extension '{suffix}'; use .jsonl, .json, .yaml, .csv, .tsv or .lua")
    for row in rows:
        yield _own_names(row, fields, cluster)


def read_graders(file: Path) -> list[dict[str, Any]]:
    """The graders that a dataset brings: the evaluators of one of pydantic-evals, as far as they are built in; or those
    of a scenario in Lua that have names."""
    suffix = file.suffix.lower()
    if suffix == ".lua":
        return read_scenario(file)["graders"]
    if suffix not in (".json", ".yaml", ".yml"):
        return []
    value = _parsed_json(file) if suffix == ".json" else _parsed_yaml(file)
    given = value.get("evaluators") if isinstance(value, dict) else None
    return [_grader(each, str(file)) for each in given] if isinstance(given, list) else []


def _grader(given: Any, where: str) -> dict[str, Any]:
    """A grader for an evaluator: its name, or `{name: argument}`, or `{name: {argument: value}}`."""
    name, argument = next(iter(given.items())) if isinstance(given, dict) and len(given) == 1 else (given, None)
    arguments = argument if isinstance(argument, dict) else {}
    match name:
        case "EqualsExpected":
            return {"grader": "exact_match"}
        case "Equals":
            return {"grader": "equals", "value": arguments.get("value", argument)}
        case "Contains":
            return {"grader": "has", "text": str(arguments.get("value", argument))}
        case "IsInstance":
            return {"grader": "is_instance", "type_name": arguments.get("type_name", argument)}
        case "MaxDuration":
            return {"grader": "max_duration", "seconds": arguments.get("seconds", argument)}
        case "LLMJudge":
            rubric = arguments.get("rubric", argument)
            return {"grader": "llm_yes_no", "question": f"Does the response meet this rubric? {rubric}"}
        case _:
            known = "Equals, EqualsExpected, Contains, IsInstance, MaxDuration, LLMJudge"
            raise DatasetError(
                where, f"the evaluator {name!r} is not known; there are {known}. Name graders in the plan"
            )


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(str(file), str(error.strerror)) from None
    except UnicodeDecodeError:
        raise DatasetError(str(file), "it is not a text in UTF-8") from None


def _json_lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _object(_loads(line, f"{file}, line {number}"), f"{file}, line {number}")
    except OSError as error:
        raise DatasetError(str(file), str(error.strerror)) from None
    except UnicodeDecodeError:
        raise DatasetError(str(file), "it is not a text in UTF-8") from None


def _loads(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DatasetError(where, f"it is not JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DatasetError(where, f"a row is an object, got {type(value).__name__}")
    return value


def _parsed_json(file: Path) -> Any:
    return _loads(_read(file), str(file))


def _parsed_yaml(file: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise DatasetError(
            str(file), "reading YAML needs PyYAML: install `holdfast[yaml]`, or write the file as JSON"
        ) from None
    try:
        value = yaml.safe_load(_read(file))
        check_value(value, "its content")  # YAML has more than JSON: dates, sets, keys that are no text
    except InvalidValueError as error:
        raise DatasetError(str(file), f"{error}; put what is to be text in quotes") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DatasetError(str(file), f"it is not YAML: {error}") from None
    return value


def _document(value: Any, where: str) -> Iterator[dict[str, Any]]:
    """The rows of a file that is one value: a list of them, or an object with `cases`, `samples` or `data`."""
    rows = value
    if isinstance(value, dict):
        rows = next((value[key] for key in ("cases", "samples", "data") if isinstance(value.get(key), list)), None)
    if not isinstance(rows, list):
        raise DatasetError(where, "expected a list of rows, or an object with a list of `cases`")
    for number, row in enumerate(rows, 1):
        yield _object(row, f"{where}, row {number}")


def _table(file: Path, delimiter: str) -> Iterator[dict[str, Any]]:
    lines = _read(file).splitlines(keepends=True)
    reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if None in row:
                raise DatasetError(
                    f"{file}, line {reader.line_num}", "it has more cells than the first line has columns"
                )
            yield {key: _cell(key, text) for key, text in row.items() if text not in (None, "")}
    except csv.Error as error:
        raise DatasetError(f"{file}, line {reader.line_num}", str(error)) from None


def _cell(key: str, text: str) -> Any:
    if text[:1] in "[{":
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return text
    if key in _LISTS:
        return [part.strip() for part in text.split(";") if part.strip()]
    if key == "weight":
        try:
            return float(text)
        except ValueError:
            return text
    return text


# --- names -----------------------------------------------------------------------------------------------


def _own_names(row: dict[str, Any], fields: Mapping[str, str], cluster: str | None) -> dict[str, Any]:
    """A row with our names, whichever format it has."""
    named = {ours: row[theirs] for ours, theirs in fields.items() if theirs in row}
    if fields:
        taken = set(fields.values())
        rest = {key: value for key, value in row.items() if key not in taken}
        own = {key: value for key, value in rest.items() if key in _OWN and key not in named}
        others = {key: value for key, value in rest.items() if key not in _OWN}
        found = {**own, **named}
        if others:
            found["context"] = {**others, **(found.get("context") or {})}
    elif "inputs" in row:
        found = _pydantic_case(row)
    elif "target" in row:
        found = _inspect_sample(row)
    elif any(key.startswith(_PROMPTFOO) for key in row):
        found = _promptfoo_test(row)
    else:
        found = dict(row)
    if cluster is not None and "cluster" not in found:
        context = found.get("context")
        value = row.get(cluster, context.get(cluster) if isinstance(context, dict) else None)
        if value is not None:
            found["cluster"] = str(value)
            if cluster in found and cluster not in _OWN:
                del found[cluster]
    return found


def _pydantic_case(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("evaluators"):
        raise DatasetError(str(row.get("name")), "evaluators of single cases are not read; give those of all cases")
    metadata = row.get("metadata")
    expected = row.get("expected_output")
    return {
        "id": row.get("name"),
        "input": row["inputs"],
        "expected": expected if expected is None or isinstance(expected, (str, list)) else _text_of(expected),
        "context": metadata if isinstance(metadata, dict) else None,
    }


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _inspect_sample(row: dict[str, Any]) -> dict[str, Any]:
    metadata = row.get("metadata")
    found = {key: row[key] for key in ("id", "input", "choices") if row.get(key) is not None}
    found["expected"] = row["target"]
    if isinstance(metadata, dict):
        found["context"] = metadata
    return found


def _promptfoo_test(row: dict[str, Any]) -> dict[str, Any]:
    """A line of promptfoo's CSV: variables, `__expected` assertions and `__metadata:x`."""
    variables = {key: value for key, value in row.items() if not key.startswith(_PROMPTFOO)}
    metadata = {
        key.partition(":")[2]: value for key, value in row.items() if key.startswith("__metadata:") and ":" in key
    }
    expected = [
        _assertion_text(str(value)) for key, value in row.items() if key == "__expected" or key.startswith("__expected")
    ]
    only = next(iter(variables.values())) if len(variables) == 1 else variables.get("input", variables)
    found: dict[str, Any] = {"id": row.get("__description"), "input": only, "expected": expected}
    if metadata:
        found["context"] = metadata
    return found


def _assertion_text(text: str) -> str:
    """The value of an assertion such as `contains: Paris` or `equals: 4`."""
    kind, colon, value = text.partition(":")
    return value.strip() if colon and kind.strip() in ("contains", "icontains", "equals", "starts-with") else text
