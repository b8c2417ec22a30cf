"""Signatures of export files: an Ed25519 key of one's own, and the public keys of others that are known by name.

A signature says that the file is as the holder of a key wrote it, and nothing about what the file holds. Whom a key
belongs to is said here and now, by a name that somebody has given it on this machine, and never by a file.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.ids import check_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

OWN_KEY = "signing.pem"
"""The private key of this user, in the directory of keys."""

_PURPOSE = b"holdfast export file\n"
"""Stands before everything that is signed, so that no signature can be used for something else."""

_PUBLIC = re.compile(r"[0-9a-f]{64}")


class SigningKeyError(HoldfastError):
    """A key that cannot be used, or not be made."""

    why: str
    kind = "signing_key"

    def __str__(self) -> str:
        return self.why


class SigningKey:
    """A private key, and what goes into files of it."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw().hex()
        """The public key, as 64 hex digits."""

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """The key in a PEM file."""
        _check_installed()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            private = load_pem_private_key(path.read_bytes(), password=None)
        except FileNotFoundError:
            raise SigningKeyError(f"there is no key in {path}; `holdfast keys --new` makes one") from None
        except OSError as error:
            raise SigningKeyError(f"the key in {path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise SigningKeyError(f"{path} holds no private key in PEM without a password") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise SigningKeyError(f"the key in {path} is not an Ed25519 key")
        return cls(private)

    @classmethod
    def make(cls, path: Path) -> SigningKey:
        """A new key in a new file that only its owner can read."""
        _check_installed()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        private = Ed25519PrivateKey.generate()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise SigningKeyError(f"there is a key in {path} already; move it away to make another") from None
        except OSError as error:
            raise SigningKeyError(f"no key can be made in {path}: {error.strerror}") from None
        with open(descriptor, "wb") as stream:
            stream.write(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            stream.flush()
            os.fsync(descriptor)
        return cls(private)

    def sign(self, digest: str) -> str:
        """The signature of a file whose lines have this digest, as hex digits."""
        return self._private.sign(_PURPOSE + digest.encode()).hex()


def is_signed_by(public: str, signature: str, digest: str) -> bool:
    """Whether a signature of a digest is that of a key."""
    _check_installed()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not _PUBLIC.fullmatch(public):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _PURPOSE + digest.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


class KnownKeys:
    """The keys that are known on this machine: a directory with a file `NAME.pub` for each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def own(self) -> Path:
        """Where the private key of this user is."""
        return self._directory / OWN_KEY

    def all(self) -> dict[str, str]:
        """The public keys by name."""
        found: dict[str, str] = {}
        for path in sorted(self._directory.glob("*.pub")):
            text = path.read_text(encoding="ascii", errors="replace").strip()
            if _PUBLIC.fullmatch(text):
                found[path.stem] = text
        return found

    def name_of(self, public: str | None) -> str | None:
        """The name that a key is known by here; None if it is not."""
        return next((name for name, key in self.all().items() if key == public), None)

    def add(self, name: str, public: str) -> None:
        """Know a key by a name from now on."""
        check_id(name, "name of a key")
        if not _PUBLIC.fullmatch(public):
            raise SigningKeyError("a public key is 64 hex digits, as `holdfast keys` shows them")
        known = self.all().get(name)
        if known is not None and known != public:
            raise SigningKeyError(f"another key is known as '{name}'; `holdfast keys --remove {name}` forgets it")
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._directory / f"{name}.pub").write_text(f"{public}\n")

    def remove(self, name: str) -> None:
        """Forget a key."""
        check_id(name, "name of a key")
        try:
            (self._directory / f"{name}.pub").unlink()
        except FileNotFoundError:
            raise SigningKeyError(f"no key is known as '{name}'; `holdfast keys` lists them") from None


def _check_installed() -> None:
    if find_spec("cryptography") is None:
        raise SigningKeyError("signatures need the package `cryptography`: pip install 'holdfast[sign]'")
