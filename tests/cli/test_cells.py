"""Work in cells from the command line: `run --rlm`, `chat --rlm`, `show --cells`."""

from __future__ import annotations

import json

from tests.cli.chat_helpers import serving
from tests.cli.helpers import Home

COUNT = "Let me count.\n\n```python\nn = data.count('\\n')\nprint('lines:', n)\n```\nand so on"


def test_a_question_about_a_file_takes_one_command(home: Home) -> None:
    (home.folder / "data.csv").write_text("a,b\n" * 1_000)
    with serving(COUNT, "```python\nfinish(f'There are {n} lines.')\n```") as server:
        model = f"{server.url}#m"
        done = home.process("run", "--rlm", "--task", "How many?", "--file", "data.csv", "--model", model, "--id", "q")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("There are 1000 lines.\n")
    assert "│ lines: 1000" in done.stderr
    assert "data (read-only): str, 3.9 KiB: the text of data.csv" in server.requests[0].messages[-1].text
    shown = json.loads(home.process("show", "q", "--cells", "--json").stdout)
    assert [each["code"] for each in shown["cells"]] == [
        "n = data.count('\\n')\nprint('lines:', n)",
        "finish(f'There are {n} lines.')",
    ]
    assert [(each["turn"], each["cell"]) for each in shown["cells"]] == [(1, 1), (1, 2)]
    text = home.process("show", "q", "--cells").stdout
    assert "Turn 1, cell 2" in text
    assert "lines: 1000" in text


def test_a_folder_is_a_dict_of_texts_and_the_session_goes_on_in_chat(home: Home) -> None:
    (home.folder / "docs" / "sub").mkdir(parents=True)
    (home.folder / "docs" / "one.md").write_text("one")
    (home.folder / "docs" / "sub" / "two.md").write_text("two")
    with serving(
        "```python\nnames = sorted(d)\nprint(names)\n```", "Two.", "```python\nprint(names)\n```", "ok"
    ) as server:
        model = f"{server.url}#m"
        first = home.process("chat", "--rlm", "--bind", "d=docs", "--model", model, "--id", "q", "-m", "Which files?")
        again = home.process("chat", "q", "--model", model, "-m", "Again?")
    assert "['one.md', 'sub/two.md']" in first.stderr
    assert again.returncode == 0
    assert "['one.md', 'sub/two.md']" in again.stderr


def test_what_does_not_go_together_is_said(home: Home) -> None:
    for words, why in [
        (["--rlm"], "--rlm needs --task TEXT"),
        (["--rlm", "--task", "x", "panel"], "leave out PROGRAM"),
        (["panel", "--bind", "a=b"], "--bind a: there is no file or folder b"),
        (["--resume", "s", "--bind", "a=b"], "with --resume, only"),
        (["--rlm", "--task", "x", "--bind", "a", "--model", "http://x#m"], "give NAME=PATH"),
        (
            ["--rlm", "--task", "x", "--bind", "a=nowhere", "--model", "http://x#m"],
            "there is no file or folder nowhere",
        ),
    ]:
        done = home.process("run", *words)
        assert done.returncode == 2, words
        assert why in done.stderr


def test_a_strategy_is_given_files_as_parameters_so_that_a_host_can_work_in_cells(home: Home) -> None:
    (home.folder / "log.txt").write_text("ok\nERROR\n" * 500)
    cell = "```python\nfinish(text.count('ERROR'))\n```"
    with serving(cell) as server:
        model = f"{server.url}#m"
        done = home.process("run", "rlm", "--task", "How many?", "--bind", "text=log.txt", "--model", model, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["result"]["value"] == 500


def test_a_reply_that_ran_nothing_ends_its_line(home: Home) -> None:
    with serving("```python\nx = (", "Done.") as server:
        done = home.process("run", "--rlm", "--task", "x", "--model", f"{server.url}#m")
    assert done.stdout == "```python\nx = (\nDone.\n"
