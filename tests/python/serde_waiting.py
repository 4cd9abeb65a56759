# SPDX-License-Identifier: Apache-2.0
"""How the end of a serde task is waited for, and formats with what they need."""

from __future__ import annotations

import os
import select
from pathlib import Path

from lmcache_aerospike import serde

WAIT_SECONDS = 20


def wait_readable(fd: int) -> int:
    """Waits for a signal; returns how many came."""
    ready, _, _ = select.select([fd], [], [], WAIT_SECONDS)
    assert ready, "no task ended"
    return os.eventfd_read(fd)


def wait_serialized(processor: serde.SerdeProcessor, task: int) -> bool:
    """The result of the only task under way."""
    assert wait_readable(processor.get_serialize_event_fd()) == 1
    result = processor.query_serialize_result(task)
    assert result is not None
    assert processor.query_serialize_result(task) is None
    return result


def wait_deserialized(processor: serde.SerdeProcessor, task: int) -> bool:
    """The result of the only task under way."""
    assert wait_readable(processor.get_deserialize_event_fd()) == 1
    result = processor.query_deserialize_result(task)
    assert result is not None
    assert processor.query_deserialize_result(task) is None
    return result


def write_key(directory: Path) -> str:
    """The path of a new master key."""
    path = directory / "master.key"
    path.write_bytes(bytes(range(32)))
    path.chmod(0o600)
    return str(path)
