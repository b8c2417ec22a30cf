"""Running the specs of packages: what is found, what is counted, what a broken file does to the others, live mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.specs.discovery import discover
from holdfast.alc.specs.errors import NoSpecsError
from holdfast.alc.specs.results import FileResult, TestReport
from holdfast.alc.specs.runner import run_specs
from holdfast.testing.patience import patience

COLLECTION = Path(__file__).parents[1] / "fixtures" / "lua_collection"

PASSES = "lust.it('works', function() end)"


@pytest.fixture(autouse=True)
def _no_packages_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOLDFAST_PACKAGES_PATH", "ALC_PACKAGES_PATH", "ALC_SHAPE_CHECK", "HOLDFAST_SHAPE_CHECK"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOLDFAST_HOME", "ALC_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


class Packages:
    """A directory of packages, written file by file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def spec(self, text: str, name: str = "demo") -> None:
        """A package with one spec file."""
        self.write(f"{name}/init.lua", f"return {{ meta = {{ name = '{name}' }} }}")
        self.write(f"{name}/spec/{name}_spec.lua", text)

    async def run(self, package: str = "", **options: Any) -> TestReport:
        return await run_specs(discover(self.root / package), **{"jobs": 2, "deadline_s": 20, **options})


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(tmp_path / "collection")


def only(report: TestReport) -> FileResult:
    [file] = report.files
    return file


def counts(report: TestReport) -> tuple[int, int, int]:
    return report.passed, report.failed, report.pending


# --- finding -------------------------------------------------------------------------------------


def names(specs: Any) -> list[str]:
    return [specs.name(file) for file in specs.files]


def test_a_collection_has_the_specs_of_its_packages_and_its_own_tests(packages: Packages) -> None:
    for path in (
        "b/init.lua",
        "b/spec/b_spec.lua",
        "a/init.lua",
        "a/spec/one_spec.lua",
        "a/spec/helper.lua",
        "a/spec/inner/deep_spec.lua",
        "a/tests/test_a.lua",
        "tests/test_all.lua",
        "tests/x/y/test_deep.lua",
        "tests/x/not_a_test.lua",
        ".hidden/spec/h_spec.lua",
    ):
        packages.write(path, PASSES)
    specs = discover(packages.root)
    assert names(specs) == [
        "a/spec/inner/deep_spec.lua",
        "a/spec/one_spec.lua",
        "a/tests/test_a.lua",
        "b/spec/b_spec.lua",
        "tests/test_all.lua",
        "tests/x/y/test_deep.lua",
    ]
    assert specs.search_path == [packages.root]


def test_a_package_has_its_own_specs_and_its_root_is_the_directory_around_it(packages: Packages) -> None:
    packages.spec(PASSES, "one")
    packages.spec(PASSES, "two")
    specs = discover(packages.root / "one")
    assert names(specs) == ["one/spec/one_spec.lua"]
    assert specs.search_path == [packages.root, packages.root / "one"]


def test_a_spec_that_is_a_link_to_a_test_is_run_in_both_places(packages: Packages) -> None:
    packages.write("tests/test_a.lua", PASSES)
    packages.write("a/init.lua", "return {}")
    (packages.root / "a" / "spec").mkdir()
    (packages.root / "a" / "spec" / "a_spec.lua").symlink_to("../../tests/test_a.lua")
    assert names(discover(packages.root)) == ["a/spec/a_spec.lua", "tests/test_a.lua"]


def test_links_that_lead_in_a_circle_are_not_followed(packages: Packages) -> None:
    packages.write("tests/test_a.lua", PASSES)
    (packages.root / "tests" / "again").symlink_to(packages.root / "tests")
    assert names(discover(packages.root)) == ["tests/test_a.lua"]


def test_specs_in_folders_below_spec_are_found(packages: Packages) -> None:
    deep = packages.root / "deep"
    (deep / "spec" / "unit" / "inner").mkdir(parents=True)
    (deep / "init.lua").write_text("return {}")
    for name in ("spec/top_spec.lua", "spec/unit/a_spec.lua", "spec/unit/inner/b_spec.lua", "spec/unit/helper.lua"):
        (deep / name).write_text("")
    found = discover(deep)
    assert [found.name(each) for each in found.files] == [
        "deep/spec/top_spec.lua",
        "deep/spec/unit/a_spec.lua",
        "deep/spec/unit/inner/b_spec.lua",
    ]


