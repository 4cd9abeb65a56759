# SPDX-License-Identifier: Apache-2.0
"""``rm``: objects go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from lmcache_aerospike.commands import _selection
from lmcache_aerospike.commands._remedies import explained
from lmcache_aerospike.commands._selection import Selection
from lmcache_aerospike.commands.progress import StepBar
from lmcache_aerospike.commands.session import (
    MISS,
    UNAVAILABLE,
    Session,
    bytes_text,
    confirm,
    stop,
)
from lmcache_aerospike.errors import AerospikeConfigError, AerospikeConnectorError

if TYPE_CHECKING:
    from lmcache_aerospike.store import Store

_BATCH = 1000


@dataclass
class Removal:
    """What became of the keys."""

    deleted: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failed: dict[str, AerospikeConnectorError] = field(default_factory=dict)


def rm(
    session: Session,
    keys: Annotated[
        list[str] | None, typer.Argument(help="Keys of the objects.", metavar="[KEY]...")
    ] = None,
    prefix: _selection.Prefix = "",
    model: _selection.Model = None,
    salt: _selection.Salt = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Delete objects by key, or all that match. Exit code 1 if a named one was not there."""
    selection = Selection(prefix, model, salt)
    if bool(keys) != selection.is_everything:
        msg = "expected either keys or at least one of --prefix, --model, --salt"
        raise AerospikeConfigError(msg)
    with session.open() as store:
        if keys:
            _remove_keys(session, store, keys, dry_run)
        else:
            _remove_matching(session, store, selection, yes, dry_run)


def _remove_keys(session: Session, store: Store, keys: list[str], dry_run: bool) -> None:
    if dry_run:
        found = dict(zip(keys, store.exists_many(keys), strict=True))
        _show_dry_run(session, [key for key in keys if found[key] is True], None)
        if not all(found[key] is True for key in keys):
            stop(MISS)
        return
    removal = Removal()
    _delete(store, keys, removal)
    _report(session, removal, len(keys), name_missing=True)
    if removal.missing:
        stop(MISS)


def _remove_matching(
    session: Session, store: Store, selection: Selection, yes: bool, dry_run: bool
) -> None:
    with StepBar(session.messages, "list") as bar:
        found = [(e["key"], e["bytes"]) for e in selection.objects(store, bar.update)]
    keys = [key for key, _ in found if key is not None]
    total = sum(size for key, size in found if key is not None)
    if dry_run:
        _show_dry_run(session, keys, total)
        return
    if keys:
        confirm(f"delete {len(keys)} objects, {bytes_text(total)}?", yes=yes)
    removal = Removal()
    with StepBar(session.messages, "delete") as bar:
        for start in range(0, len(keys), _BATCH):
            _delete(store, keys[start : start + _BATCH], removal)
            bar.update((start + _BATCH) / len(keys))
    # What is missing now has expired, or somebody else was faster.
    _report(session, removal, len(keys), name_missing=False)


def _show_dry_run(session: Session, keys: list[str], total: int | None) -> None:
    if session.json:
        session.write_json({"would_delete": keys, "bytes": total})
        return
    for key in keys:
        typer.echo(key)
    size = "" if total is None else f", {bytes_text(total)}"
    session.say(f"would delete {len(keys)} objects{size}; nothing was changed")


def _delete(store: Store, keys: list[str], removal: Removal) -> None:
    for key, result in zip(keys, store.delete_many(keys), strict=True):
        if isinstance(result, AerospikeConnectorError):
            removal.failed[key] = result
        else:
            (removal.deleted if result else removal.missing).append(key)


def _report(session: Session, removal: Removal, count: int, *, name_missing: bool) -> None:
    if session.json:
        session.write_json(
            {
                "deleted": removal.deleted,
                "missing": removal.missing,
                "failed": {key: str(error) for key, error in removal.failed.items()},
            }
        )
    else:
        session.say(f"deleted {len(removal.deleted)} of {count} objects")
    if name_missing:
        for key in removal.missing:
            session.say(f"lmcache-aerospike: {key}: not found")
    for key, error in removal.failed.items():
        session.say(f"lmcache-aerospike: {key}: {explained(error)}")
    if removal.failed:
        stop(UNAVAILABLE)
