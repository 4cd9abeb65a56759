# SPDX-License-Identifier: Apache-2.0
"""A start while the cluster is away."""

from __future__ import annotations

import threading
import time

import pytest

from lmcache_aerospike import Store
from lmcache_aerospike.devserver import DevServer
from lmcache_aerospike.errors import AerospikeConfigError, AerospikeConnectionError

FAST = {"join_ms": 100, "detection_ms": 100}


def test_a_start_waits_for_the_cluster() -> None:
    with DevServer(nodes=2, timing=FAST) as server:
        server.stop_node(0)
        server.stop_node(1)
        starting = threading.Timer(0.3, server.start_node, [1])
        starting.start()  # Store() lets go of the interpreter while it waits
        with Store(server.hosts, start_timeout_ms=60_000) as store:
            starting.join()
            store.put("key", b"content")
            assert store.get("key") == b"content"


def test_a_start_that_waits_in_vain_says_why_and_when() -> None:
    with DevServer(nodes=2, timing=FAST) as server:
        server.stop_node(0)
        server.stop_node(1)
        begun = time.monotonic()
        with pytest.raises(AerospikeConnectionError) as caught:
            Store(server.hosts, start_timeout_ms=500)
        assert 0.5 <= time.monotonic() - begun < 10
        for _, port in server.endpoints():
            assert f":{port}: connect: Connection refused" in str(caught.value)


def test_a_start_that_need_not_wait_does_not() -> None:
    with DevServer() as server:
        begun = time.monotonic()
        Store(server.hosts, start_timeout_ms=3_600_000).close()
        assert time.monotonic() - begun < 10


def test_the_time_must_be_one() -> None:
    with pytest.raises(AerospikeConfigError, match="start_timeout_ms"):
        Store("127.0.0.1:1", start_timeout_ms=-1)