def test_a_filter_keeps_files_by_a_part_of_their_path(packages: Packages) -> None:
    packages.spec(PASSES, "one")
    packages.spec(PASSES, "two")
    assert names(discover(packages.root, "two")) == ["two/spec/two_spec.lua"]
    with pytest.raises(NoSpecsError, match="none of its 2 spec files has 'three' in its path"):
        discover(packages.root, "three")


def test_a_directory_without_specs_is_an_error_that_says_what_was_looked_for(packages: Packages) -> None:
    packages.write("a/init.lua", "return {}")
    with pytest.raises(NoSpecsError, match=r"spec/\*\*/\*_spec.lua and tests/\*\*/test_\*.lua"):
        discover(packages.root)
    with pytest.raises(NoSpecsError, match="no such directory"):
        discover(packages.root / "nowhere")
    with pytest.raises(NoSpecsError, match="a file; give the directory"):
        discover(packages.root / "a" / "init.lua")


# --- running -------------------------------------------------------------------------------------


async def test_a_collection_of_usual_specs_passes_as_it_is() -> None:
    report = await run_specs(discover(COLLECTION), jobs=2)
    assert [failure for file in report.files for failure in file.failures] == []
    assert counts(report) == (38, 0, 1)
    assert "live" not in report.to_json()


async def test_the_same_collection_passes_live_and_its_questions_go_through_the_engine() -> None:
    report = await run_specs(discover(COLLECTION), jobs=2, live=True)
    assert [failure for file in report.files for failure in file.failures] == []
    assert counts(report) == (38, 0, 1)
    asked = {file.path: (file.live.pauses, file.live.llm_calls) for file in report.files if file.live is not None}
    assert asked == {
        "keeper/spec/keeper_spec.lua": (3, 3),
        "odd_places/spec/odd_places_spec.lua": (4, 4),
        "tests/deeper/test_require.lua": (0, 0),
        "tests/test_collection.lua": (1, 1),
        "tracer/spec/tracer_spec.lua": (4, 5),
        "two_drafts/spec/two_drafts_spec.lua": (5, 8),
    }
    assert report.to_json()["live"] == {"pauses": 17, "llm_calls": 21}


async def test_the_result_has_counts_files_and_failures(packages: Packages) -> None:
    packages.spec("""
        lust.describe('sums', function()
          lust.it('adds', function() lust.expect(1 + 1).to.equal(2) end)
          lust.it('guesses', function() lust.expect(1).to.equal(2) end)
          lust.it('later')
        end)
    """)
    seen: list[str] = []
    report = await packages.run(on_file=lambda file: seen.append(file.path))
    told = report.to_json()
    assert seen == ["demo/spec/demo_spec.lua"]
    assert isinstance(told.pop("duration_ms"), int)
    assert isinstance(told["spec_files"][0].pop("duration_ms"), int)
    assert told == {
        "passed": 1,
        "failed": 1,
        "pending": 1,
        "total": 3,
        "spec_files": [
            {
                "path": "demo/spec/demo_spec.lua",
                "passed": 1,
                "failed": 1,
                "pending": 1,
                "total": 3,
                "failures": [
                    {
                        "name": "sums > guesses",
                        "message": "demo/spec/demo_spec.lua:4: expected 1 to equal 2",
                        "position": "demo/spec/demo_spec.lua:4",
                    }
                ],
            }
        ],
    }


async def test_a_file_that_cannot_be_loaded_is_one_failure(packages: Packages) -> None:
    packages.spec("lust.it('never', function( end)")
    file = only(await packages.run())
    assert (file.passed, file.failed) == (0, 1)
    assert file.failures[0].name == "(the file itself)"
    assert file.failures[0].message.startswith("demo/spec/demo_spec.lua:1: ")


async def test_an_error_between_tests_is_one_failure_and_what_passed_counts(packages: Packages) -> None:
    packages.spec("lust.it('works', function() end)\nerror('no more')")
    file = only(await packages.run())
    assert (file.passed, file.failed) == (1, 1)
    assert file.failures[0].message == "demo/spec/demo_spec.lua:2: no more"


async def test_each_file_has_a_vm_of_its_own(packages: Packages) -> None:
    for name in ("one", "two", "three"):
        packages.spec(
            """
            lust.it('is first', function()
              lust.expect(leaked).to.equal(nil)
              lust.expect(alc.state.get('leaked')).to.equal(nil)
              leaked = true
              alc.state.set('leaked', true)
            end)
            """,
            name,
        )
    assert counts(await packages.run(jobs=1)) == (3, 0, 0)


