"""`ProcessOffers`: what this OS process has for sessions, against what they need; and that as a list for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id
from holdfast.core.needs import MANY, RUN, Need, parse_needs
from holdfast.core.state import Session
from holdfast.engine.drivers import Drivers
from holdfast.engine.listed_offers import ListedOffers
from holdfast.engine.program_kinds import ProgramKinds
from holdfast.programs.registry import registered


class Offer(Protocol):
    """What another layer brings to a process."""

    def meets(self, session: Session, need: Need) -> bool | None:
        """Whether it meets a need of a session; None if that is not for it to say."""
        ...

    def may_meet(self, need: Need) -> bool | None:
        """Whether it may meet a need of some session; None if that is not for it to say."""
        ...

    def listed(self) -> ListedOffers:
        """All of it, by name."""
        ...


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
        self.is_draining = False
        """Whether this process is about to end: it begins no calls of strategies, and takes nothing up by itself."""

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
            case "llm" | "model" | "provider" | "tool" | "agent":
                for offer in self._others:
                    if (met := offer.meets(session, need)) is not None:
                        return met
                return need.kind == "llm" and "llm" in self._drivers.kinds

    def may_meet(self, need: Need) -> bool:
        """Whether this process may have what some session needs of models and tools; the session itself says more."""
        for offer in self._others:
            if (met := offer.may_meet(need)) is not None:
                return met
        match need.kind:
            case "llm":
                return "llm" in self._drivers.kinds
            case "tool":
                return need.name in self._drivers.tool_names
            case _:
                return False

    def may_move(self, needs: str) -> bool:
        """Whether this process may move a session by itself whose row names these needs.

        Parents that wait for children are not among them, nor what is left to workers.
        """
        row = parse_needs(needs)
        if self.is_draining:
            return False
        if row.words & {RUN, MANY}:
            return True
        if row.words - {"human", "child"}:
            return False  # its program kind has workers for that
        return ("human" in row.words and "human" in self._drivers.kinds) or any(map(self.may_meet, row.named))

    def listed(self) -> ListedOffers:
        """What this process offers now, by name."""
        others = [offer.listed() for offer in self._others]
        return ListedOffers(
            services=list(self.services),
            strategies=sorted(registered()),
            providers=sorted({name for each in others for name in each.providers}),
            models=sorted({name for each in others for name in each.models}),
            tools=sorted({*self._drivers.tool_names, *(name for each in others for name in each.tools)}),
            agents=sorted({name for each in others for name in each.agents}),
            has_model=any(each.has_model for each in others) if others else "llm" in self._drivers.kinds,
            answers_people="human" in self._drivers.kinds,
        )
