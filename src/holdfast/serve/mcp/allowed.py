"""What the operator of a server allows to the programs that hosts have run, and what a call may ask of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.programs.language import ProgramOptions, StepLimits
from holdfast.programs.sandbox.limits import DEADLINE_S, MEMORY_MIB

N = TypeVar("N", int, float)

DeadlineS = Annotated[
    Annotated[float, msgspec.Meta(gt=0)] | None,
    msgspec.Meta(description="Seconds of computing between two questions, up to what the operator allows."),
]
MemoryMib = Annotated[
    Annotated[int, msgspec.Meta(ge=1)] | None,
    msgspec.Meta(description="MiB of memory, up to what the operator allows."),
]


@dataclass(frozen=True)
class AllowedCode:
    """Which code hosts may have run beside strategies and what they send as text, and with what."""

    code_directories: Sequence[Path] = ()
    """Where the files of code may be that a call names, beside the project."""
    trusts_specs: bool = False
    """Whether specs of packages may run outside of the sandbox."""
    trusted: Sequence[Path] = ()
    """Directories whose packages and files run outside of the sandbox."""
    deadline_s: float | None = None
    """Seconds of computing between two questions; None for what is usual."""
    memory_mib: int | None = None
    """MiB of memory of a program; None for what is usual."""

    def options(self, wanted: StepLimits) -> ProgramOptions:
        """How programs are made for a call; `InvalidValueError` if it wants more than is allowed."""
        limits = self.limits(wanted)
        return {"trusted": self.trusted, "deadline_s": limits.deadline_s, "memory_mib": limits.memory_mib}

    def limits(self, wanted: StepLimits) -> StepLimits:
        """The limits of a call: what it wants, else what the operator says."""
        return StepLimits(
            deadline_s=_within(wanted.deadline_s, self.deadline_s, DEADLINE_S, "deadline"),
            memory_mib=_within(wanted.memory_mib, self.memory_mib, MEMORY_MIB, "memory"),
        )


def _within(wanted: N | None, allowed: N | None, usual: N, what: str) -> N | None:
    """What a call gets of a limit. What is usual may always be asked for."""
    if wanted is None:
        return allowed
    most = allowed if allowed is not None else usual
    if wanted > most:
        raise InvalidValueError(
            what,
            f"{wanted:g} is more than the {most:g} that this server allows; whoever runs it can allow more:"
            f" `holdfast mcp --{what} {wanted:g}`",
        )
    return wanted