HANGS = "lust.it('works', function() end) lust.it('hangs', function() while true do end end)"
HANGS_PROTECTED = "lust.it('hangs', function() while true do pcall(function() while true do end end) end end)"
HANGS_IN_C = "lust.it('stuck', function() os.execute('sleep 5') end)"


async def test_files_that_hang_are_one_failure_each_and_the_others_go_on(packages: Packages) -> None:
    packages.spec(HANGS, "a")
    packages.spec(HANGS_PROTECTED, "b")
    packages.spec(HANGS_IN_C, "c")
    packages.spec(PASSES, "d")
    report = await packages.run(deadline_s=1)
    a, b, c, d = report.files
    why = "the file did not finish within 1 s, and was stopped"
    assert [(each.name, each.message) for each in a.failures] == [("hangs", why)]
    assert a.passed == 1
    assert [(each.name, each.message) for each in b.failures] == [("hangs", why)]
    assert [(each.name, each.message) for each in c.failures] == [("stuck", why)]
    assert (d.passed, d.failed) == (1, 0)
    assert counts(report) == (2, 3, 0)


async def test_a_file_that_kills_its_process_is_one_failure_and_the_others_go_on(packages: Packages) -> None:
    packages.spec("lust.it('kills', function() os.execute('kill -9 $PPID') end)", "a")
    packages.spec(PASSES, "b")
    report = await packages.run(jobs=1)
    assert [(each.name, each.message) for each in report.files[0].failures] == [
        ("kills", "the process that ran the file died, each time that it was run")
    ]
    assert counts(report) == (1, 1, 0)


