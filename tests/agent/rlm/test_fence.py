"""The cell of a reply is found, whatever the reply looks like and however it was split."""

from __future__ import annotations

import random

import pytest

from holdfast.agent.rlm.fence import CellCutter, find_cell, guessed_cell

AFTER = "\nOutput: 42. So the answer is 42."

REPLIES = {
    "plain": ("Look:\n```python\nx = 1\n```", "x = 1"),
    "nothing before": ("```python\nx = 1\n```", "x = 1"),
    "py": ("```py\nx = 1\n```", "x = 1"),
    "repl, in capitals": ("```REPL\nx = 1\n```", "x = 1"),
    "tildes": ("~~~python\nx = 1\n~~~", "x = 1"),
    "four backticks": ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"),
    "a report in a string": (
        '```python\nr = """# T\n```\ncode\n```\n"""\nprint(r)\n```',
        'r = """# T\n```\ncode\n```\n"""\nprint(r)',
    ),
    "an f-string": ("```python\nr = f'''\n```{x}\n'''\n```", "r = f'''\n```{x}\n'''"),
    "quotes in a comment": ('```python\nx = 1  # it\'s """ here\n```', 'x = 1  # it\'s """ here'),
    "triple quotes in a string": ('```python\nx = \'"""\'\n```', 'x = \'"""\''),
    "escaped quotes": ('```python\nx = """a\\"""b\n```\n"""\n```', 'x = """a\\"""b\n```\n"""'),
    "windows lines": ("Look:\r\n```python\r\nx = 1\r\ny = 2\r\n```", "x = 1\ny = 2"),
    "another language first": ('```json\n{"a": 1}\n```\n```python\nx = 1\n```', "x = 1"),
    "indented": ("   ```python\n   if x:\n       y = 1\n   ```", "if x:\n    y = 1"),
}


@pytest.mark.parametrize("name", REPLIES)
def test_any_split_of_a_reply_gives_the_same_cell_and_nothing_after_it(name: str) -> None:
    reply, cell = REPLIES[name]
    chance = random.Random(name)
    for _ in range(200):
        text, cutter = reply + AFTER, CellCutter()
        while text and not cutter.is_closed:
            size = chance.choice((1, 2, 3, 5, 8, 13, len(text)))
            cutter.feed(text[:size])
            text = text[size:]
        cutter.end()
        assert cutter.is_closed
        assert cutter.code == cell
        assert "answer" not in cutter.text
        assert "Output" not in cutter.text


def test_fuzzed_replies_never_raise_and_keep_their_text() -> None:
    chance = random.Random(7)
    parts = [
        "```",
        "```python",
        "~~~",
        "\n",
        "'''",
        '"""',
        "x = 1",
        " ",
        "`",
        "<code>",
        "</code>",
        "\\",
        "#",
        "\r",
        "é",
    ]
    for _ in range(3_000):
        reply = "".join(chance.choice(parts) for _ in range(chance.randrange(25)))
        whole, split = find_cell(reply), CellCutter()
        for char in reply:
            split.feed(char)
        split.end()
        assert (whole.is_closed, whole.code, whole.text) == (split.is_closed, split.code, split.text)
        assert reply.replace("\r", "").startswith(whole.text.replace("\r", ""))
        guessed_cell(reply)


@pytest.mark.parametrize("reply", ["```javascript\nlet x\n```", "```text\nx\n```", "no fence", "`x = 1`", ""])
def test_other_blocks_are_prose(reply: str) -> None:
    found = find_cell(reply)
    assert not found.is_closed
    assert not found.is_open


def test_an_open_cell_says_its_last_line() -> None:
    found = find_cell("```python\nx = 1\ny = (")
    assert found.is_open
    assert found.last_line == "y = ("


@pytest.mark.parametrize("reply", ["Try:\n```\nx = 1\n```\n", "<code>\nx = 1\n</code>"])
def test_code_without_a_label_is_guessed(reply: str) -> None:
    assert guessed_cell(reply) == "x = 1"
