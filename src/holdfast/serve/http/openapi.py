"""The OpenAPI document of the HTTP API, made from the list of its endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

import holdfast
from holdfast.serve.http.endpoint import Endpoint
from holdfast.serve.http.paths import PREFIX
from holdfast.serve.http.problems import MEDIA_TYPE

_REF = "#/components/schemas/{name}"


class ProblemDocument(msgspec.Struct):
    """A problem document (RFC 9457): why a request was refused. An error's own fields stand beside these."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    """The id of the request, as in the header `Request-Id`."""


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The document that describes these endpoints."""
    schemas = _Schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": holdfast.__version__,
            "description": "Durable sessions of LLM programs: start them, answer what they ask, and follow them.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schemas:
    """The JSON schemas of all types that endpoints take and give. Types are compared by what they print as: one that
    is written twice is two objects."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        found: dict[str, Any] = {repr(ProblemDocument): ProblemDocument}
        for each in endpoints:
            for kind in (each.body, each.reply, *(field.type for field in msgspec.structs.fields(each.query))):
                if kind is not None and kind is not bytes:
                    found[repr(kind)] = kind
        schemas, self.components = msgspec.json.schema_components(found.values(), ref_template=_REF)
        self._by_name = dict(zip(found, schemas, strict=True))

    def __getitem__(self, kind: Any) -> dict[str, Any]:
        return self._by_name[repr(kind)]


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": getattr(endpoint.handler, "__name__", ""),
        "summary": endpoint.summary,
        "tags": [endpoint.path.split("/")[1]],
        "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint, schemas)],
        "responses": {
            str(endpoint.status): {"description": "What was asked for.", **_content(endpoint, schemas)},
            "default": {
                "description": "The request was refused, and why.",
                "content": {MEDIA_TYPE: {"schema": schemas[ProblemDocument]}},
            },
        },
    }
    if endpoint.body is not None:
        schema = {"type": "string"} if endpoint.body is bytes else schemas[endpoint.body]
        content = {endpoint.body_type: {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": content}
    if endpoint.scope != "none":
        operation["security"] = [{"token": [endpoint.scope]}]
    return operation


def _content(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    if endpoint.reply is None:
        return {}
    if endpoint.reply is bytes:
        return {"content": {endpoint.media_type: {"schema": {"type": "string"}}}}
    content: dict[str, Any] = {"application/json": {"schema": schemas[endpoint.reply]}}
    if endpoint.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"content": content}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query_parameters(endpoint: Endpoint, schemas: _Schemas) -> list[dict[str, Any]]:
    return [
        {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": schemas[field.type],
        }
        for field in msgspec.structs.fields(endpoint.query)
    ]
