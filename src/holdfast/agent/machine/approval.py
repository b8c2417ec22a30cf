"""Approval: which calls of tools are run, which are not, and which somebody has to agree to first.

Rules of this file
------------------
- A rule speaks of tools by a pattern of their names, and may look at arguments by patterns as well. In a layer a denial
  that matches wins; else the first rule that matches; else the layer's default.
- Several layers, as a parent's and a child's, are all asked, and the strictest verdict counts: nothing that one of them
  would have stopped is let through by another.
- What somebody granted for the rest of a session turns its confirmations into permissions. It never lifts a denial.
- Everything that is not understood counts as no: a verdict, a decision, a callback that fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Answer, Failure
from holdfast.core.values import Json, preview

Verdict: TypeAlias = Literal["allow", "deny", "confirm", "callback"]
"""What is done about a call: it is run, it is not, a person is asked, or code of the host is."""

_STRICTNESS: dict[str, int] = {"allow": 0, "callback": 0, "confirm": 1, "deny": 2}


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is done about calls of the tools that a pattern names.

    `Rule.allow("shell", command="git *")`, `Rule.confirm("delete_*").because("it cannot be undone")`.
    """

    tool: str
    """A name, or a pattern of names: `*` is any text, `?` any character."""
    verdict: str
    """A `Verdict`. A stored rule may have one that is not known here: it is read all the same, and denies."""
    match: dict[str, str] = {}
    """Patterns by argument: all of them must match, and what is not given matches none. A value that is no text is
    compared as JSON, without spaces and with sorted keys."""
    reason: str = ""
    """For whoever is asked, or refused."""

    @classmethod
    def allow(cls, tool: str, /, **match: Json) -> Rule:
        """Calls are run, if their arguments match all of these patterns."""
        return cls(tool, "allow", _patterns(match))

    @classmethod
    def deny(cls, tool: str, /, **match: Json) -> Rule:
        """Calls are not run, if their arguments match all of these patterns."""
        return cls(tool, "deny", _patterns(match))

    @classmethod
    def confirm(cls, tool: str, /, **match: Json) -> Rule:
        """Somebody has to agree to calls, if their arguments match all of these patterns."""
        return cls(tool, "confirm", _patterns(match))

    @classmethod
    def callback(cls, tool: str, /, **match: Json) -> Rule:
        """Code of the host decides about calls, if their arguments match all of these patterns."""
        return cls(tool, "callback", _patterns(match))

    def because(self, reason: str) -> Rule:
        """The same rule, with a reason for whoever is asked, or refused."""
        return msgspec.structs.replace(self, reason=reason)

    def matches(self, tool: str, arguments: Json) -> bool:
        if not _fits(tool, self.tool):
            return False
        given = arguments if isinstance(arguments, Mapping) else {}
        return all(name in given and _fits(_text(given[name]), text) for name, text in self.match.items())


