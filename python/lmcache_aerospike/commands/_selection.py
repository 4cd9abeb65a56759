# SPDX-License-Identifier: Apache-2.0
"""Which objects a command is about: by prefix, or by what LMCache put into their keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lmcache_aerospike._native import ObjectInfo
    from lmcache_aerospike.store import Store

CURSOR_END = 4096
_PAGE = 1000

_RANK = re.compile(r"[0-9a-f]{8}")
_HEX = re.compile(r"[0-9a-f]+")
_NUMBER = re.compile(r"\d+")

Prefix = Annotated[str, typer.Option(help="Only keys that start with this.")]
Model = Annotated[str | None, typer.Option(help="Only objects of this model.", show_default=False)]
Salt = Annotated[
    str | None,
    typer.Option(help="Only objects with this cache salt; '' = without one.", show_default=False),
]


@dataclass(frozen=True)
class KeyParts:
    """What a key of LMCache says; for display only, since keys are opaque everywhere else.

    Attributes:
        model: Name of the model.
        rank: Which part of the KV cache.
        chunk: Hash of the tokens, hexadecimal.
        salt: Cache salt, "" if there is none.
    """

    model: str
    rank: str
    chunk: str
    salt: str


def parse_key(key: str | None) -> KeyParts | None:
    """Reads ``model@rank@group@hash[@salt]``, or the form of the in-process mode.

    That one is ``model@world size@worker@hash@dtype[@layer][@tag%value...]``; a tag ``cache_salt``
    is its salt.
    """
    parts = (key or "").split("@")
    if len(parts) in (4, 5) and _RANK.fullmatch(parts[1]) and _HEX.fullmatch(parts[2]):
        if not _HEX.fullmatch(parts[3]):
            return None
        return KeyParts(parts[0], parts[1], parts[3], parts[4] if len(parts) == 5 else "")
    is_in_process = (
        len(parts) >= 5
        and _NUMBER.fullmatch(parts[1])
        and _NUMBER.fullmatch(parts[2])
        and _HEX.fullmatch(parts[3].removeprefix("-"))
    )
    if not is_in_process:
        return None
    tags = dict(part.split("%", 1) for part in parts[5:] if "%" in part)
    return KeyParts(parts[0], parts[2], parts[3], tags.get("cache_salt", ""))


@dataclass(frozen=True)
class Selection:
    """A filter over objects.

    Attributes:
        prefix: Of the key.
        model: Its model, None = any.
        salt: Its cache salt, None = any.
    """

    prefix: str = ""
    model: str | None = None
    salt: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return not self.prefix and self.model is None and self.salt is None

    def matches(self, key: str | None) -> bool:
        """Whether an object with this key belongs to it."""
        if not (key or "").startswith(self.prefix):
            return False
        if self.model is None and self.salt is None:
            return True
        parts = parse_key(key)
        if parts is None:
            return False
        return (self.model is None or parts.model == self.model) and (
            self.salt is None or parts.salt == self.salt
        )

    def objects(
        self, store: Store, progress: Callable[[float], None] = lambda _: None
    ) -> Iterator[ObjectInfo]:
        """All objects of the set that match; `progress` hears from 0 to 1 how far it is."""
        cursor = 0
        while cursor < CURSOR_END:
            page, cursor = store.list(cursor, _PAGE)
            yield from (entry for entry in page if self.matches(entry["key"]))
            progress(cursor / CURSOR_END)
