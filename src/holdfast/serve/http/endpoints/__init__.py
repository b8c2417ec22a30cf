"""The endpoints of the HTTP API, one module for each thing that they are about."""

from __future__ import annotations

from holdfast.serve.http.endpoint import Endpoint
from holdfast.serve.http.endpoints import (
    agents,
    attachments,
    bulk,
    cards,
    evaluation_orders,
    evaluations,
    events,
    inbox,
    journals,
    links,
    login,
    overview,
    packages,
    queries,
    server,
    sessions,
    state,
    strategies,
    tokens,
    transfers,
    trees,
    turns,
    webhooks,
)

ENDPOINTS: list[Endpoint] = [
    endpoint
    for module in (
        *(server, login, overview, sessions, transfers, trees, queries, links, journals, events, bulk),
        *(agents, turns, inbox, attachments, strategies, packages, cards, evaluations, evaluation_orders),
        *(state, tokens, webhooks),
    )
    for endpoint in module.endpoints.all
]
