# SPDX-License-Identifier: Apache-2.0
"""A server between client and server that rewrites info answers: other releases, other settings."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from typing_extensions import Self

INFO_TYPE = 1
HEADER_BYTES = 8
SIZE_MASK = (1 << 48) - 1


class InfoProxy:
    """Passes everything on, but info answers through `rewrite`; names itself as the only node."""

    def __init__(self, upstream: tuple[str, int], rewrite: Callable[[str], str]) -> None:
        self._upstream = upstream
        self._rewrite = rewrite
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                proxy._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def hosts(self) -> str:
        """What clients connect to."""
        host, port = self._server.server_address
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, client: socket.socket) -> None:
        with socket.create_connection(self._upstream) as server:
            back = threading.Thread(target=self._pass_back, args=(server, client), daemon=True)
            back.start()
            while data := _receive(client):
                server.sendall(data)
            _end(server)
            back.join()

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        buffer = b""
        while data := _receive(server):
            buffer += data
            while len(buffer) >= HEADER_BYTES:
                (word,) = struct.unpack(">Q", buffer[:HEADER_BYTES])
                end = HEADER_BYTES + (word & SIZE_MASK)
                if len(buffer) < end:
                    break
                message, buffer = buffer[:end], buffer[end:]
                if (word >> 48) & 0xFF == INFO_TYPE:
                    message = self._changed(message[HEADER_BYTES:], word)
                try:
                    client.sendall(message)
                except OSError:
                    return
        _end(client)

    def _changed(self, body: bytes, word: int) -> bytes:
        own = self.hosts.rsplit(":", 1)[1]
        text = body.decode().replace(f":{self._upstream[1]}", f":{own}")
        changed = self._rewrite(text).encode()
        return struct.pack(">Q", (word & ~SIZE_MASK) | len(changed)) + changed


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
