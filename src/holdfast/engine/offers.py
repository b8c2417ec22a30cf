"""`ProcessOffers`: what this OS process has for sessions, against what they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.needs import Need
from holdfast.core.state import Session
from holdfast.engine.drivers import Drivers
from holdfast.engine.program_kinds import ProgramKinds

Offer: TypeAlias = Callable[[Session, Need], bool | None]
"""Whether something that another layer has brought meets a need of a session; None if that is not for it to say."""


class ProcessOffers:
    """The services that a process serves, its programs, and what its drivers can do."""

    def __init__(self, services: Sequence[str], programs: ProgramKinds, drivers: Drivers) -> None:
        if not services:
            raise InvalidValueError("service", "a process serves at least one")
        self.services = tuple(dict.fromkeys(check_id(service, "service") for service in services))
        """The first is that of the sessions that are started here."""
        self._programs = programs
        self._drivers = drivers
        self._others: list[Offer] = []

    def add(self, offer: Offer) -> None:
        """Ask this first, from now on."""
        self._others.append(offer)

    def meets(self, session: Session, need: Need) -> bool:
        """Whether this process has what a session needs."""
        match need.kind:
            case "service":
                return need.name in self.services
            case "program":
                return self._programs.knows(session)
            case "host":
                return False
            case "llm" | "model" | "provider" | "tool":
                said = (offer(session, need) for offer in self._others)
                known = next((met for met in said if met is not None), None)
                return known if known is not None else need.kind == "llm" and "llm" in self._drivers.kinds
