"""A host's questions are the host's: a worker with a model on the same store leaves them to it."""

from __future__ import annotations

from pathlib import Path

from holdfast.agent.runtime import Runtime
from holdfast.core.records import Program
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider
from tests.serve.processes import ECHO, Place


async def test_a_worker_with_a_model_leaves_what_an_mcp_host_was_asked_to_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    provider = ScriptedProvider(["from", "a model"])
    async with place.host() as host:
        asked = await host.call("alc_run", code=ECHO)
        async with Runtime(place.url, provider=provider, model="m-1") as runtime, runtime.work():
            hf = runtime.mount.holdfast
            session = await hf.session(asked["session_id"])
            assert session.started is not None
            assert session.llm == "host"
            program: Program = session.started.program
            other = await soon(hf.start(program, id="any", llm="any"))  # the worker answers this one
            assert other.result == "from a model"
            again = await host.call("alc_continue", session_id=session.id, query_id="q-0", response="one")
            assert again["prompt"] == "second?"
            done = await host.call("alc_continue", session_id=session.id, query_id="q-1", response="two")
            assert done["result"] == "one two"
    assert len(provider.requests) == 2
