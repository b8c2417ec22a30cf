"""Session envelopes: a whole transcript under a session id, replaced as one, in the JSON that fluers reads and writes.

Here are the envelope, the `EnvelopeStore` contract, its implementation on any `Store`, and sessions in memory. The one
on a directory of JSON files is in `files`. Envelopes have no journal: use a session of the `Store` to keep every step,
or to pay only for what is new.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias, TypeVar
from uuid import uuid4

import msgspec

from holdfast.agent.machine.messages import AgentMessage
from holdfast.core.errors import InvalidIdError, InvalidValueError, SessionNotFoundError
from holdfast.core.ids import check_id
from holdfast.core.limits import ERROR_PREVIEW_CHARS
from holdfast.core.values import Json, check_value
from holdfast.store.contract import Store
from holdfast.store.errors import CorruptSessionError, CorruptStateError, EnvelopeError, SchemaVersionError

ENVELOPE_VERSION = 1
"""The version that is written, and the only one so far. It stays readable."""

NAMESPACE = "envelopes"
"""Where `StoreEnvelopes` keeps its items in a store's state."""

Messages: TypeAlias = list[AgentMessage]
_T = TypeVar("_T")


class SessionEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to continue a session in another process. It is stored under the session's id."""

    schema_version: Literal[1] = 1
    model: str
    max_turns: Annotated[int, msgspec.Meta(ge=0)]
    system_message: str | None = None
    messages: Messages
    metadata: dict[str, str]


class EnvelopeReport(msgspec.Struct, frozen=True):
    """The sorted ids whose envelopes can be loaded, and by name, why others cannot."""

    ids: list[str]
    bad: dict[str, str]


class EnvelopeStore(ABC):
    """Where envelopes live.

    What holds for all methods
    - *Checked first.* An id that breaks the grammar of ids raises `InvalidIdError` before anything is touched.
    - *Whole.* A reader sees an envelope as one `save` left it, whatever other tasks, threads and processes write
      meanwhile, and wherever a writer was killed. Of several saves the last one stands: there is no merging.
    - *Independent.* An envelope that is damaged, or too new, is an error for its own id and for no other.
    """

    @abstractmethod
    async def save(self, session_id: str, envelope: SessionEnvelope) -> None:
        """Keep an envelope in place of the one before, if any. When this returns, it is durable.

        It is taken as it is when `save` begins: what the caller changes in it later is not in it. One that JSON cannot
        hold exactly, or of the wrong types, raises `InvalidValueError`. A save that fails leaves the envelope before.
        """

    @abstractmethod
    async def load(self, session_id: str) -> SessionEnvelope | None:
        """The envelope, or None if there is none.

        The version is looked at before anything else: an unknown one raises `SchemaVersionError`. After that, what is
        no JSON or lacks the shape of an envelope raises `EnvelopeError`. Both name the session. Fields that this
        version does not know are ignored.
        """

    @abstractmethod
    async def list(self) -> EnvelopeReport:
        """All envelopes, each tried: those that cannot be loaded are reported, and never fail the listing."""

    @abstractmethod
    async def delete(self, session_id: str) -> bool:
        """Remove an envelope, readable or not; False if there was none. When this returns, it is durably gone."""


# --- to and from JSON ----------------------------------------------------------------------------


def envelope_json(session_id: str, envelope: SessionEnvelope) -> Json:
    """The envelope as a JSON object of its own, checked for all that `EnvelopeStore.save` promises."""
    return _exact(envelope, SessionEnvelope, f"envelope of session '{session_id}'")[0]


def read_envelope(session_id: str, value: Json) -> SessionEnvelope:
    """An envelope from its JSON object, with the errors of `EnvelopeStore.load`."""
    try:
        found = msgspec.convert(value, _Version).schema_version
        if found != ENVELOPE_VERSION:
            raise SchemaVersionError(f"envelope of session '{session_id}'", found, ENVELOPE_VERSION)
        return msgspec.convert(value, SessionEnvelope)
    except (msgspec.ValidationError, RecursionError) as error:
        raise EnvelopeError(session_id, f"not an envelope: {brief(error)}") from None


class _Version(msgspec.Struct):
    schema_version: int


def brief(error: Exception) -> str:
    """An error's text, cut where a hostile file could make it long."""
    return str(error)[: 4 * ERROR_PREVIEW_CHARS]


