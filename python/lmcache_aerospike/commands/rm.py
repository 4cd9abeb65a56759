# SPDX-License-Identifier: Apache-2.0
"""``rm``: objects go."""

from __future__ import annotations

from typing import Annotated

import typer

from lmcache_aerospike.commands.session import MISS, UNAVAILABLE, Session, stop
from lmcache_aerospike.errors import AerospikeConnectorError


def rm(
    session: Session,
    keys: Annotated[list[str], typer.Argument(help="Keys of the objects.", metavar="KEY...")],
) -> None:
    """Delete objects. Exit code 1 if one of them was not there."""
    with session.open() as store:
        results = dict(zip(keys, store.delete_many(keys), strict=True))
    failed = {key: r for key, r in results.items() if isinstance(r, AerospikeConnectorError)}
    missing = [key for key, result in results.items() if result is False]
    deleted = [key for key, result in results.items() if result is True]
    if session.json:
        session.write_json(
            {
                "deleted": deleted,
                "missing": missing,
                "failed": {key: str(error) for key, error in failed.items()},
            }
        )
    else:
        session.say(f"deleted {len(deleted)} of {len(keys)} objects")
    for key in missing:
        session.say(f"lmcache-aerospike: {key}: not found")
    for key, error in failed.items():
        session.say(f"lmcache-aerospike: {key}: {error}")
    if failed:
        stop(UNAVAILABLE)
    if missing:
        stop(MISS)
