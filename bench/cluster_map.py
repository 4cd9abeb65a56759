# SPDX-License-Identifier: Apache-2.0
"""Watches the partition maps of a cluster: when does each master exist exactly once?"""

from __future__ import annotations

import base64
import itertools
import socket
import struct
import threading
import time
from collections.abc import Sequence

_PARTITIONS = 4096
_ALL = (1 << _PARTITIONS) - 1
_INFO_TYPE = 1
_PATIENCE_S = 0.2
_PACE_S = 0.02
# So many partitions may be between two nodes in the time that it takes to ask all nodes.
_HANDED_OVER = 64

Address = tuple[str, int]


def ask_info(connection: socket.socket, command: str) -> str:
    """One info command over an open connection."""
    text = f"{command}\n".encode()
    connection.sendall(struct.pack(">Q", 2 << 56 | _INFO_TYPE << 48 | len(text)) + text)
    (head,) = struct.unpack(">Q", _receive(connection, 8))
    body = _receive(connection, head & (1 << 48) - 1)
    return body.decode().partition("\t")[2].strip()


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data


def masters(replicas: str) -> int:
    """The bitmap of masters in the answer to ``replicas``; the namespace is the only one."""
    fields = replicas.partition(":")[2].split(",")
    return int.from_bytes(base64.b64decode(fields[2]), "big") if len(fields) > 2 else 0


class MapWatcher:
    """Polls all nodes; `changes` has the moments at which the map became whole, or was no more."""

    def __init__(self, nodes: Sequence[Address]) -> None:
        self.changes: list[tuple[float, bool]] = []
        self._nodes = list(nodes)
        self._connections: dict[Address, socket.socket] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()
        for connection in self._connections.values():
            connection.close()

    def seconds_wrong(self, begin: float, end: float) -> float:
        """From `begin` to the last moment before `end` at which the map was not whole; 0 = always.

        What lasts less than a tenth of a second is left out.
        """
        last = 0.0
        spans = [*self.changes, (end, True)]
        for (since, whole), (until, _) in itertools.pairwise(spans):
            if not whole and until > begin and since < end and until - max(since, begin) > 0.1:
                last = min(until, end) - begin
        return last

    def _bitmap(self, node: Address) -> int:
        try:
            connection = self._connections.get(node)
            if connection is None:
                connection = socket.create_connection(node, _PATIENCE_S)
                self._connections[node] = connection
            return masters(ask_info(connection, "replicas"))
        except OSError:
            broken = self._connections.pop(node, None)
            if broken is not None:
                broken.close()
            return 0

    def _run(self) -> None:
        while not self._ending.wait(_PACE_S):
            union, twice = 0, 0
            now = time.monotonic()
            for node in self._nodes:
                bitmap = self._bitmap(node)
                twice |= union & bitmap
                union |= bitmap
            # Single partitions change hands all the time while data move.
            wrong = (_ALL ^ union) | twice
            whole = wrong.bit_count() <= _HANDED_OVER
            if not self.changes or self.changes[-1][1] != whole:
                self.changes.append((now, whole))