class Approval(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A layer of rules."""

    rules: list[Rule] = []
    default: str = "allow"
    """A `Verdict`, for calls that no rule speaks of."""
    callback: str = ""
    """The plugin whose code decides where the verdict is `callback`."""
    timeout_ms: int | None = None
    """How long somebody may take to decide; then it counts as no."""
    origin: str = ""
    """Whose rules they are, told by who records them: empty for the session's own, `runtime`, or `parent`."""


class ApprovalResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the layers say about a call, all together."""

    verdict: Literal["allow", "deny", "confirm"]
    reason: str = ""
    callbacks: list[str] = []
    """Plugins whose code is asked first, unless the call is denied anyway; they may be stricter than the verdict."""
    timeout_ms: int | None = None


def ruling(layers: Sequence[Approval], tool: str, arguments: Json) -> ApprovalResult:
    """What is done about a call."""
    if not layers:
        return ALLOWED
    found = [(layer, _rule(layer, tool, arguments)) for layer in layers]
    strictest = max(_strictness(rule) for _, rule in found)
    reasons = [rule.reason for _, rule in found if _strictness(rule) == strictest and rule.reason]
    asked = [(layer, rule) for layer, rule in found if rule.verdict in ("callback", "confirm")]
    return ApprovalResult(
        ("allow", "confirm", "deny")[strictest],
        next(iter(reasons), ""),
        list(dict.fromkeys(layer.callback for layer, rule in asked if rule.verdict == "callback")),
        min((layer.timeout_ms for layer, _ in asked if layer.timeout_ms is not None), default=None),
    )


ALLOWED = ApprovalResult("allow")


def is_granted(granted: Sequence[Rule], tool: str, arguments: Json) -> bool:
    """Whether somebody has agreed before to calls like this one."""
    return any(rule.matches(tool, arguments) for rule in granted)


def _rule(layer: Approval, tool: str, arguments: Json) -> Rule:
    matching = [rule for rule in layer.rules if rule.matches(tool, arguments)]
    denied = next((rule for rule in matching if _strictness(rule) == _STRICTNESS["deny"]), None)
    return denied or next(iter(matching), None) or Rule("*", layer.default)


def _strictness(rule: Rule) -> int:
    return _STRICTNESS.get(rule.verdict, _STRICTNESS["deny"])


def with_layers(recorded: Sequence[Approval], named: Sequence[Approval]) -> list[Approval]:
    """The layers of a session whose rules are named anew: those of an origin of which none are named stay.

    So rules are changed by whoever names others of the same origin, and never lost by naming none.
    """
    origins = {layer.origin for layer in named}
    layers = [layer for layer in recorded if layer.origin not in origins]
    for layer in named:
        layers += [] if layer in layers else [layer]
    return sorted(layers, key=lambda layer: layer.origin)  # however they came together, the same list


def check_approval(layer: Approval) -> None:
    """Raise `InvalidValueError` unless the rules make sense."""
    uses_callback = layer.default == "callback" or any(rule.verdict == "callback" for rule in layer.rules)
    if uses_callback and not layer.callback:
        raise InvalidValueError("approval", "a verdict of 'callback' needs a callback")
    if layer.timeout_ms is not None and layer.timeout_ms <= 0:
        raise InvalidValueError("approval", f"its timeout must be more than 0 ms, got {layer.timeout_ms}")
    for rule in layer.rules:
        if not rule.tool:
            raise InvalidValueError("approval", "a rule names no tool; '*' stands for all")
    for verdict in (layer.default, *(rule.verdict for rule in layer.rules)):
        if verdict not in _STRICTNESS:
            raise InvalidValueError("approval", f"'{verdict}' is no verdict; there are {', '.join(_STRICTNESS)}")


# --- what somebody decides -----------------------------------------------------------------------------


class ApproveDecision(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="approve", tag_field="decision"
):
    """The call is run, with these arguments where they are given instead of the model's."""

    arguments: dict[str, Json] | None = None


class DenyDecision(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="deny", tag_field="decision"
):
    """The call is not run. The model is told why."""

    reason: str = ""


class AlwaysDecision(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="always", tag_field="decision"
):
    """The call is run, and so are those that come after it in this session, without asking."""

    match: dict[str, str] = {}
    """Only those whose arguments match these patterns; empty: all calls of this tool."""


Decision: TypeAlias = ApproveDecision | DenyDecision | AlwaysDecision

_DECISIONS: dict[str, Decision] = {"approve": ApproveDecision(), "deny": DenyDecision(), "always": AlwaysDecision()}

CHOICES = list(_DECISIONS)
"""What may be answered with a word."""


def decision_of(answer: Answer) -> Decision:
    """What an answer decides: a word of `CHOICES`, or an object that says more, also as a text. A failure is a denial.

    Raises `InvalidValueError` for anything else.
    """
    if isinstance(answer, Failure):
        return DenyDecision(answer.message)
    value = answer.value
    if value is True or value is False:
        return _DECISIONS["approve" if value else "deny"]
    try:
        if isinstance(value, str):
            word = value.strip()
            if not word.startswith("{"):
                return _DECISIONS[word.casefold()]
            value = msgspec.json.decode(word)
        return msgspec.convert(value, ApproveDecision | DenyDecision | AlwaysDecision)
    except KeyError:
        why = f"{preview(value)} is none"
    except msgspec.DecodeError as error:  # what is no JSON, and what is of another shape
        why = f"{preview(value)} is none ({error})"
    raise InvalidValueError("decision", f"{why}; {HOW_TO_DECIDE}")


HOW_TO_DECIDE = (
    "answer 'approve', 'deny' or 'always', or an object: "
    '{"decision": "approve", "arguments": {…}}, {"decision": "deny", "reason": "…"}, '
    '{"decision": "always", "match": {…}}'
)


def check_decision(tool: str, arguments: Json, answer: Answer) -> None:
    """Raise `InvalidValueError` unless the answer decides about this call of the tool."""
    decision = decision_of(answer)
    if isinstance(decision, AlwaysDecision) and not Rule(tool, "allow", decision.match).matches(tool, arguments):
        raise InvalidValueError("decision", f"its 'match' {preview(decision.match)} does not fit the call itself")


def _patterns(match: Mapping[str, Json]) -> dict[str, str]:
    return {name: _text(value) for name, value in match.items()}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else _sorted.encode(value).decode()


_sorted = msgspec.json.Encoder(order="sorted")  # the order of keys is the model's, and must not get it past a rule


def _fits(text: str, pattern: str) -> bool:
    """Whether a text is what a pattern says. Brackets are not special, as they are in names of files and in code."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))
