"""What can be wrong with a test run before it begins. A failing test is a result, not an error."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class NoSpecsError(HoldfastError):
    """There is nothing to run."""

    directory: str
    why: str
    kind = "no_specs"

    def __str__(self) -> str:
        return f"{self.directory}: {self.why}"
