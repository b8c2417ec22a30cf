"""What programs may be called in a request: names that the server knows, and never files."""

from __future__ import annotations

from holdfast.serve.http.problems import ApiError


def checked_name(name: str) -> str:
    """The name of a strategy or package. Raises a 403 for what may be a file: a path is code."""
    if "/" in name or "\\" in name or name.endswith((".py", ".lua", ".md")) or ":" in name:
        why = "a file is code, and is not run for a request; name a strategy by its name"
        raise ApiError(403, "forbidden", why)
    return name
