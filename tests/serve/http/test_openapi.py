"""The OpenAPI document: every route is in it, and all it refers to is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.serve.http.endpoints import ENDPOINTS
from holdfast.serve.http.openapi import openapi_document
from holdfast.serve.http.tokens import SCOPES
from tests.serve.http.api_server import ApiServer


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "$ref":
                yield each
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def test_the_document_has_every_route_and_no_other() -> None:
    document = openapi_document(ENDPOINTS)
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(each.method, "/api/v1" + each.path) for each in ENDPOINTS}
    assert len(ENDPOINTS) == len(described)


def test_all_that_the_document_refers_to_is_in_it() -> None:
    document = openapi_document(ENDPOINTS)
    names = {reference.removeprefix("#/components/schemas/") for reference in _references(document)}
    assert names <= set(document["components"]["schemas"])


def test_every_route_names_its_parameters_and_a_scope() -> None:
    document = openapi_document(ENDPOINTS)
    for each in ENDPOINTS:
        operation = document["paths"]["/api/v1" + each.path][each.method.lower()]
        in_path = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", each.path))
        assert each.scope in (*SCOPES, "any", "none")
        assert len(operation["summary"]) < 120
    ids = [method["operationId"] for methods in document["paths"].values() for method in methods.values()]
    assert len(ids) == len(set(ids))


async def test_the_document_and_the_health_of_the_server_are_shown_to_anybody(api: ApiServer) -> None:
    async with api.as_holder_of(None) as nobody:
        assert (await nobody.get("/openapi.json")).content == msgspec.json.encode(
            openapi_document(ENDPOINTS), enc_hook=str
        )
        for path in ("/healthz", "/readyz"):
            assert (await nobody.get(api.url + path)).json() == {"status": "ok"}
        assert (await nobody.get(api.url + "/sessions")).status_code == 404


async def test_every_route_refuses_whoever_has_no_token(api: ApiServer) -> None:
    async with api.as_holder_of(None) as nobody:
        for each in ENDPOINTS:
            path = re.sub(r"{\w+}", "x", each.path)
            reply = await nobody.request(each.method, path, json={} if each.body is not None else None)
            needs_one = each.scope != "none" or each.path == "/metrics"
            expected = {401} if needs_one else {200, 204, 400, 404}
            assert reply.status_code in expected, (each.method, path)


async def test_every_route_refuses_a_token_without_its_scope(api: ApiServer) -> None:
    for scope in SCOPES[:-1]:
        made = (await api.post("/tokens", {"name": "n", "scopes": [scope]})).json()
        async with api.as_holder_of(made["token"]) as holder:
            for each in ENDPOINTS:
                if each.scope in ("none", "any", scope):
                    continue
                reply = await holder.request(each.method, re.sub(r"{\w+}", "x", each.path))
                assert reply.status_code == 403, (scope, each.method, each.path)
                assert each.scope in reply.json()["detail"]
