"""Where programs look for modules that run trusted because of the directory they are in: in trusted directories only.

Otherwise whoever can name a project, or install a package, could have code of their own run outside of the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.alc.lua.packages import Roots


def is_below(path: Path | str, directories: Sequence[Path]) -> bool:
    """Whether a file or directory is one of these directories or in one, with all links followed."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(each)) for each in directories)


def trusted_roots(roots: Roots, directories: Sequence[Path]) -> Roots:
    """The trusted ones of these roots, and every trusted directory that is a package itself, by its name."""
    own = {each.name.partition("@")[0]: os.path.realpath(each) for each in directories if (each / "init.lua").is_file()}
    return msgspec.structs.replace(
        roots,
        variants={**own, **{name: place for name, place in roots.variants.items() if is_below(place, directories)}},
        pinned={name: place for name, place in roots.pinned.items() if is_below(place, directories)},
        roots=[each for each in roots.roots if is_below(each, directories)],
        origins={each: origin for each, origin in roots.origins.items() if is_below(each, directories)},
        strict=True,
    )
