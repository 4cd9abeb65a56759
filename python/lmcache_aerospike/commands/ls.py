# SPDX-License-Identifier: Apache-2.0
"""``ls``: the objects of the set, one by one or in groups."""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from lmcache_aerospike.commands import _selection
from lmcache_aerospike.commands._selection import Selection, parse_key
from lmcache_aerospike.commands.progress import StepBar
from lmcache_aerospike.commands.session import Session, bytes_text, duration_text

if TYPE_CHECKING:
    from lmcache_aerospike._native import ObjectInfo
    from lmcache_aerospike.store import Store


class By(str, Enum):
    """How objects are put together."""

    none = "none"
    model = "model"
    salt = "salt"


@dataclass
class Group:
    """Objects with something in common; times are ages in seconds.

    Attributes:
        name: What they share; None for keys that are not LMCache's.
        objects: How many.
        bytes: As stored.
        raw_bytes: Before the serde.
        oldest: Age of the oldest.
        newest: Age of the newest.
    """

    name: str | None
    objects: int = 0
    bytes: int = 0
    raw_bytes: int = 0
    oldest: int = 0
    newest: int = 1 << 62


def ls(
    session: Session,
    prefix: _selection.Prefix = "",
    model: _selection.Model = None,
    salt: _selection.Salt = None,
    by: Annotated[By, typer.Option(help="Sums for each model or cache salt.")] = By.none,
    limit: Annotated[int, typer.Option(min=0, help="At most so many objects; 0 = all.")] = 1000,
) -> None:
    """List objects: key, bytes, segments, age, expiry. No order; groups by size."""
    selection = Selection(prefix, model, salt)
    with session.open() as store:
        if by is not By.none:
            _show_groups(session, _groups(session, store, selection, by), by)
            return
        found = selection.objects(store)
        rows = list(itertools.islice(found, limit or None))
        has_more = bool(limit) and next(found, None) is not None
    if session.json:
        session.write_json(rows)
    elif rows:
        session.output.print(_table(rows))
    if has_more:
        session.say(f"the first {limit} objects; --limit 0 lists all, --by model sums them up")
    elif not rows:
        session.say("no objects")


def _groups(session: Session, store: Store, selection: Selection, by: By) -> list[Group]:
    groups: dict[str | None, Group] = {}
    now = int(time.time())
    with StepBar(session.messages, "list") as bar:
        for entry in selection.objects(store, bar.update):
            parts = parse_key(entry["key"])
            name = None if parts is None else parts.model if by is By.model else parts.salt
            group = groups.setdefault(name, Group(name))
            age = max(0, now - entry["created_at"])
            group.objects += 1
            group.bytes += entry["bytes"]
            group.raw_bytes += entry["raw_bytes"]
            group.oldest = max(group.oldest, age)
            group.newest = min(group.newest, age)
    return sorted(groups.values(), key=lambda group: -group.bytes)


def _show_groups(session: Session, groups: list[Group], by: By) -> None:
    if session.json:
        session.write_json([{by.value: g.pop("name"), **g} for g in map(asdict, groups)])
        return
    if not groups:
        session.say("no objects")
        return
    is_encoded = any(group.raw_bytes != group.bytes for group in groups)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(by.value, overflow="fold")
    for title in ("objects", *_size_titles(is_encoded), "oldest", "newest"):
        table.add_column(title, justify="right", no_wrap=True)
    for group in groups:
        name = "(other keys)" if group.name is None else group.name or "(no salt)"
        table.add_row(
            Text(name),
            str(group.objects),
            *_sizes(group.raw_bytes, group.bytes, is_encoded),
            duration_text(group.oldest),
            duration_text(group.newest),
        )
    session.output.print(table)


def _size_titles(is_encoded: bool) -> tuple[str, ...]:
    return ("raw", "stored") if is_encoded else ("bytes",)


def _sizes(raw: int, stored: int, is_encoded: bool) -> tuple[str, ...]:
    return (bytes_text(raw), bytes_text(stored)) if is_encoded else (bytes_text(stored),)


def _table(rows: list[ObjectInfo]) -> Table:
    is_encoded = any(row["serde"] for row in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("key", overflow="fold")
    for title in (*_size_titles(is_encoded), "segments", "age", "expires in"):
        table.add_column(title, justify="right", no_wrap=True)
    now = time.time()
    for row in rows:
        name = row["key"] if row["key"] is not None else f"(digest {row['digest']})"
        note = f" ({row['serde']})" if row["serde"] else ""
        note += "" if row["ready"] else " (not ready)"
        table.add_row(
            Text(name + note),
            *_sizes(row["raw_bytes"], row["bytes"], is_encoded),
            str(row["segment_count"]),
            duration_text(now - row["created_at"]),
            duration_text(row["expires_in"]),
        )
    return table
