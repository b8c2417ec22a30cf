"""Spec files of packages that were changed: each has a result that can be printed, and the next one is run as ever."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest

from holdfast.alc.specs.discovery import discover
from holdfast.alc.specs.results import FileResult, TestReport
from holdfast.alc.specs.session import Lane, SpecPlan
from tests.fuzz.fuzzer import MESSAGE_CHARS, Fuzzer
from tests.fuzz.generation import changed_bytes

DEADLINE_S = 0.5

HEALTHY = b'lust.it("works", function() lust.expect(1).to.equal(1) end)'

SPECS = [
    b"""#!/usr/bin/env lua
local demo = require("demo")
local describe, it, expect = lust.describe, lust.it, lust.expect
describe("demo", function()
    lust.before(function() _G.asked = 0 end)
    it("answers", function()
        with_alc({ llm = function(prompt) asked = asked + 1 return "yes " .. prompt end }, function()
            expect(alc.llm("x")).to.equal("yes x")
        end)
        expect(asked).to.be(1)
    end)
    lust.xit("waits", function() error("never") end)
    it("fails with \xe2\x80\xa8 \xc2\x85 and \xff", function() error({ code = 1 }) end)
end)
""",
    b"""
local spy = lust.spy(function(n) return n * 2 end)
lust.it("counts", function()
    for n = 1, 3 do spy(n) end
    lust.expect(#spy).to.equal(3)
    lust.expect(function() error("boom") end).to.fail()
    print("so far", alc.json_encode({ a = { 1, 2 } }))
end)
return lust.get_results()
""",
]

WORDS = [
    *(b"end", b"(", b")", b"nil", b"{}", b"while true do end", b"error(nil)", b"error({})", b"lust.it(nil, nil)"),
    *(b"lust.it({}, 7)", b"lust.get_results = function() return { passed = 'x', failed = -1 } end\n", b"lust = nil\n"),
    *(b"lust.get_results = nil\n", b"coroutine.yield()", b"alc.llm('?')", b"string.rep('x', 1e9)", b"_G.alc = 7\n"),
    *(b"lust.describe('\\xff\\0', function() lust.it('\\n', function() error('\\xed\\xa0\\x80') end) end)\n",),
    b"lust.it('a\xe2\x80\xa8b', function() while true do end end)\n",
]

KNOWN = [
    b"lust.get_results = function() return { passed = 'x', failed = -1 } end",
    b"lust.it('before \xe2\x80\xa8 after', function() while true do end end)",
]
"""Specs that once ended the whole run."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOLDFAST_HOME", "ALC_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("HOLDFAST_PACKAGES_PATH", "ALC_PACKAGES_PATH"):
        monkeypatch.delenv(name, raising=False)
    made = tmp_path / "packages" / "demo"
    (made / "spec").mkdir(parents=True)
    (made / "init.lua").write_text("return { meta = { name = 'demo' } }")
    (made / "spec" / "demo_spec.lua").write_bytes(HEALTHY)
    (made / "spec" / "healthy_spec.lua").write_bytes(HEALTHY)
    return made


def check_result(result: FileResult) -> None:
    """It says what passed and what did not, in numbers and texts that everyone can print."""
    assert min(result.passed, result.failed, result.pending, result.duration_ms) >= 0
    assert result.failed >= len(result.failures) or result.failures == []
    shown = msgspec.json.encode(TestReport(files=[result], duration_ms=0).to_json()).decode()
    assert len(shown) < 20 * MESSAGE_CHARS


@pytest.mark.parametrize("live", [False, True], ids=["mocked", "live"])
def test_a_changed_spec_file_has_a_result_and_harms_no_other(fuzzer: Fuzzer, package: Path, live: bool) -> None:
    specs = discover(package)
    hurt, healthy = specs.files

    with asyncio.Runner() as runner, contextlib.chdir(specs.root):
        lane = Lane(SpecPlan.of(specs, live=live, deadline_s=DEADLINE_S, is_confined=not live))

        async def check(text: bytes) -> None:
            hurt.write_bytes(text)
            check_result(await lane.run(hurt))
            after = await lane.run(healthy)
            assert (after.passed, after.failed) == (1, 0)

        try:
            inputs: st.SearchStrategy[bytes] = changed_bytes(SPECS, words=WORDS)
            fuzzer.run(lambda text: runner.run(check(text)), inputs, examples=30, known=KNOWN)
        finally:
            runner.run(lane.__aexit__(None, None, None))
