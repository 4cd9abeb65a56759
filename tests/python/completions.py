# SPDX-License-Identifier: Apache-2.0
"""How the end of a batch is waited for."""

from __future__ import annotations

import select
import time

from lmcache_aerospike import AerospikeNativeConnector

Completion = tuple[int, bool, str, list[bool] | None]
WAIT_SECONDS = 20


class Completions:
    """Drains a connector and keeps what was not asked for yet."""

    def __init__(self, connector: AerospikeNativeConnector) -> None:
        self.connector = connector
        self.waiting: dict[int, Completion] = {}

    def drain(self) -> None:
        for completion in self.connector.drain_completions():
            assert completion[0] not in self.waiting, "a batch completed twice"
            self.waiting[completion[0]] = completion

    def wait(self, batch: int) -> Completion:
        deadline = time.monotonic() + WAIT_SECONDS
        while batch not in self.waiting:
            seconds = deadline - time.monotonic()
            assert seconds > 0, f"batch {batch} did not complete"
            select.select([self.connector.event_fd()], [], [], seconds)
            self.drain()
        return self.waiting.pop(batch)