async def test_a_live_file_that_asks_for_ever_ends_too(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.alc.specs.session._GRACE_S", 0.5)
    packages.write("chatty/init.lua", "return { run = function() while true do alc.llm('again?') end end }")
    packages.write(
        "chatty/spec/chatty_spec.lua",
        "lust.it('asks', function() _G.alc = { llm = function() return 'yes' end } require('chatty').run() end)",
    )
    packages.spec(PASSES, "later")
    deadline_s = patience(1.0)  # the second file must end within it, however busy the machine is
    report = await packages.run(live=True, jobs=1, deadline_s=deadline_s)
    assert report.files[0].failures[0].message == f"the file did not finish within {deadline_s:g} s, and was stopped"
    assert counts(report) == (1, 1, 0)


async def test_what_a_file_printed_is_kept_if_something_failed(packages: Packages) -> None:
    packages.spec("print('one', 2) io.write('three\\n') lust.it('fails', function() error('x') end)", "a")
    packages.spec("print('quiet') " + PASSES, "b")
    a, b = (await packages.run()).files
    assert a.output == ["one\t2", "three"]
    assert b.output == []


async def test_what_specs_require_comes_from_their_root_before_any_other_place(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Packages(tmp_path / "installed")
    other.spec(PASSES, "demo")
    other.write("far/init.lua", "return { where = 'installed' }")
    monkeypatch.setenv("HOLDFAST_PACKAGES_PATH", str(other.root))
    packages.write("alc.local.toml", f'[packages]\ndemo = {{ path = "{other.root}/demo" }}\n')
    packages.write("alc.toml", "[packages]\n")
    packages.write("demo/init.lua", "return { where = 'here' }")
    packages.write(
        "demo/spec/demo_spec.lua",
        """
        lust.it('is here', function() lust.expect(require('demo').where).to.equal('here') end)
        lust.it('finds others', function() lust.expect(require('far').where).to.equal('installed') end)
        """,
    )
    for live in (False, True):
        report = await packages.run(live=live)
        assert [failure.message for failure in only(report).failures] == []
        assert counts(report) == (2, 0, 0)


async def test_a_package_alone_finds_its_neighbours_and_its_own_files(packages: Packages) -> None:
    packages.write("neighbour/init.lua", "return 'next door'")
    packages.write("demo/init.lua", "return {}")
    packages.write("demo/own.lua", "return 'own'")
    packages.write(
        "demo/spec/demo_spec.lua",
        f"""
        lust.it('neighbour', function() lust.expect(require('neighbour')).to.equal('next door') end)
        lust.it('own', function() lust.expect(require('demo.own')).to.equal(require('own')) end)
        lust.it('PWD', function() lust.expect(os.getenv('PWD')).to.equal('{packages.root}') end)
        """,
    )
    assert counts(await packages.run("demo")) == (3, 0, 0)


async def test_cards_of_a_test_are_kept_for_that_file_only(packages: Packages, tmp_path: Path) -> None:
    make = "alc.card.create({ pkg = { name = 'demo' } })"
    for name in ("one", "two"):
        packages.spec(
            f"lust.it('one', function() {make} lust.expect(#alc.card.list({{ pkg = 'demo' }})).to.equal(1) end)",
            name,
        )
    report = await packages.run(jobs=1)
    assert [failure.message for file in report.files for failure in file.failures] == []
    assert counts(report) == (2, 0, 0)
    assert not (tmp_path / "home").exists()


async def test_errors_name_the_same_places_live_and_not(packages: Packages) -> None:
    packages.write("demo/init.lua", "return { run = function() error('bad') end }")
    packages.write("demo/spec/demo_spec.lua", "lust.it('fails', function() require('demo').run() end)")
    told = [only(await packages.run(live=live)).failures for live in (False, True)]
    assert told[0] == told[1]
    assert told[0][0].message == "demo/init.lua:1: bad"
    assert told[0][0].position == "demo/spec/demo_spec.lua:1"


async def test_a_live_answer_is_what_came_through_the_engine(packages: Packages) -> None:
    """The mock is asked once for each question, in the order of the questions."""
    packages.write(
        "demo/init.lua",
        "return { run = function() return alc.llm('a'), alc.llm_batch({ { prompt = 'b' }, { prompt = 'c' } }) end }",
    )
    packages.write(
        "demo/spec/demo_spec.lua",
        """
        lust.it('asks', function()
          local asked = {}
          local function answer(prompt) asked[#asked + 1] = prompt return '<' .. prompt .. '>' end
          _G.alc = { llm = answer, llm_batch = function(items)
            local answers = {}
            for i, item in ipairs(items) do answers[i] = answer(item.prompt) end
            return answers
          end }
          local one, both = require('demo').run()
          lust.expect(one).to.equal('<a>')
          lust.expect(both).to.equal({ '<b>', '<c>' })
          lust.expect(asked).to.equal({ 'a', 'b', 'c' })
        end)
        """,
    )
    report = await packages.run(live=True)
    assert counts(report) == (1, 0, 0)
    assert report.to_json()["live"] == {"pauses": 2, "llm_calls": 3}


async def test_a_mock_of_llm_each_says_which_questions_fail_live_too(packages: Packages) -> None:
    packages.write(
        "demo/init.lua",
        "return { run = function() return alc.llm_each({ { prompt = 'a' }, { prompt = 'b' } }) end }",
    )
    packages.write(
        "demo/spec/demo_spec.lua",
        """
        lust.it('loses one', function()
          with_alc({ llm_each = function(items) return { '<' .. items[1].prompt .. '>', false } end }, function()
            lust.expect(require('demo').run()).to.equal({ '<a>', false })
          end)
        end)
        lust.it('has no mock', function() require('demo').run() end)
        """,
    )
    plain, live = await packages.run(), await packages.run(live=True)
    for report in (plain, live):
        assert counts(report) == (1, 1, 0)
        assert "mock required: alc.llm_each" in only(report).failures[0].message
    assert live.to_json()["live"] == {"pauses": 1, "llm_calls": 2}


async def test_a_test_whose_name_has_a_line_separator_is_named_when_its_file_is_stopped(packages: Packages) -> None:
    packages.spec("lust.it('fine', function() end)\nlust.it('one\u2028two', function() while true do end end)")
    file = only(await packages.run(deadline_s=1))
    assert (file.passed, file.failed) == (1, 1)
    assert file.failures[0].name == "one\u2028two"
    assert "did not finish" in file.failures[0].message


@pytest.mark.parametrize("results", ["{ passed = 'x', failed = -1 }", "{}", "{ passed = 1, failed = 0 }"])
async def test_a_file_that_replaces_the_results_fails_and_the_others_are_run(packages: Packages, results: str) -> None:
    packages.spec(f"lust.get_results = function() return {results} end", "changed")
    packages.spec(PASSES, "healthy")
    report = await packages.run()
    assert counts(report) == (1, 1, 0)
    assert "cannot be read" in report.files[0].failures[0].message
