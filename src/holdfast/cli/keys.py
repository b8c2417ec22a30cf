"""`keys`: the key that exports are signed with, and the keys of others that are known here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.errors import usage_error
from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, plain, print_json
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.store.signatures import KnownKeys

OWN = "own"
"""The name that this user's own key is known by."""


@click.command("keys")
@click.option("--new", is_flag=True, help="Make the key of this user, which `export --sign` uses.")
@click.option("--add", nargs=2, metavar="NAME KEY", help="Know the public key of somebody by a name.")
@click.option("--remove", metavar="NAME", help="Forget a key.")
@common()
def keys_command(new: bool, add: tuple[str, str] | None, remove: str | None) -> int:
    """List the keys known here: your own, and those of others whose signatures `import` and `adopt` tell by name."""
    from holdfast.store.signatures import SigningKey

    if sum((new, add is not None, remove is not None)) > 1:
        raise usage_error("give one of --new, --add and --remove")
    keys = known_keys()
    if new:
        keys.add(OWN, SigningKey.make(keys.own).public)
    if add is not None:
        keys.add(*add)
    if remove is not None:
        keys.remove(remove)
    found = keys.all()
    if settings().json:
        print_json({"keys": found, "private": str(keys.own) if keys.own.exists() else None})
        return ExitCode.OK
    for name, key in found.items():
        click.echo(f"{key}  {plain(name)}")
    if not found:
        click.echo("No keys are known here.")
    if OWN not in found:
        click.echo(dim("`holdfast keys --new` makes one of your own."), err=True)
    return ExitCode.OK


def known_keys() -> KnownKeys:
    """The keys of this user."""
    from holdfast.programs.paths import home
    from holdfast.store.signatures import KnownKeys

    return KnownKeys(home() / "keys")


def signer_name(key: str | None) -> str | None:
    """The name that a key has here; None if it has none."""
    return known_keys().name_of(key)


def signer_text(key: str | None) -> str:
    """Who signed a file, for a person."""
    if key is None:
        return "not signed"
    name = signer_name(key)
    if name is None:
        return f"signed with a key that is not known here ({key})"
    return f"signed with the key '{name}' ({key})"
