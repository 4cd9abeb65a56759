# SPDX-License-Identifier: Apache-2.0
"""Commands on standard input for a development server that runs in the foreground."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator

from lmcache_aerospike import _native
from lmcache_aerospike.errors import AerospikeConnectorError

_READ_BYTES = 4096


def obey_until(server: _native.DevServer, ends: set[signal.Signals]) -> None:
    """Carries out commands, one a line, until standard input ends or one of the signals comes.

    Each is answered on standard output by "ok", or by "error" and what was wrong.

    Args:
        server: Whose commands they are.
        ends: Blocked signals; they are unblocked here, and end a command only when it is through.
    """
    with _wake_on(ends) as woken:
        pending = b""
        while True:
            readable, _, _ = select.select([sys.stdin.fileno(), woken], [], [])
            if woken in readable:
                return
            received = os.read(sys.stdin.fileno(), _READ_BYTES)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                print(_answer(server, line.decode(errors="replace")), flush=True)


def _answer(server: _native.DevServer, line: str) -> str:
    try:
        server.control(line)
    except AerospikeConnectorError as error:
        return f"error {error}"
    return "ok"


@contextlib.contextmanager
def _wake_on(signals: set[signal.Signals]) -> Iterator[int]:
    """A descriptor that becomes readable when one of the signals comes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    before = signal.set_wakeup_fd(writer)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        yield reader
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
