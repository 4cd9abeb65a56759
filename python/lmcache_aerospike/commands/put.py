# SPDX-License-Identifier: Apache-2.0
"""``put``: files become objects."""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lmcache_aerospike.commands._remedies import explained
from lmcache_aerospike.commands.progress import TransferBar
from lmcache_aerospike.commands.session import UNAVAILABLE, Session, bytes_text, stop
from lmcache_aerospike.errors import AerospikeConfigError, AerospikeConnectorError

_GROUP_BYTES_MAX = 64 << 20
_GROUP_FILES_MAX = 256


def put(
    session: Session,
    files: Annotated[list[str], typer.Argument(help="Files; - is stdin.", metavar="FILE...")],
    key: Annotated[
        str | None, typer.Option(help="Key, for one file; the file's name if not given.")
    ] = None,
    ttl: Annotated[
        int | None, typer.Option(help="Seconds; 0 namespace default, -1 never expires.")
    ] = None,
    pin: Annotated[bool, typer.Option(help="Never expires, marked as pinned.")] = False,
) -> None:
    """Store each file as one object."""
    if key is not None and len(files) > 1:
        msg = f"--key: given for {len(files)} files, expected one file"
        raise AerospikeConfigError(msg)
    if "-" in files and key is None:
        msg = "--key: not given, expected one for stdin"
        raise AerospikeConfigError(msg)
    sizes = {name: 0 if name == "-" else Path(name).stat().st_size for name in files}
    failed: dict[str, AerospikeConnectorError] = {}
    total = 0
    started = time.monotonic()
    with (
        session.open() as store,
        TransferBar(session.messages, store, "store", sum(sizes.values())) as bar,
    ):
        for group in _groups(sizes):
            keys = [key or name for name in group]
            data = [_read(name) for name in group]
            size = sum(len(entry) for entry in data)
            results = bar.run(size, lambda k=keys, d=data: store.put_many(k, d, ttl, pin))  # type: ignore[misc]
            for name, result in zip(keys, results, strict=True):
                if isinstance(result, AerospikeConnectorError):
                    failed[name] = result
                else:
                    total += result or 0
    _report(session, len(files), total, time.monotonic() - started, failed)


def _groups(sizes: dict[str, int]) -> Iterator[list[str]]:
    group: list[str] = []
    group_bytes = 0
    for name, size in sizes.items():
        if group and (group_bytes + size > _GROUP_BYTES_MAX or len(group) >= _GROUP_FILES_MAX):
            yield group
            group, group_bytes = [], 0
        group.append(name)
        group_bytes += size
    if group:
        yield group


def _read(name: str) -> bytes | mmap.mmap:
    if name == "-":
        return sys.stdin.buffer.read()
    with Path(name).open("rb") as stream:
        try:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # empty, or no regular file
            return stream.read()


def _report(
    session: Session,
    count: int,
    total: int,
    seconds: float,
    failed: dict[str, AerospikeConnectorError],
) -> None:
    if session.json:
        session.write_json(
            {
                "stored": count - len(failed),
                "bytes": total,
                "seconds": round(seconds, 6),
                "failed": {key: str(error) for key, error in failed.items()},
            }
        )
    else:
        session.say(
            f"stored {count - len(failed)} objects, {bytes_text(total)} in {seconds:.2f} s "
            f"({bytes_text(total / max(seconds, 1e-9))}/s)"
        )
    for key, error in failed.items():
        session.say(f"lmcache-aerospike: {key}: {explained(error)}")
    if failed:
        stop(UNAVAILABLE)
