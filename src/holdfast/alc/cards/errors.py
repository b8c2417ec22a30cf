"""What can go wrong with cards, one class a kind. Texts that begin with `alc.card.` are part of the Lua API."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError


class CardError(HoldfastError):
    """Base of everything that cards may refuse or fail with."""

    kind = "card"


# --- what was asked ------------------------------------------------------------------------------


class InvalidCardError(CardError):
    """An argument that a card operation cannot work with. Nothing was written."""

    operation: str
    why: str
    kind = "invalid_card"

    def __str__(self) -> str:
        return f"alc.card.{self.operation}: {self.why}"


class InvalidCardNameError(CardError):
    """A package name, card id or alias that cannot be part of a file name."""

    what: str
    name: str
    why: str
    kind = "invalid_card_name"

    def __str__(self) -> str:
        return f"Invalid {self.what} name: '{self.name}' ({self.why})"


class InvalidWhereError(CardError):
    """A filter or an order that cannot be understood."""

    why: str
    kind = "invalid_where"

    def __str__(self) -> str:
        return self.why


class InvalidSinkError(CardError):
    """An entry in the list of card mirrors that is not the URI of a directory."""

    entry: str
    why: str
    kind = "invalid_sink"

    def __str__(self) -> str:
        return f"card sink '{self.entry}': {self.why}; write it as file:///absolute/path, several separated by '|'"


class UnknownSinkError(CardError):
    """A mirror that this box does not write to."""

    sink: str
    known: list[str]
    kind = "unknown_sink"

    def __str__(self) -> str:
        known = ", ".join(self.known) if self.known else "none; set ALC_CARD_SINKS to have some"
        return f"unknown sink: {self.sink} (known: {known})"


# --- what is there -------------------------------------------------------------------------------


class CardNotFoundError(CardError):
    """An operation on a card that does not exist."""

    operation: str
    card_id: str
    kind = "card_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"alc.card.{self.operation}: card '{self.card_id}' not found"


class CardExistsError(CardError):
    """A new card under an id that is taken. The card that is there was not touched."""

    card_id: str
    kind = "card_exists"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"alc.card.create: card '{self.card_id}' already exists (immutable)"


class CardKeyError(CardError):
    """An append of a key that the card has. Nothing was appended."""

    card_id: str
    key: str
    kind = "card_key"

    def __str__(self) -> str:
        return f"alc.card.append: key '{self.key}' already set on card '{self.card_id}' (immutable)"


class SamplesExistError(CardError):
    """A card gets its samples once. Those that are there were not touched."""

    card_id: str
    kind = "samples_exist"

    def __str__(self) -> str:
        return f"alc.card.write_samples: samples already exist for card '{self.card_id}' (write-once)"


class DanglingAliasError(CardError):
    """An alias whose card is gone."""

    name: str
    card_id: str
    kind = "dangling_alias"

    def __str__(self) -> str:
        return (
            f"alc.card.get_by_alias: alias '{self.name}' points at missing card '{self.card_id}';"
            " bind it to another card with alias_set"
        )


# --- files ---------------------------------------------------------------------------------------


class CardTooLargeError(CardError):
    """Something larger than is kept or given back at once."""

    operation: str
    why: str
    kind = "card_too_large"

    def __str__(self) -> str:
        return f"alc.card.{self.operation}: {self.why}"


class UnreadableCardError(CardError):
    """A file of the cards that does not hold what it should. Other cards are not affected."""

    path: str
    why: str
    kind = "unreadable_card"

    def __str__(self) -> str:
        return f"{self.path} cannot be read: {self.why}; repair the file, or move it away"


class CardFilesError(CardError):
    """The directory of the cards cannot be used."""

    directory: str
    why: str
    kind = "card_files"

    def __str__(self) -> str:
        return f"card directory {self.directory} cannot be used: {self.why}"