def _exact(value: _T, kind: type[_T], what: str) -> tuple[Json, _T]:
    """A value as JSON and as a deep copy, or `InvalidValueError` if the two would differ from it."""
    try:
        plain = msgspec.to_builtins(value)
        check_value(plain, what)
        copy = msgspec.convert(plain, kind)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValueError(what, brief(error)) from None
    if copy != value:
        why = "it would come back changed: use lists for sets, text for dates and bytes, and blocks for content"
        raise InvalidValueError(what, why)
    return plain, copy


async def listing(envelopes: EnvelopeStore, names: Iterable[str]) -> EnvelopeReport:
    """Try every name, and separate those that cannot be loaded."""
    found = EnvelopeReport([], {})
    for name in sorted(names):
        try:
            if await envelopes.load(name) is not None:
                found.ids.append(name)
        except (InvalidIdError, EnvelopeError, SchemaVersionError, CorruptSessionError) as error:
            found.bad[name.encode(errors="backslashreplace").decode()] = str(error)
    return found


# --- on a store ----------------------------------------------------------------------------------


class StoreEnvelopes(EnvelopeStore):
    """Envelopes among the state items of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def save(self, session_id: str, envelope: SessionEnvelope) -> None:
        check_id(session_id, "session id")
        await self._store.put_state(NAMESPACE, session_id, envelope_json(session_id, envelope))

    async def load(self, session_id: str) -> SessionEnvelope | None:
        check_id(session_id, "session id")
        try:
            item = await self._store.get_state(NAMESPACE, session_id)
        except CorruptStateError as error:
            raise EnvelopeError(session_id, f"not valid JSON: {error.why}") from None
        return None if item is None else read_envelope(session_id, item.value)

    async def list(self) -> EnvelopeReport:
        names, after = [], ""
        while page := await self._store.list_state(NAMESPACE, after=after):
            names += page
            after = page[-1]
        return await listing(self, names)

    async def delete(self, session_id: str) -> bool:
        check_id(session_id, "session id")
        return await self._store.delete_state(NAMESPACE, session_id)


# --- in memory -----------------------------------------------------------------------------------


class EnvelopeSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as its envelope describes it."""

    id: str
    model: str
    max_turns: int
    system_message: str | None
    messages: Messages
    metadata: dict[str, str]


class EnvelopeSessions:
    """Sessions that live in memory until they are saved explicitly, to a store that the caller names."""

    def __init__(self) -> None:
        self._sessions: dict[str, SessionEnvelope] = {}

    def create(self) -> str:
        """Begin a session without any configuration, and return its id."""
        return self.create_with_config("", 0)

    def create_with_config(self, model: str, max_turns: int, system_message: str | None = None) -> str:
        """Begin a session, and return its id, a random UUID as text."""
        session_id = str(uuid4())
        envelope = SessionEnvelope(
            model=model, max_turns=max_turns, system_message=system_message, messages=[], metadata={}
        )
        self._sessions[session_id] = _exact(envelope, SessionEnvelope, "session configuration")[1]
        return session_id

    def append(self, session_id: str, message: AgentMessage) -> None:
        """Add a copy of a message. `SessionNotFoundError`; `InvalidValueError` for one that could not be saved."""
        session = self._find(session_id)
        session.messages.append(_exact(message, AgentMessage, f"message to session '{session_id}'")[1])

    def messages(self, session_id: str) -> Messages:
        """A copy of the messages so far, the caller's own. `SessionNotFoundError`."""
        return msgspec.convert(msgspec.to_builtins(self._find(session_id).messages), Messages)

    async def save(self, envelopes: EnvelopeStore, session_id: str) -> None:
        """Save a session as it is now; what is appended meanwhile goes with the next save. `SessionNotFoundError`."""
        session = self._find(session_id)
        # The messages themselves are private copies that nobody changes, so copying the list is enough.
        await envelopes.save(session_id, msgspec.structs.replace(session, messages=[*session.messages]))

    @staticmethod
    async def load(envelopes: EnvelopeStore, session_id: str) -> EnvelopeSession | None:
        """A saved session, or None if there is none. It does not join the sessions in memory."""
        envelope = await envelopes.load(session_id)
        if envelope is None:
            return None
        fields = msgspec.structs.asdict(envelope)
        del fields["schema_version"]
        return EnvelopeSession(id=session_id, **fields)

    @staticmethod
    async def list(envelopes: EnvelopeStore) -> EnvelopeReport:
        """All saved sessions, and those that cannot be loaded."""
        return await envelopes.list()

    def _find(self, session_id: str) -> SessionEnvelope:
        session = self._sessions.get(check_id(session_id, "session id"))
        if session is None:
            raise SessionNotFoundError(session_id)
        return session
