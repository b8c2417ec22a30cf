"""Requests made up from the OpenAPI document: whatever fits it gets an answer that fits it, and breaks nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.serve.http.test_command import served

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is a development tool")


@schemathesis.serializer("application/jsonl")  # type: ignore[untyped-decorator]
def _as_file(_: Any, value: Any) -> bytes:
    """A made-up file."""
    return str(value).encode("utf-8", "replace")


EXAMPLES = 4
"""Requests to each operation: some four hundred in all."""

ENDLESS = {"/api/v1/events"}
"""What only streams."""


def test_whatever_fits_the_document_gets_an_answer_that_fits_it(tmp_path: Path) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance]
    with served(tmp_path) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        schema = schemathesis.openapi.from_url(f"{server.url}/api/v1/openapi.json")
        tried = 0
        for found in schema.get_all_operations():
            operation: Any = found.ok()
            if operation.path in ENDLESS:
                continue
            tried += 1

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                phases=[Phase.generate],
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def answered(case: Any) -> None:
                _hurry(case)
                reply = case.call(base_url=server.url, headers=headers)
                if reply.status_code == 503:
                    return  # an agent without a model
                case.validate_response(reply, checks=checks)

            answered()
        assert tried > 70


def _hurry(case: Any) -> None:
    """Let no request wait."""
    for part in (case.query, case.body):
        if isinstance(part, dict) and isinstance(part.get("wait_s"), int | float):
            part["wait_s"] = 0
