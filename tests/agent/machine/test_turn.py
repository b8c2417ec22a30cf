"""The turn machine alone: every outcome, every limit, and that what is written down waits for the same again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.machine.messages import ContentBlock, ReasoningBlock, TextBlock, ToolUseBlock
from holdfast.agent.machine.turn import (
    FINISH_TOOL,
    LAST_CALL,
    CallModel,
    CallTools,
    Effect,
    EndTurn,
    FrameSwitchOutcome,
    MessageOutcome,
    RecordedReply,
    RunCell,
    StoppedOutcome,
    ToolCallOutcome,
    ToolValueOutcome,
    Turn,
    ValueOutcome,
    reply_of,
)
from holdfast.agent.machine.turn_limits import DEFAULT_ITERATIONS, DEFAULT_NO_PROGRESS, Limits
from holdfast.core.queries import Failure
from tests.tables import each_row


def turn(**limits: Any) -> Turn:
    return Turn(id="t-1", began_at=1_000, limits=Limits(**limits))


def says(*content: ContentBlock | str, stop: Any = "end") -> RecordedReply:
    return RecordedReply(content=[TextBlock(each) if isinstance(each, str) else each for each in content], stop=stop)


def calls(*names: str) -> RecordedReply:
    return says(*(ToolUseBlock(f"c-{n}", name, {}) for n, name in enumerate(names)), stop="tool_use")


def outcome(effect: Effect) -> Any:
    assert isinstance(effect, EndTurn), effect
    return effect.outcome


def done() -> list[ToolCallOutcome]:
    return [ToolCallOutcome(content="x")]


# --- the ways through -----------------------------------------------------------------------------------


def test_a_turn_begins_with_the_model() -> None:
    assert turn().effect == CallModel(1)


def test_a_reply_without_calls_finishes_the_turn_with_its_message() -> None:
    assert outcome(turn().replied(says("Hello"), 1_001)) == MessageOutcome()


def test_a_reply_with_calls_asks_for_all_of_them_in_their_order_and_then_for_the_model_again() -> None:
    machine = turn()
    assert machine.replied(calls("b", "a"), 1_001) == CallTools(
        [ToolUseBlock("c-0", "b", {}), ToolUseBlock("c-1", "a", {})]
    )
    assert machine.tools_done([ToolCallOutcome(content=1), ToolCallOutcome(content=2)], 1_002) == CallModel(2)
    assert outcome(machine.replied(says("done"), 1_003)) == MessageOutcome()
    assert machine.spent.tool_calls == 2


def test_calls_count_more_than_the_reason_for_which_a_model_stopped() -> None:
    reply = msgspec.structs.replace(calls("a"), stop="length")
    assert isinstance(turn().replied(reply, 1_001), CallTools)


@each_row("reply", [says("", stop="end"), says(), says(ReasoningBlock("hm")), says(ReasoningBlock("hm"), "")])
def test_a_reply_that_says_nothing_leads_to_the_model_again(reply: RecordedReply) -> None:
    assert turn().replied(reply, 1_001) == CallModel(2)


def test_asking_for_the_effect_again_gives_the_same() -> None:
    machine = turn()
    effect = machine.replied(calls("a"), 1_001)
    assert machine.effect == machine.effect == effect


# --- outcomes -------------------------------------------------------------------------------------------


def test_a_tool_can_end_the_turn_with_a_value() -> None:
    machine = turn()
    machine.replied(calls("look", "submit"), 1_001)
    done = machine.tools_done([ToolCallOutcome(content="seen"), ToolCallOutcome(content="taken", finish=None)], 1_002)
    assert outcome(done) == ToolValueOutcome("submit", None)


def test_the_value_that_a_model_submits_is_the_turns_own() -> None:
    machine = turn()
    machine.replied(calls(FINISH_TOOL), 1_001)
    assert outcome(machine.tools_done([ToolCallOutcome(content="taken", finish={"n": 1})], 1_002)) == ValueOutcome(
        {"n": 1}
    )


def test_a_tool_can_switch_to_a_new_frame() -> None:
    machine = turn()
    machine.replied(calls("handover"), 1_001)
    switch = FrameSwitchOutcome("second", "go on with the report")
    assert outcome(machine.tools_done([ToolCallOutcome(content={}, frame=switch)], 1_002)) == switch


def test_a_tool_whose_failure_stops_the_turn_is_named_with_what_it_said() -> None:
    machine = turn()
    machine.replied(calls("pay"), 1_001)
    stopped = outcome(machine.tools_done([ToolCallOutcome(content={"error": "no"}, is_error=True, stops=True)], 1_002))
    assert (stopped.reason, stopped.tool, stopped.value) == ("tool_failure", "pay", {"error": "no"})


def test_a_failure_of_a_tool_is_otherwise_for_the_model_to_read() -> None:
    machine = turn()
    machine.replied(calls("pay"), 1_001)
    assert machine.tools_done([ToolCallOutcome(content={"error": "no"}, is_error=True)], 1_002) == CallModel(2)


def test_of_several_endings_the_first_in_the_order_of_the_calls_counts() -> None:
    machine = turn()
    machine.replied(calls("a", "b"), 1_001)
    both = [ToolCallOutcome(content=1, finish="first"), ToolCallOutcome(content=2, finish="second")]
    assert outcome(machine.tools_done(both, 1_002)) == ToolValueOutcome("a", "first")


def test_a_reply_that_met_the_models_token_limit_is_incomplete() -> None:
    assert outcome(turn().replied(says("The answer is", stop="length"), 1_001)).reason == "incomplete"


@pytest.mark.parametrize("wants_value", [False, True])
def test_a_reply_that_was_refused_or_filtered_is_no_message(wants_value: bool) -> None:
    machine = Turn(id="t-1", began_at=1_000, wants_value=wants_value)
    assert outcome(machine.replied(says("The recipe is", stop="refusal"), 1_001)).reason == "refused"


def test_a_provider_that_fails_stops_the_turn_with_its_words() -> None:
    assert outcome(turn().failed(Failure("no such model", "other"))) == StoppedOutcome(
        "provider_error", "no such model"
    )


def test_a_turn_can_be_cancelled_while_the_model_is_asked_and_while_tools_run() -> None:
    assert outcome(turn().failed(Failure("enough", "cancelled"))) == StoppedOutcome("cancelled", "enough")
    machine = turn()
    machine.replied(calls("a"), 1_001)
    assert outcome(machine.stopped(Failure("enough", "cancelled"))) == StoppedOutcome("cancelled", "enough")


# --- limits ---------------------------------------------------------------------------------------------


def stopped_by(machine: Turn) -> tuple[str, str | None]:
    ended = outcome(machine.effect)
    assert isinstance(ended, StoppedOutcome)
    assert ended.detail
    return ended.reason, ended.limit


def tool_round(machine: Turn, at: int = 1_001, **reply: Any) -> Effect:
    """The model calls a tool, and the tool is run."""
    machine.replied(calls("a"), at, **reply)
    return machine.tools_done([ToolCallOutcome(content=1)], at)


def test_max_turns_stops_right_after_the_results_of_the_last_call() -> None:
    machine = turn(iterations=2)
    assert tool_round(machine) == CallModel(2)
    assert isinstance(machine.replied(calls("a"), 1_001), CallTools)
    machine.tools_done([ToolCallOutcome(content=1)], 1_001)
    assert stopped_by(machine) == ("max_turns", "iterations")


def test_the_last_call_that_is_allowed_may_still_answer() -> None:
    machine = turn(iterations=2)
    tool_round(machine)
    assert outcome(machine.replied(says("just so"), 1_002)) == MessageOutcome()


def test_no_progress_stops_a_model_that_neither_says_nor_does_anything() -> None:
    machine = turn()
    for _ in range(DEFAULT_NO_PROGRESS - 1):
        assert isinstance(machine.replied(says(), 1_001), CallModel)
    machine.replied(says(), 1_001)
    assert stopped_by(machine) == ("max_turns", "no_progress")


def test_calls_that_were_no_calls_of_a_tool_are_no_progress_and_one_that_was_begins_the_count_anew() -> None:
    machine = turn(no_progress=2)
    nothing, something = ToolCallOutcome(content="?", is_error=True, executed=False), ToolCallOutcome(content=1)
    machine.replied(calls("x"), 1_001)
    assert isinstance(machine.tools_done([nothing], 1_001), CallModel)
    machine.replied(calls("x", "a"), 1_001)
    assert isinstance(machine.tools_done([nothing, something], 1_001), CallModel)
    machine.replied(calls("x"), 1_001)
    assert isinstance(machine.tools_done([nothing], 1_001), CallModel)
    machine.replied(says(), 1_001)
    assert stopped_by(machine) == ("max_turns", "no_progress")


def test_more_tool_calls_than_are_allowed_are_not_begun() -> None:
    machine = turn(tool_calls=3)
    machine.replied(calls("a", "a"), 1_001)
    machine.tools_done([ToolCallOutcome(content=1), ToolCallOutcome(content=2)], 1_001)
    machine.replied(calls("a", "a"), 1_001)
    assert stopped_by(machine) == ("max_turns", "tool_calls")
    assert machine.spent.tool_calls == 2


@each_row(
    ("limit", "spent", "at"),
    [("tokens", {"tokens": 100}, 1_001), ("cost", {"cost": 0.5}, 1_001), ("wall_ms", {}, 1_100)],
)
def test_tokens_money_and_time_are_looked_at_before_the_model_is_asked_again(
    limit: str, spent: dict[str, Any], at: int
) -> None:
    most = {"tokens": 100, "cost": 0.5, "wall_ms": 100}[limit]
    below = {name: value - 1 if name == "tokens" else value / 2 for name, value in spent.items()}
    machine = turn(**{limit: most})
    assert tool_round(machine, at - 1, **below) == CallModel(2)
    tool_round(machine, at, **spent)
    assert stopped_by(machine) == ("max_turns", limit)


def test_an_answer_that_costs_more_than_is_allowed_is_an_answer() -> None:
    assert outcome(turn(tokens=10).replied(says("Hello"), 9_999, tokens=5_000)) == MessageOutcome()


def test_without_limits_a_turn_goes_on_as_long_as_it_does_something() -> None:
    machine = turn(iterations=None, tool_calls=None)
    for number in range(300):
        assert tool_round(machine) == CallModel(number + 2)


def test_out_of_iterations_the_model_is_asked_for_an_answer_if_that_is_wanted() -> None:
    machine = turn(iterations=1, on_limit="answer")
    machine.replied(calls("a"), 1_001)
    assert machine.tools_done(done(), 1_002) == CallModel(2, LAST_CALL)
    assert outcome(machine.replied(says("So far."), 1_003)) == MessageOutcome()


def test_an_answer_is_not_asked_for_beyond_another_limit() -> None:
    machine = turn(iterations=1, tokens=5, on_limit="answer")
    machine.replied(calls("a"), 1_001, tokens=9)
    assert outcome(machine.tools_done(done(), 1_002)).limit == "iterations"


@each_row("reply", [calls("a"), says("")])
def test_the_last_reply_runs_nothing_and_is_not_asked_for_again(reply: RecordedReply) -> None:
    machine = turn(iterations=1, on_limit="answer")
    machine.replied(calls("a"), 1_001)
    machine.tools_done(done(), 1_002)
    stopped = outcome(machine.replied(reply, 1_003))
    assert (stopped.reason, stopped.limit) == ("max_turns", "iterations")


def test_a_turn_that_must_end_with_a_value_is_stopped_all_the_same() -> None:
    machine = turn(iterations=1, on_limit="answer")
    machine.wants_value = True
    machine.replied(calls("a"), 1_001)
    assert outcome(machine.tools_done(done(), 1_002)).limit == "iterations"


# --- what the machine refuses ---------------------------------------------------------------------------


def test_what_a_turn_does_not_wait_for_is_refused_and_changes_nothing() -> None:
    machine = turn()
    before = msgspec.json.encode(machine)
    with pytest.raises(ValueError, match=r"'t-1'.*'call_model'.*'call_tools'"):
        machine.tools_done([ToolCallOutcome(content=1)], 1_001)
    with pytest.raises(ValueError):
        machine.stopped(Failure("now", "cancelled"))
    assert msgspec.json.encode(machine) == before
    machine.replied(calls("a"), 1_001)
    with pytest.raises(ValueError, match="call_tools"):
        machine.replied(says("x"), 1_002)
    with pytest.raises(ValueError):
        machine.failed(Failure("x"))
    with pytest.raises(ValueError):
        machine.tools_done([], 1_002)
    machine.tools_done([ToolCallOutcome(content=1)], 1_002)
    machine.replied(says("x"), 1_003)
    with pytest.raises(ValueError, match="'end'"):
        machine.replied(says("x"), 1_004)


@pytest.mark.parametrize(
    ("reply", "stored"),
    [
        (says("Hello"), "Hello"),
        (RecordedReply(content=[TextBlock("Hello")], model="other"), {"content": "Hello", "model": "other"}),
        (RecordedReply(content=[TextBlock("Hel")], stop="length"), {"content": "Hel", "stop": "length"}),
        (RecordedReply(content=[]), {"content": []}),
        (
            RecordedReply(content=[TextBlock("a"), TextBlock("b")]),
            {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ),
    ],
)
def test_a_reply_is_kept_as_its_text_where_that_says_everything(reply: RecordedReply, stored: object) -> None:
    assert reply.to_value() == stored
    assert reply_of(stored) == reply


def test_a_bare_text_is_a_reply_and_anything_unknown_is_none() -> None:
    assert reply_of("Hello") == says("Hello")
    assert reply_of(msgspec.to_builtins(calls("a"))) == calls("a")
    for wrong in (None, 7, {"content": 7}, {"content": [{"type": "poem"}]}):
        with pytest.raises(msgspec.ValidationError):
            reply_of(wrong)


# --- any way through ------------------------------------------------------------------------------------

replies = st.one_of(
    st.just(says("Hello")),
    st.just(says()),
    st.just(says("so far", stop="length")),
    st.lists(st.sampled_from(["a", "b", FINISH_TOOL]), min_size=1, max_size=4).map(lambda names: calls(*names)),
    st.builds(Failure, st.just("no"), st.sampled_from(["cancelled", "timeout"])),
)
results = st.one_of(
    st.builds(ToolCallOutcome, content=st.integers(), executed=st.booleans()),
    st.builds(ToolCallOutcome, content=st.just("no"), is_error=st.just(True), stops=st.booleans()),
    st.builds(ToolCallOutcome, content=st.just(1), finish=st.integers()),
    st.builds(ToolCallOutcome, content=st.just(1), frame=st.just(FrameSwitchOutcome("f", "t"))),
)


def told(machine: Turn, data: st.DataObject, at: int) -> Effect:
    """Tell a turn something that it waits for."""
    match machine.effect:
        case CallModel():
            reply = data.draw(replies)
            if isinstance(reply, Failure):
                return machine.failed(reply)
            return machine.replied(reply, at, tokens=data.draw(st.integers(0, 200)), cost=data.draw(st.floats(0, 2)))
        case CallTools(calls=asked):
            if data.draw(st.booleans()):
                return machine.stopped(Failure("enough", "cancelled"))
            return machine.tools_done([data.draw(results) for _ in asked], at)
        case RunCell():
            raise AssertionError("only rlm agents run cells")
        case EndTurn():
            raise AssertionError("it is over")


limited = st.builds(
    Limits,
    on_limit=st.sampled_from(["stop", "answer"]),
    iterations=st.integers(1, 6),
    no_progress=st.integers(1, 3),
    tool_calls=st.one_of(st.none(), st.integers(0, 6)),
    tokens=st.one_of(st.none(), st.integers(1, 200)),
    cost=st.one_of(st.none(), st.floats(0.1, 2)),
    wall_ms=st.one_of(st.none(), st.integers(1, 20)),
)


@given(limited, st.data())
def test_any_sequence_of_replies_and_results_ends(limits: Limits, data: st.DataObject) -> None:
    machine = Turn(id="t-1", began_at=0, limits=limits)
    steps = 0
    while not isinstance(machine.effect, EndTurn):
        told(machine, data, steps)
        steps += 1
        assert limits.iterations is not None
        assert machine.spent.iterations <= limits.iterations + machine.spent.is_last
        assert steps <= 2 * limits.iterations


@given(limited, st.data())
def test_a_turn_that_was_written_down_and_read_back_re_emits_the_same_effect_and_goes_the_same_way(
    limits: Limits, data: st.DataObject
) -> None:
    machine = Turn(id="t-1", began_at=0, limits=limits)
    for step in range(2 * DEFAULT_ITERATIONS):
        written = msgspec.json.encode(machine)
        restored = msgspec.json.decode(written, type=Turn)
        assert restored == machine
        assert restored.effect == machine.effect
        assert msgspec.json.encode(restored) == written
        if isinstance(machine.effect, EndTurn):
            return
        machine = restored  # and on from there, as a process that was begun anew would
        told(machine, data, step)
    raise AssertionError("it does not end")
