# SPDX-License-Identifier: Apache-2.0
"""``get``: an object becomes a file."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmcache_aerospike.commands.progress import TransferBar
from lmcache_aerospike.commands.session import MISS, Session, bytes_text, stop
from lmcache_aerospike.errors import AerospikeConfigError

if TYPE_CHECKING:
    from lmcache_aerospike._native import ObjectDetails


def get(
    session: Session,
    key: Annotated[str, typer.Argument(help="Key of the object.")],
    output: Annotated[str, typer.Option("--output", "-o", help="File; - is stdout.")] = "-",
) -> None:
    """Load an object into a file. The file appears only when all is there."""
    if output == "-" and session.json:
        msg = "--json: stdout gets the data, expected --output FILE"
        raise AerospikeConfigError(msg)
    if output == "-" and sys.stdout.isatty():
        msg = "--output: stdout is a terminal, expected --output FILE or a pipe"
        raise AerospikeConfigError(msg)
    started = time.monotonic()
    with session.open() as store:
        details = store.inspect(key)
        size = details["bytes"] if details else 0
        with TransferBar(session.messages, store, "load", size) as bar:
            data = bar.run(size, lambda: store.get(key))
    if data is None:
        if session.json:
            session.write_json({"key": key, "found": False})
        session.say(f"lmcache-aerospike: {key}: {_why_missing(details)}")
        stop(MISS)
    seconds = time.monotonic() - started
    if output == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    _write(Path(output), data)
    if session.json:
        session.write_json(
            {"key": key, "found": True, "bytes": len(data), "seconds": round(seconds, 6)}
        )
    else:
        rate = bytes_text(len(data) / max(seconds, 1e-9))
        session.say(f"loaded {bytes_text(len(data))} in {seconds:.2f} s ({rate}/s)")


def _why_missing(details: ObjectDetails | None) -> str:
    if details is None or details["serde"] is None:
        return "not found"
    return (
        f"stored with serde {details['serde']}; to decode it, give "
        """--option serde='{"type": "...", "dtype": "..."}' as its writer has it"""
    )


def _write(path: Path, data: bytes) -> None:
    """Writes beside the place and moves it there, unless the place is a device or a pipe."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
        try:
            new.write(data)
            new.flush()
            mask = os.umask(0)
            os.umask(mask)
            Path(new.name).chmod(0o666 & ~mask)
            Path(new.name).replace(path)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise
