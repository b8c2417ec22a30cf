"""git, run as a process that asks nothing, runs no hooks, and ends in time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from holdfast.alc.lua.project import is_commit
from holdfast.alc.packages.errors import GitError
from holdfast.alc.packages.sources import public_url

TIMEOUT_S = 300.0
"""Seconds for all of a fetch: a large collection over a slow line, but not a server that never answers."""

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",  # which may be the name of a program
    "advice.detachedHead=false",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
)
"""Whatever the user's own configuration says: nothing that a repository names is run, or fetched in turn."""

_QUIET = [part for setting in _SETTINGS for part in ("-c", setting)]
_OWN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")


def fetch(url: str, rev: str | None, into: Path, environ: Mapping[str, str], timeout: float = TIMEOUT_S) -> str:
    """Check out a revision (by default the remote's HEAD) into a new directory; the hash of its commit."""
    into.mkdir(parents=True)
    git = _Git(url, into, environ, timeout)
    git.run("init", "--quiet", "--template=")
    if not git.tries("fetch", "--quiet", "--depth=1", "--no-tags", "--", url, rev or "HEAD"):
        if rev is None:
            raise git.failed()
        # Servers need not give out an abbreviated or old commit by its hash: with the whole history it can be found.
        if not git.tries("fetch", "--quiet", "--tags", "--", url, "+refs/heads/*:refs/remotes/origin/*"):
            raise git.failed()
        commit = git.commit_of(rev)
    else:
        commit = git.commit_of("FETCH_HEAD")
    if rev is not None and is_commit(rev) and commit != rev:
        raise GitError(public_url(url), f"asked for commit {rev}, but got {commit}")
    git.run("checkout", "--quiet", "--detach", commit)
    return commit


class _Git:
    """git in one directory, with what is left of the time."""

    def __init__(self, url: str, directory: Path, environ: Mapping[str, str], timeout: float) -> None:
        self._url = public_url(url)
        self._secret_url = url
        self._directory = directory
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._error = ""
        self._environ = {key: value for key, value in environ.items() if key not in _OWN}
        self._environ |= {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
            "GIT_CEILING_DIRECTORIES": str(directory.parent),
            "LC_ALL": "C",
        }
        self._environ.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")

    def run(self, *args: str) -> str:
        """What a command prints; it has to succeed."""
        result = self._call(args)
        if result is None:
            raise self.failed()
        return result

    def tries(self, *args: str) -> bool:
        """Whether a command succeeds."""
        return self._call(args) is not None

    def commit_of(self, rev: str) -> str:
        """The commit that a revision means."""
        for name in (rev, f"origin/{rev}"):
            found = self._call(("rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}"))
            if found is not None:
                return found.strip().splitlines()[-1]
        raise GitError(self._url, f"it has no branch, tag or commit '{rev}'")

    def failed(self) -> GitError:
        """The error of the last command that failed."""
        return GitError(self._url, self._error)

    def _call(self, args: tuple[str, ...]) -> str | None:
        try:
            process = subprocess.Popen(
                ["git", *_QUIET, *args],
                cwd=self._directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise GitError(self._url, "the command git is not there; install git") from None
        with process:
            try:
                output, error = process.communicate(timeout=max(0.0, self._deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _end(process)
                raise GitError(self._url, f"it took longer than {self._timeout:g} seconds (in git {args[0]})") from None
            except BaseException:
                _end(process)
                raise
        if process.returncode == 0:
            return output.decode("utf-8", "replace")
        said = error.decode("utf-8", "replace").replace(self._secret_url, self._url)
        self._error = _sentence(said) or f"git {args[0]} failed ({process.returncode})"
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and the helpers it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _sentence(error: str) -> str:
    """What git complained of, in one line."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))]
    return "; ".join(dict.fromkeys(fatal or lines))[:500]
