"""For all tests: a home of their own, and assertions of the shipped kit shown in full."""

import contextlib
import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import SOAK
from tests.forks.popen import executing, forking

pytest.register_assert_rewrite("holdfast.testing")

gc.disable()  # until all tests are collected: what is imported stays, and looking through it takes a third of that time

# Before Holdfast is imported, here and in other processes: a step that the machine stalls for a moment is still prompt.
os.environ.setdefault("HOLDFAST_PATIENCE", "3")

MEMORY = Path("/dev/shm")
ROOM_BYTES = 12 * 2**30


def _use_memory_for_files() -> None:
    """Let files of tests lie in memory if it has room for all: thousands of databases are made a few times faster."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    room = os.statvfs(MEMORY)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if min(room.f_bavail * room.f_frsize, free) < ROOM_BYTES:
        return
    directory = MEMORY / f"hf-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    directory.chmod(0o1777)  # the user of PostgreSQL servers writes there, too
    os.environ["TMPDIR"], tempfile.tempdir = str(directory), None


_use_memory_for_files()

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("soak", deadline=None, max_examples=1_000)
settings.load_profile("soak" if SOAK else "suite")

# Whoever runs the tests in the background may ignore Ctrl-C, and that is inherited: tests that press it need it back.
with contextlib.suppress(ValueError):  # not in the main thread
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a soak, tests of properties run too, with many examples."""
    for item in items:
        if SOAK and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("soak")


def pytest_collection_finish() -> None:
    """What is there now is never garbage: collections leave it alone from here on."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keys, cards and packages of whoever runs the tests are neither used nor changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("HOLDFAST_SNAPSHOT_KEY", "HOLDFAST_STRATEGIES_PATH"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_processes() -> Iterator[None]:
    """Python processes are forked from one that has imported all they need; with HOLDFAST_TEST_EXEC none is."""
    with contextlib.nullcontext() if os.environ.get("HOLDFAST_TEST_EXEC") else forking():
        yield


@pytest.fixture(autouse=True)
def _executed_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that is marked so starts its processes as users do."""
    with executing() if request.node.get_closest_marker("executes") else contextlib.nullcontext():
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server, one for each process that runs tests; `fresh_database` makes each test a database on it."""
    from holdfast.testing.postgres_server import postgres_server

    with postgres_server(tmp_path_factory.mktemp("server")) as url:
        yield url
