"""The store and the engine that a command works on."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.cli.options import settings
from holdfast.core.ids import DEFAULT_SERVICE

if TYPE_CHECKING:
    from holdfast.engine.holdfast import Holdfast
    from holdfast.store import Store

BY = "cli"
"""Who answered, sent or cancelled something, as the journal records it."""


@asynccontextmanager
async def open_store(*, create: bool = False) -> AsyncIterator[Store]:
    """The store named by the options."""
    from holdfast import store

    async with store.open_store(settings().url(create=create)) as opened:
        yield opened


@asynccontextmanager
async def open_engine(*, upkeep: bool = False, create: bool = False) -> AsyncIterator[Holdfast]:
    """The engine on the store. Without `upkeep` it resumes nothing by itself, and has no native strategies to run."""
    from holdfast.engine.holdfast import open_holdfast
    from holdfast.engine.upkeep import Upkeep

    if upkeep:
        from holdfast.cli.served import load_served

        load_served()
    # A command that only looks works whatever the project's file says.
    services = settings().services if upkeep else settings().named_services or DEFAULT_SERVICE
    async with open_holdfast(settings().url(create=create), upkeep=Upkeep(on=upkeep), service=services) as hf:
        yield hf


def find_modules_here() -> None:
    """Let `module:name` be found in the working directory, as with `python -m`."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
