"""`ListedOffers`: what a process offers, as others read it."""

from __future__ import annotations

import msgspec

from holdfast.core.needs import Need
from holdfast.core.state import Session


class ListedOffers(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process offers, by name, as it says itself. Tools that plugins bring to single sessions are left out."""

    services: list[str] = []
    strategies: list[str] = []
    """Native ones. What comes with its source, or is installed everywhere, is not listed."""
    providers: list[str] = []
    models: list[str] = []
    tools: list[str] = []
    agents: list[str] = []
    """Subagents that it can start."""
    has_model: bool = False
    """Whether it answers the `llm` queries that any process may answer."""
    answers_people: bool = False
    """Whether something here answers `human` queries."""

    def meets(self, session: Session, need: Need) -> bool:
        """Whether the process has what a session needs, as far as it is listed."""
        match need.kind:
            case "service":
                return need.name in self.services
            case "program":
                return session.program_kind != "native" or need.name in self.strategies
            case "provider":
                return need.name in self.providers
            case "model":
                return need.name in self.models
            case "tool":
                return need.name in self.tools
            case "agent":
                return need.name in self.agents
            case "llm":
                return self.has_model
            case "host":
                return False
