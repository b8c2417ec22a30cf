"""Docstrings in the three usual styles, and in none."""

from __future__ import annotations

from holdfast.agent.tools.docstrings import Docstring


def test_a_plain_docstring_is_the_description() -> None:
    said = Docstring("""Look it up.

    In two paragraphs.
    """)
    assert said.description == "Look it up.\n\nIn two paragraphs."
    assert said.parameters == {}


def test_no_docstring_says_nothing() -> None:
    assert Docstring(None).description == ""


def test_google_style_is_read() -> None:
    said = Docstring("""Look it up.

    More about it.

    Args:
        query: What to look for,
            on two lines.
        limit (int, optional): How many. Note: at most 10.
        *rest: The others.
        plain:

    Returns:
        list: What was found.

    Raises:
        ValueError: never.

    After all sections.
    """)
    assert said.description == "Look it up.\n\nMore about it.\n\nAfter all sections."
    assert said.parameters == {
        "query": "What to look for, on two lines.",
        "limit": "How many. Note: at most 10.",
        "rest": "The others.",
        "plain": "",
    }


def test_numpy_style_is_read() -> None:
    said = Docstring("""Look it up.

    Parameters
    ----------
    query : str
        What to look for,
        on two lines.
    x, y : float, optional
        Where.
    bare
        Without a type.

    Returns
    -------
    list
        What was found.
    """)
    assert said.description == "Look it up."
    assert said.parameters == {
        "query": "What to look for, on two lines.",
        "x": "Where.",
        "y": "Where.",
        "bare": "Without a type.",
    }


def test_rest_style_is_read() -> None:
    said = Docstring("""Look it up.

    :param query: What to look for,
        on two lines.
    :param int limit: How many.
    :type query: str
    :returns: what was found
    :raises ValueError: never
    """)
    assert said.description == "Look it up."
    assert said.parameters == {"query": "What to look for, on two lines.", "limit": "How many."}


def test_words_that_only_look_like_a_section_stay_in_the_text() -> None:
    said = Docstring("""Notes on args: they are kept.

    Parameters are given by name.
        indented: as it is
    """)
    assert said.description == "Notes on args: they are kept.\n\nParameters are given by name.\n    indented: as it is"
    assert said.parameters == {}
