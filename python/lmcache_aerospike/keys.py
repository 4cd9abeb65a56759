# SPDX-License-Identifier: Apache-2.0
"""From LMCache's keys to the records that hold an object; docs/formats/record.md has the schema."""

from __future__ import annotations

from typing import Protocol

__all__ = ["RecordKey", "logical_key", "meta_key", "segment_key", "segment_keys"]

RecordKey = tuple[str, str, str]
"""Namespace, set and user key, as the official client takes them."""


class HasText(Protocol):
    """A key of LMCache, also one of a layer."""

    def to_string(self) -> str:
        """All that distinguishes it."""
        ...


def logical_key(ck: HasText | str) -> str:
    """The text that names an object everywhere in this package."""
    return ck if isinstance(ck, str) else ck.to_string()


def meta_key(ns: str, set_: str, ck: HasText | str) -> RecordKey:
    """The record that makes an object visible; small objects are in it."""
    return (ns, set_, f"{logical_key(ck)}|m")


def segment_key(ns: str, set_: str, ck: HasText | str, i: int) -> RecordKey:
    """The record of segment `i`, counted from 0."""
    return (ns, set_, f"{logical_key(ck)}|s|{i}")


def segment_keys(ns: str, set_: str, ck: HasText | str, nseg: int) -> list[RecordKey]:
    """The records of all `nseg` segments, in order."""
    return [segment_key(ns, set_, ck, i) for i in range(nseg)]
