"""Approval: which tool calls run, which do not, and which somebody must approve first.

Rules of this file
------------------
- A rule selects tools by a pattern of their names, and may also match arguments by patterns. Within a layer, a matching
  denial wins; otherwise the first matching rule; otherwise the layer's default.
- All layers (a parent's and a child's, for example) are asked, and the strictest verdict counts: what one layer would
  stop, no other lets through.
- A permission granted for the rest of a session replaces its confirmations. It never lifts a denial.
- Anything that is not understood counts as no: a verdict, a decision, a callback that fails.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.distinct_keys import check_distinct_keys
from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import ERROR_PREVIEW_CHARS
from holdfast.core.queries import Answer, Failure
from holdfast.core.values import Json, preview

Verdict: TypeAlias = Literal["allow", "deny", "confirm", "callback"]
"""What happens to a call: it runs, it does not, a person is asked, or the host's code decides."""

_STRICTNESS: dict[str, int] = {"allow": 0, "callback": 0, "confirm": 1, "deny": 2}


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens to calls of the tools that match a pattern.

    `Rule.allow("shell", command="git *")`, `Rule.confirm("delete_*").because("it cannot be undone")`.
    """

    tool: str
    """A name, or a pattern of names: `*` is any text, `?` any character."""
    verdict: str
    """A `Verdict`. A stored rule with a verdict that is unknown here can still be read, and denies."""
    match: dict[str, str] = {}
    """Patterns by argument: all of them must match, and a missing argument matches none. A value that is not a string
    is compared as JSON, without spaces and with sorted keys."""
    reason: str = ""
    """Shown to whoever is asked or refused."""

    @classmethod
    def allow(cls, tool: str, /, **match: Json) -> Rule:
        """Run calls whose arguments match all of these patterns."""
        return cls(tool, "allow", _patterns(match))

    @classmethod
    def deny(cls, tool: str, /, **match: Json) -> Rule:
        """Refuse calls whose arguments match all of these patterns."""
        return cls(tool, "deny", _patterns(match))

    @classmethod
    def confirm(cls, tool: str, /, **match: Json) -> Rule:
        """Ask a person to approve calls whose arguments match all of these patterns."""
        return cls(tool, "confirm", _patterns(match))

    @classmethod
    def callback(cls, tool: str, /, **match: Json) -> Rule:
        """Let the host's code decide about calls whose arguments match all of these patterns."""
        return cls(tool, "callback", _patterns(match))

    def because(self, reason: str) -> Rule:
        """The same rule, with a reason that is shown to whoever is asked or refused."""
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
    """The `Verdict` on calls that no rule matches."""
    callback: str = ""
    """The plugin whose code decides where the verdict is `callback`."""
    timeout_ms: int | None = None
    """How long somebody may take to decide. After that, the answer counts as no."""
    origin: str = ""
    """Whose rules these are, set by whoever records them: empty for the session's own, `runtime`, or `parent`."""


class ApprovalResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all layers together decide about a call."""

    verdict: Literal["allow", "deny", "confirm"]
    reason: str = ""
    callbacks: list[str] = []
    """Plugins whose code is asked first, unless the call is denied anyway. They may be stricter than the verdict."""
    timeout_ms: int | None = None


def ruling(layers: Sequence[Approval], tool: str, arguments: Json) -> ApprovalResult:
    """What the layers decide about a call."""
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
    """Whether somebody has already approved calls like this one for the rest of the session."""
    return any(rule.matches(tool, arguments) for rule in granted)


def _rule(layer: Approval, tool: str, arguments: Json) -> Rule:
    matching = [rule for rule in layer.rules if rule.matches(tool, arguments)]
    denied = next((rule for rule in matching if _strictness(rule) == _STRICTNESS["deny"]), None)
    return denied or next(iter(matching), None) or Rule("*", layer.default)


def _strictness(rule: Rule) -> int:
    return _STRICTNESS.get(rule.verdict, _STRICTNESS["deny"])


def with_layers(recorded: Sequence[Approval], named: Sequence[Approval]) -> list[Approval]:
    """The layers of a session after some were named again. A named layer replaces the recorded ones of its origin.

    Layers of an origin that is not named stay, so rules are never lost by naming none.
    """
    origins = {layer.origin for layer in named}
    layers = [layer for layer in recorded if layer.origin not in origins]
    for layer in named:
        layers += [] if layer in layers else [layer]
    return sorted(layers, key=lambda layer: layer.origin)  # the same list, whatever the order they came in


def inherited_rules(
    above: Sequence[Approval], plugins: Mapping[str, Json], everywhere: Collection[str]
) -> tuple[list[Approval], dict[str, Json]]:
    """What a child has of the rules of its parent: all of them, and the plugins whose code they ask.

    `plugins` are those of the parent, with their configurations; those that are `everywhere` need not be named.
    """
    layers = [msgspec.structs.replace(layer, origin="parent") for layer in above]
    asked = dict.fromkeys(layer.callback for layer in layers if layer.callback and layer.callback not in everywhere)
    return with_layers([], layers), {plugin_id: plugins.get(plugin_id) for plugin_id in asked}


def check_approval(layer: Approval) -> None:
    """Raise `InvalidValueError` unless the rules make sense."""
    uses_callback = layer.default == "callback" or any(rule.verdict == "callback" for rule in layer.rules)
    if uses_callback and not layer.callback:
        raise InvalidValueError("approval", "the verdict 'callback' needs a callback")
    if layer.timeout_ms is not None and layer.timeout_ms <= 0:
        raise InvalidValueError("approval", f"its timeout must be more than 0 ms, got {layer.timeout_ms}")
    for rule in layer.rules:
        if not rule.tool:
            raise InvalidValueError("approval", "a rule names no tool; '*' stands for all")
    for verdict in (layer.default, *(rule.verdict for rule in layer.rules)):
        if verdict not in _STRICTNESS:
            known = ", ".join(_STRICTNESS)
            raise InvalidValueError("approval", f"'{verdict}' is not a verdict; the verdicts are {known}")


# --- what somebody decides -----------------------------------------------------------------------------


class ApproveDecision(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="approve", tag_field="decision"
):
    """The call runs: with these arguments if there are any, otherwise with the model's."""

    arguments: dict[str, Json] | None = None


class DenyDecision(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="deny", tag_field="decision"
):
    """The call does not run. The model sees the reason."""

    reason: str = ""


class AlwaysDecision(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="always", tag_field="decision"
):
    """The call runs, and so do later ones in this session, without asking."""

    match: dict[str, str] = {}
    """Only calls whose arguments match these patterns run without asking; if empty, all calls of this tool."""


Decision: TypeAlias = ApproveDecision | DenyDecision | AlwaysDecision

_DECISIONS: dict[str, Decision] = {"approve": ApproveDecision(), "deny": DenyDecision(), "always": AlwaysDecision()}

CHOICES = list(_DECISIONS)
"""The answers that are a single word."""


def decision_of(answer: Answer) -> Decision:
    """What an answer decides: a word of `CHOICES`, or an object, which may also be JSON text. A failure is a denial.

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
            check_distinct_keys(word, "decision")
        return msgspec.convert(value, ApproveDecision | DenyDecision | AlwaysDecision)
    except KeyError:
        why = f"{preview(value)} is not a decision"
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:  # not JSON, or JSON of another shape
        why = f"{preview(value)} is not a decision ({str(error)[: 4 * ERROR_PREVIEW_CHARS]})"
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
        raise InvalidValueError("decision", f"its 'match' {preview(decision.match)} does not match the call itself")


def _patterns(match: Mapping[str, Json]) -> dict[str, str]:
    return {name: _text(value) for name, value in match.items()}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else _sorted.encode(value).decode()


_sorted = msgspec.json.Encoder(order="sorted")  # the model chooses the order of keys; it must not evade a rule by it


def _fits(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern. Brackets are ordinary characters: file names and code contain them."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))
