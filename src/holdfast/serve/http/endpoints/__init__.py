"""The endpoints of the HTTP API, one module for each thing that they are about."""

from __future__ import annotations

from holdfast.serve.http.endpoint import Endpoint
from holdfast.serve.http.endpoints import (
    agents,
    bulk,
    cards,
    evaluations,
    events,
    inbox,
    journals,
    links,
    login,
    overview,
    queries,
    server,
    sessions,
    state,
    strategies,
    tokens,
    trees,
    turns,
    webhooks,
)

ENDPOINTS: list[Endpoint] = [
    endpoint
    for module in (
        *(server, login, overview, sessions, trees, queries, links, journals, events, bulk),
        *(agents, turns, inbox, strategies, cards, evaluations, state, tokens, webhooks),
    )
    for endpoint in module.endpoints.all
]
