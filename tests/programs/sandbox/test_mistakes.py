"""What authors get wrong is told in words that they can act on, where it happens; and what a spent budget refuses."""

from __future__ import annotations

from tests.programs.sandbox.helpers import broken, code, converse, engine, failed, result, run
from tests.tables import each_row

# --- mistakes ----------------------------------------------------------------------------------------------


async def test_an_unknown_name_is_told_with_the_one_that_was_meant() -> None:
    source = "said = []\nfor call in ('lmm(1)', 'llm_asink(1)', 'frobnicate()'):\n    try:\n        eval(call)\n"
    said = await run(f"{source}    except NameError as error:\n        said.append(str(error))\nsaid")
    assert said == [
        "name 'lmm' is not defined; did you mean 'llm'?",
        "name 'llm_asink' is not defined; did you mean 'llm_async'?",
        "name 'frobnicate' is not defined",
    ]


@each_row(
    ("call", "words"),
    [
        ("llm()", "llm: missing a required argument: 'prompt'"),
        ("llm(5)", "llm: prompt must be str, got int"),
        ("llm('p', 's')", "llm: too many positional arguments"),
        ("llm('p', max_tokens='many')", "llm: Expected `int`, got `str`"),
        ("llm('p', system=5)", "llm: Expected `str | null`, got `int`"),
        ("llm_batch('abc')", "llm_batch: items must be a list of prompts or dicts, got str"),
        ("llm_batch([1])", "llm_batch: item 1 must be a prompt, or a dict with the key 'prompt'"),
        ("ask('p', choices=5)", "'int' object is not iterable"),
        ("ask('p', choices=[5])", "ask: Expected `str`, got `int`"),
        ("tool(5)", "tool: name must be str, got int"),
        ("child(['x'])", "child: strategy must be str, got list"),
        ("fork('cot', {})", "fork: strategies must be a list of names, and not empty"),
        ("log('m', level=3)", "log: level must be str, got int"),
        ("state.get(3)", "state: key must be str, got int"),
        ("now(1)", "now: too many positional arguments"),
    ],
)
async def test_a_call_with_wrong_arguments_is_a_type_error_that_says_which(call: str, words: str) -> None:
    said = await run(f"try:\n    eval({call!r})\nexcept TypeError as error:\n    said = str(error)\nsaid")
    assert words in said


@each_row(
    ("call", "words"),
    [
        ("sleep(-1)", "sleep: seconds must be a number, 0 or more"),
        ("sleep(float('nan'))", "sleep: seconds must be a number"),
        ("sleep(10**400)", "delay_ms must lie between"),
        ("llm('p', max_tokens=0)", "max_tokens must be at least 1"),
        ("llm('p', timeout_ms=-5)", "timeout_ms must lie between"),
        ("fork(['cot'], {}, on_error='panic')", "fork: on_error must be 'skip' or 'abort', got 'panic'"),
        ("tool('holdfast.state', op='list')", "belong to Holdfast"),
        ("llm('p', x=2**64)", "an integer past 64 bits"),
    ],
)
async def test_a_call_with_impossible_arguments_is_a_value_error_that_says_why(call: str, words: str) -> None:
    said = await run(f"try:\n    eval({call!r})\nexcept ValueError as error:\n    said = str(error)\nsaid")
    assert words in said


async def test_a_question_inside_a_key_function_is_explained() -> None:
    end = await broken("sorted(['b', 'a'], key=lambda item: llm(item))")
    assert end.error_kind == "NotImplementedError"
    assert "llm(…) cannot be called here" in end.error
    assert "strategy.py:1" in end.error


# --- budgets -----------------------------------------------------------------------------------------------


async def test_a_spent_budget_is_told_to_plain_and_awaited_calls_and_what_was_refused_counts_nothing() -> None:
    source = """
        import asyncio
        async def run(ctx):
            said = []
            try:
                await asyncio.gather(llm_async("a"), llm_async("b"), llm_async("c"))
            except RuntimeError as error:
                said.append(str(error))
            said.append(llm("d"))
            try:
                llm_batch(["e", "f"])
            except RuntimeError as error:
                said.append(str(error))
            said.append(await llm_async("g"))
            try:
                llm("h")
            except RuntimeError as error:
                said.append(str(error))
            return [said, budget_remaining(), budget_check()]
    """
    async with engine() as hf:
        pauses, event = await converse(hf, await hf.start(code(source), budget={"max_llm_calls": 2}))
    said, left, has_left = result(event)
    assert pauses == [["d"], ["g"]]
    assert [line.startswith("budget_exceeded: max_llm_calls") for line in said] == [True, False, True, False, True]
    assert said[1::2] == ["<d>", "<g>"]
    assert (left["llm_calls"], has_left) == (0, False)


async def test_a_session_without_budget_says_so() -> None:
    assert await run("[budget_remaining(), budget_check()]") == [None, True]


async def test_a_spent_budget_that_is_not_caught_ends_the_session() -> None:
    async with engine() as hf:
        end = failed(await hf.start(code("llm_batch(['a', 'b'])"), budget={"max_llm_calls": 1}))
    assert end.error.startswith("RuntimeError: budget_exceeded: max_llm_calls (1) would be passed")
