"""Tables in tests: one test that goes through all rows, and tells of every one that does not hold."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each_row(names: str | tuple[str, ...] | list[str], rows: Iterable[Any], ids: object = None) -> Callable[[Any], Any]:
    """As `pytest.mark.parametrize`, but one test: a hundred rows do not cost a hundred set-ups. `ids` is ignored.

    For tests that leave nothing behind: what fixtures make is the same for all rows.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = list(rows)
    assert table, "a table without rows shows nothing"

    def decorate(test: Any) -> Any:
        signature = inspect.signature(test)
        others = [each for each in signature.parameters.values() if each.name not in columns]

        def arguments(row: Any) -> dict[str, Any]:
            return dict(zip(columns, [row] if len(columns) == 1 else row, strict=True))

        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def all_rows(*args: Any, **fixtures: Any) -> None:
                failed = []
                for row in table:
                    try:
                        await test(*args, **fixtures, **arguments(row))
                    except Exception as error:
                        failed.append(_with_row(error, row))
                _raise_if_any(failed, len(table))

        else:

            @functools.wraps(test)
            def all_rows(*args: Any, **fixtures: Any) -> None:
                failed = []
                for row in table:
                    try:
                        test(*args, **fixtures, **arguments(row))
                    except Exception as error:
                        failed.append(_with_row(error, row))
                _raise_if_any(failed, len(table))

        del all_rows.__wrapped__
        all_rows.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return all_rows

    return decorate


def _with_row(error: Exception, row: Any) -> Exception:
    error.add_note(f"row: {repr(row)[:1_000]}")
    return error


def _raise_if_any(failed: list[Exception], count: int) -> None:
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {count} rows do not hold", failed)
