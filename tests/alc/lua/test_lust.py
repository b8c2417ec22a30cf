"""The `lust` framework of package specs, on a bare Lua VM: what it counts, what it says, what it reports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lupa.lua54 as lua54
import pytest

import holdfast.alc
import holdfast.programs
from tests.tables import each_row

LUST = Path(holdfast.alc.__file__).parent / "lua" / "runtime" / "lust.lua"

PRELUDE = "local describe, it, expect = lust.describe, lust.it, lust.expect "


class Framework:
    """A VM with `lust` in it, and everything it reported."""

    def __init__(self) -> None:
        self.lua = lua54.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self.reports: list[tuple[str | None, ...]] = []
        host = self.lua.table()
        host[b"report"] = self._report
        host[b"spec_source"] = b"@demo_spec.lua"
        load = self.lua.eval("function(text, name) return assert(load(text, name)) end")
        self._load = load
        self.lua.globals()[b"lust"] = load(LUST.read_bytes(), b"@lust.lua")(host)

    def _report(self, *said: bytes | None) -> None:
        self.reports.append(tuple(None if part is None else part.decode() for part in said))

    def run(self, spec: str) -> dict[str, int]:
        self._load((PRELUDE + spec).encode(), b"@demo_spec.lua")()
        counted = self.lua.eval("lust.get_results()")
        return {name: counted[name.encode()] for name in ("passed", "failed", "pending", "total")}

    def ended(self, kind: str) -> list[str]:
        return [str(said[1]) for said in self.reports if said[0] == kind]

    def message(self) -> str:
        """What the only failure says."""
        [said] = [said for said in self.reports if said[0] == "failed"]
        return str(said[2])

    def position(self) -> str | None:
        [said] = [said for said in self.reports if said[0] == "failed"]
        return said[3] if len(said) > 3 else None

    def global_value(self, name: str) -> Any:
        return self.lua.globals()[name.encode()]


@pytest.fixture
def lust() -> Framework:
    return Framework()


def holds(assertion: str) -> bool:
    """Whether an expectation passes."""
    counted = Framework().run(f"it('one', function() {assertion} end)")
    assert counted["total"] == 1
    return counted["passed"] == 1


def test_tests_are_counted_by_how_they_ended(lust: Framework) -> None:
    counted = lust.run("""
        describe('sums', function()
          it('adds', function() expect(1 + 1).to.equal(2) end)
          it('subtracts', function() expect(3 - 1).to.equal(1) end)
          it('divides')
        end)
    """)
    assert counted == {"passed": 1, "failed": 1, "pending": 1, "total": 3}
    assert lust.ended("passed") == ["sums > adds"]
    assert lust.ended("failed") == ["sums > subtracts"]
    assert lust.ended("pending") == ["sums > divides"]


def test_names_hold_every_group_around_a_test(lust: Framework) -> None:
    lust.run(
        "describe('a', function() describe('b', function() it('c', function() end) end) end) it('d', function() end)"
    )
    assert lust.ended("passed") == ["a > b > c", "d"]


def test_a_start_is_reported_before_the_test_runs(lust: Framework) -> None:
    lust.run("it('first', function() error('stop') end)")
    assert [said[0] for said in lust.reports] == ["start", "failed"]
    assert lust.reports[0][1] == "first"


def test_a_failure_carries_its_message_and_the_line_of_the_spec(lust: Framework) -> None:
    lust.run("\n\nit('one', function()\n  expect(1).to.equal(2)\nend)")
    assert lust.message() == "demo_spec.lua:4: expected 1 to equal 2"
    assert lust.position() == "demo_spec.lua:4"


def test_an_error_deep_in_a_package_still_names_the_line_of_the_spec(lust: Framework) -> None:
    lust.lua.globals()[b"deep"] = lust._load(b"return function() error({ code = 7 }) end", b"@package.lua")()
    lust.run("\nit('one', function()\n  deep()\nend)")
    assert lust.message() == "error value { code = 7 }"
    assert lust.position() == "demo_spec.lua:3"


def test_an_error_in_a_group_is_one_failure_and_the_rest_goes_on(lust: Framework) -> None:
    counted = lust.run("""
        describe('outer', function()
          describe('broken', function()
            it('before', function() end)
            describe('deeper', function() lust.before(function() error('must be gone') end) error('no setup') end)
            it('after', function() end)
          end)
          it('later', function() end)
        end)
        describe('next', function() it('fine', function() end) end)
    """)
    assert counted == {"passed": 4, "failed": 1, "pending": 0, "total": 5}
    assert lust.ended("failed") == ["outer > broken > deeper > (outside any test)"]
    assert lust.ended("passed")[-1] == "next > fine"


def test_hooks_run_around_each_test_of_their_group_and_of_inner_groups(lust: Framework) -> None:
    lust.run("""
        seen = {}
        local function note(text) return function(name) seen[#seen + 1] = text .. ':' .. name end end
        describe('outer', function()
          lust.before(note('before outer')) lust.after(note('after outer'))
          it('one', function() end)
          describe('inner', function()
            lust.before(note('before inner')) lust.after(note('after inner'))
            it('two', function() end)
          end)
          it('three', function() end)
        end)
        it('four', function() end)
    """)
    assert [entry.decode() for entry in lust.global_value("seen").values()] == [
        "before outer:one",
        "after outer:one",
        "before outer:two",
        "before inner:two",
        "after outer:two",
        "after inner:two",
        "before outer:three",
        "after outer:three",
    ]


def test_hooks_registered_outside_any_group_never_run(lust: Framework) -> None:
    counted = lust.run("""
        lust.before(function() error('ran') end) lust.after(function() error('ran') end)
        it('one', function() end)
        describe('group', function() it('two', function() end) end)
    """)
    assert counted["passed"] == 2


def test_a_failing_hook_fails_its_test_only(lust: Framework) -> None:
    counted = lust.run("""
        local broken = true
        describe('group', function()
          lust.before(function() if broken then broken = false error('no setup', 0) end end)
          it('one', function() end)
          it('two', function() end)
        end)
    """)
    assert counted == {"passed": 1, "failed": 1, "pending": 0, "total": 2}
    assert lust.message() == "no setup"


def test_a_failing_after_hook_fails_the_test_it_follows(lust: Framework) -> None:
    lust.run("describe('g', function() lust.after(function() error('left over', 0) end) it('one', function() end) end)")
    assert lust.message() == "in an after hook: left over"


def test_after_hooks_run_when_the_test_failed(lust: Framework) -> None:
    lust.run(
        "describe('g', function() lust.after(function() tidied = true end) it('one', function() error('x') end) end)"
    )
    assert lust.global_value("tidied") is True


def test_pending_leaves_a_running_test_and_elsewhere_adds_one(lust: Framework) -> None:
    counted = lust.run("it('one', function() lust.pending('no time') reached = true end) lust.pending('two')")
    assert counted == {"passed": 0, "failed": 0, "pending": 2, "total": 2}
    assert lust.global_value("reached") is None
    assert lust.reports[1][:3] == ("pending", "one", "no time")


@each_row(
    "assertion",
    [
        "expect(1).to.equal(1.0)",
        "expect('a').to.equal('a')",
        "expect(nil).to.equal(nil)",
        "expect(math.huge).to.equal(math.huge)",
        "expect({1, {x = 'y'}}).to.equal({1, {x = 'y'}})",
        "expect({}).to.equal(setmetatable({}, {}))",
        "expect({1.05}).to.equal({1}, 0.1)",
        "expect(0.1 + 0.2).to.equal(0.3, 1e-12)",
        "local t = {} t.t = t local u = {} u.u, u.t = nil, u expect(t).to.equal(u)",
        "expect(1).to_not.equal('1')",
        "expect(0.1 + 0.2).to_not.equal(0.3)",
        "expect(0/0).to_not.equal(0/0)",
        "expect({1, 2}).to_not.equal({1})",
        "expect({1}).to_not.equal({1, 2})",
        "expect(math.maxinteger).to_not.equal(math.mininteger, 2)",
        "expect(1).to.be(1)",
        "expect({}).to_not.be({})",
        "expect(1).to.be.a('number')",
        "expect(print).to.be.a('function')",
        "expect({}).to.be.an('table')",
        "expect(1).to_not.be.a('string')",
        "local C = {} C.__index = C expect(setmetatable({}, C)).to.be.a(C)",
        "local B = {} B.__index = B local C = setmetatable({}, B) C.__index = C expect(setmetatable({}, C)).to.be.a(B)",
        "expect({}).to_not.be.a({})",
        "expect(false).to.exist()",
        "expect(nil).to_not.exist()",
        "expect(0).to.be.truthy()",
        "expect(nil).to_not.be.truthy()",
        "expect(false).to.be.falsy()",
        "expect('').to_not.be.falsy()",
        "expect({'a', 'b'}).to.have('b')",
        "expect({x = 'b'}).to.have('b')",
        "expect({'a'}).to_not.have('b')",
        "expect(function() error('x') end).to.fail()",
        "expect(function() end).to_not.fail()",
        "expect(function() error('bad thing') end).to.fail.with('bad%s')",
        "expect(function() error('bad thing') end).to_not.fail.with('good')",
        "expect(function() end).to_not.fail.with('good')",
        "expect('abc123').to.match('%a+%d+')",
        "expect(42).to.match('4')",
        "expect('abc').to_not.match('%d')",
    ],
)
def test_an_expectation_that_is_true_passes_and_its_negation_fails(assertion: str) -> None:
    assert holds(assertion)
    negated = assertion.replace(".to_not.", ".to!.").replace(".to.", ".to_not.").replace(".to!.", ".to.")
    assert not holds(negated)


@each_row(
    "assertion",
    [
        "expect('no table').to_not.have('b')",
        "expect('no function').to.fail()",
        "expect(1).to.be.a(true)",
        "expect(1).to.be.wonderful()",
        "expect(1).be(1)",
        "expect(1).to()",
    ],
)
def test_an_expectation_that_makes_no_sense_fails(assertion: str) -> None:
    assert not holds(assertion)


@pytest.mark.parametrize(
    ("assertion", "said"),
    [
        ("expect('a').to.equal(1)", 'expected "a" to equal 1 (a string and a number)'),
        ("expect({1, b = {2}}).to.equal({})", "expected { 1, b = { 2 } } to equal {}"),
        ("expect(1).to.equal(2, 0.5)", "expected 1 to equal 2 within 0.5"),
        ("expect(1).to.be.wonderful()", "\"wonderful\" cannot follow 'be'; what can: a, an, truthy, falsy"),
        ("expect(print).to.be(1)", "expected a function to be 1"),
        ("local t = {} t.t = t expect(t).to.be(1)", "expected { t = { itself } } to be 1"),
        ("expect(function() error('bad', 0) end).to_not.fail()", "expected the function not to fail, it raised: bad"),
        ("expect(nil).to.exist()", "expected a value, got nil"),
    ],
)
def test_a_failed_expectation_says_what_was_and_what_was_wanted(lust: Framework, assertion: str, said: str) -> None:
    lust.run(f"it('one', function() {assertion} end)")
    assert lust.message() == f"demo_spec.lua:1: {said}"


def test_messages_hold_no_addresses_and_stay_short(lust: Framework) -> None:
    lust.run("local big = {} for i = 1, 1000 do big[i] = {} end it('one', function() expect(big).to.be(1) end)")
    assert not re.search("0x", lust.message())
    assert len(lust.message()) < 600


def test_specs_add_words_of_their_own(lust: Framework) -> None:
    counted = lust.run("""
        lust.paths.empty = { test = function(v) return next(v) == nil, 'not empty!', 'empty!' end }
        table.insert(lust.paths.be, 'empty')
        it('one', function() expect({}).to.be.empty() end)
        it('two', function() expect({}).to_not.be.empty() end)
    """)
    assert counted["passed"] == 1
    assert lust.message().endswith(": empty!")


def test_a_spy_records_arguments_and_calls_through(lust: Framework) -> None:
    counted = lust.run("""
        it('a function', function()
          local spy = lust.spy(function(x) return x * 2 end)
          expect(spy(4)).to.equal(8)
          expect(spy).to.equal({ { 4 } })
        end)
        it('a method', function()
          local object = { double = function(x) return x * 2 end }
          local spy = lust.spy(object, 'double', function() object.double(3) end)
          expect(object.double(5)).to.equal(10)
          expect(spy).to.equal({ { 3 }, { 5 } })
        end)
        it('nothing', function() expect(lust.spy()(1)).to.equal(nil) end)
    """)
    assert counted == {"passed": 3, "failed": 0, "pending": 0, "total": 3}


def test_results_list_each_test_with_its_group(lust: Framework) -> None:
    lust.run("describe('g', function() it('one', function() end) it('two', function() error('no', 0) end) end)")
    rows = [dict(row.items()) for row in lust.lua.eval("lust.get_results().tests").values()]
    assert [(row[b"suite"], row[b"name"], row[b"passed"], row.get(b"error")) for row in rows] == [
        (b"g", b"one", True, None),
        (b"g", b"two", False, b"no"),
    ]


def test_reset_forgets_everything(lust: Framework) -> None:
    counted = lust.run("it('one', function() error('x') end) lust.reset() it('two', function() end)")
    assert counted == {"passed": 1, "failed": 0, "pending": 0, "total": 1}


def test_the_old_names_of_the_api_are_there(lust: Framework) -> None:
    counted = lust.run(
        "lust.nocolor().test('one', function() end) it('level', function() expect(lust.level).to.be(0) end)"
    )
    assert counted["passed"] == 2
    assert lust.lua.eval("lust.passes") == 2
    assert lust.lua.eval("lust.errors") == 0


def test_a_test_may_pause_inside_a_test_and_inside_an_expectation(lust: Framework) -> None:
    lust.run("""
        paused = coroutine.wrap(function()
          describe('g', function()
            lust.before(function() coroutine.yield('before') end)
            it('one', function()
              expect(function() error(coroutine.yield('inside')) end).to.fail.with('bad')
            end)
          end)
          return 'end'
        end)
        steps = { paused(), paused(), paused('bad') }
    """)
    assert list(lust.global_value("steps").values()) == [b"before", b"inside", b"end"]
    assert lust.ended("passed") == ["g > one"]
