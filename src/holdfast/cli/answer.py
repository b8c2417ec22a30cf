"""`answer`: answer what a session asks."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.engine import BY, open_engine
from holdfast.cli.errors import InputError, usage_error
from holdfast.cli.options import common, is_person_here, parse_json, read_stdin, service_option, wait_option
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.served import serve_option
from holdfast.cli.session_lookup import find_session

if TYPE_CHECKING:
    from holdfast.core.decide import GivenAnswer
    from holdfast.core.events import Event


@click.command("answer")
@click.argument("session", type=SessionType())
@click.argument("text", required=False)
@click.option("--query", metavar="ID", help="Which query to answer, if several wait.")
@click.option("--fail", metavar="MESSAGE", help="Say that there is no answer: the strategy sees an error.")
@click.option("--responses", metavar="JSON|@FILE", help='[{"query_id": …, "response": …}, …] or {"q-0": …, …}.')
@serve_option
@service_option
@wait_option
@common()
def answer_command(
    *,
    session: str,
    text: str | None,
    query: str | None,
    fail: str | None,
    responses: str | None,
    wait: float | None,
) -> int:
    """Answer what a session asks, and print what it says next.

    TEXT is the answer; `-` reads it from standard input. Without TEXT, on a terminal, you are asked.
    """
    from holdfast.cli.display.events import print_event
    from holdfast.cli.run.session import resume_session, warn_if_stuck

    if sum(each is not None for each in (text, fail, responses)) > 1:
        raise usage_error("Give only one of TEXT, --fail and --responses.")
    if responses is not None and query is not None:
        raise usage_error("--responses names its queries; leave out --query.")
    if text is None and fail is None and responses is None:
        if query is None and is_person_here():
            return resume_session(session)
        raise usage_error("Give TEXT (or - for standard input), --fail or --responses.")
    answers = _parse_answers(text, fail, responses, query)

    async def feed() -> Event:
        async with open_engine(upkeep=True) as hf:
            session_id = await find_session(hf.store, session)
            event = await hf.feed(session_id, answers, by=BY, wait=wait)
            await warn_if_stuck(hf, event)
            return event

    return print_event(asyncio.run(feed()))


def _parse_answers(
    text: str | None, fail: str | None, responses: str | None, query: str | None
) -> GivenAnswer | dict[str, GivenAnswer]:
    from holdfast.core.decide import GivenAnswer
    from holdfast.core.queries import Failure, Value

    if responses is not None:
        return _parse_responses(parse_json(responses, "--responses"))
    if query is not None:
        _check_query_id(query)
    if fail is not None:
        return GivenAnswer(Failure(fail), query)
    if text == "-":
        text = read_stdin("the answer")
    return GivenAnswer(Value(value=text), query)


def _parse_responses(responses: Any) -> GivenAnswer | dict[str, GivenAnswer]:
    """Answers from their JSON: algocline's array, or an object from query id to answer."""
    from holdfast.core.decide import GivenAnswer
    from holdfast.core.queries import Value

    match responses:
        case {} if not responses:
            raise InputError("--responses is empty; give at least one answer")
        case dict():
            for query in responses:
                _check_query_id(query)
            return {query: GivenAnswer(Value(value=value), query) for query, value in responses.items()}
        case [only] if isinstance(only, dict) and "query_id" not in only:
            return _parse_response(only)
        case list():
            answers: dict[str, GivenAnswer] = {}
            for item in responses:
                if not isinstance(item, dict) or "query_id" not in item:
                    raise InputError("--responses: each answer must be an object with query_id and response")
                query = _check_query_id(item["query_id"])
                if query in answers:
                    raise InputError(f"--responses answers {query} twice; answer it once")
                answers[query] = _parse_response(item)
            if not answers:
                raise InputError("--responses is empty; give at least one answer")
            return answers
        case _:
            raise InputError("--responses: expected an array of answers, or an object from query id to answer")


def _parse_response(item: dict[str, Any]) -> GivenAnswer:
    import msgspec

    from holdfast.core.decide import GivenAnswer
    from holdfast.core.queries import Answer, Failure, Usage, Value

    query = item.get("query_id")
    unknown = sorted(set(item) - {"query_id", "response", "error", "usage"})
    if unknown:
        raise InputError(f"--responses: unknown key '{unknown[0]}'; the keys are query_id, response, error and usage")
    if ("response" in item) == ("error" in item):
        raise InputError(f"--responses: the answer to {query or 'the query'} needs either response or error")
    try:
        usage = msgspec.convert(item["usage"], Usage) if item.get("usage") is not None else None
        answer: Answer
        if "response" in item:
            answer = Value(value=item["response"])
        elif isinstance(item["error"], str):
            answer = Failure(item["error"])
        else:
            answer = msgspec.convert({"is": "failure", **item["error"]}, Failure)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(f"--responses: the answer to {query or 'the query'}: {error}") from None
    return GivenAnswer(answer, query, usage)


def _check_query_id(query: object) -> str:
    from holdfast.engine.query_paths import is_query_path

    if not isinstance(query, str) or not is_query_path(query):
        raise InputError(f"{json.dumps(query)} is not a query id; query ids look like q-0, or q-3.q-0 for a child")
    return query
