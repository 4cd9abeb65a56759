# SPDX-License-Identifier: Apache-2.0
"""What LMCache gets when it makes the adapter over namespaces that are set up in other ways."""

from __future__ import annotations

import re
import select
import time

import pytest
from info_proxy import InfoProxy
from lmcache_driver import AdapterDriver, adapter_spec, create_adapter, object_key, random_bytes

from lmcache_aerospike import _native
from lmcache_aerospike.errors import (
    AerospikeConnectionError,
    AerospikeDeniedError,
    AerospikeNamespaceProbeError,
    AerospikeServerLimitError,
    AerospikeTTLConfigError,
)

MIB = 1 << 20
LIMIT = r"(?<=;)max-record-size=\d+"


def namespace_line(change):
    """Rewrites only the answer to namespace/..., which is a long list."""
    return lambda text: change(text) if "max-record-size=" in text else text


@pytest.mark.parametrize(
    ("replacement", "limit", "source"),
    [
        ("max-record-size=1048576", MIB, "max-record-size"),
        ("max-record-size=0;write-block-size=1048576", MIB, "write-block-size"),
        (
            "max-record-size=0;storage-engine.write-block-size=1048576",
            MIB,
            "storage-engine.write-block-size",
        ),
        ("storage-engine.write-block-size=8388608", 8 * MIB, "storage-engine.write-block-size"),
        ("x-max-record-size=5;max-record-size=1048576", MIB, "max-record-size"),
        ("max-record-size=131072", 128 << 10, "max-record-size"),
    ],
)
def test_the_record_limit_is_found_in_every_releases_answer(
    server, set_name, replacement, limit, source
):
    change = namespace_line(lambda text: re.sub(LIMIT, replacement, text))
    with InfoProxy(server.endpoints()[0], change) as proxy:
        driver = AdapterDriver(adapter_spec(proxy.hosts, set_name))
        try:
            limits = driver.connector.limits()
            assert limits["record_bytes_max"] == limit
            assert limits["record_bytes_source"] == source
            if limit <= MIB:
                content = random_bytes(limit, 3 * MIB)
                assert driver.store(object_key(), content)
                assert driver.load(object_key(), len(content)) == content
        finally:
            driver.close()


@pytest.mark.parametrize(
    ("replacement", "error"),
    [
        ("replication-factor=1", AerospikeServerLimitError),
        ("max-record-size=0", AerospikeServerLimitError),
        ("max-record-size=-1", AerospikeServerLimitError),
        ("max-record-size=many", AerospikeServerLimitError),
    ],
)
def test_a_record_limit_is_not_guessed(server, set_name, replacement, error):
    def change(text):
        text = re.sub(r"(storage-engine\.)?write-block-size=\d+;?", "", text)
        return re.sub(LIMIT, replacement, text)

    with (
        InfoProxy(server.endpoints()[0], namespace_line(change)) as proxy,
        pytest.raises(error, match=r"max-record-size"),
    ):
        create_adapter(adapter_spec(proxy.hosts, set_name))


@pytest.mark.parametrize("answer", ["", "garbage", "ERROR:4:bad namespace", "type=unknown"])
def test_an_answer_that_is_no_namespace_is_told(server, set_name, answer):
    def change(text):
        name, tab, _ = text.partition("\t")
        return f"{name}{tab}{answer}\n"

    with (
        InfoProxy(server.endpoints()[0], namespace_line(change)) as proxy,
        pytest.raises(
            (AerospikeNamespaceProbeError, AerospikeServerLimitError, AerospikeDeniedError)
        ) as caught,
    ):
        create_adapter(adapter_spec(proxy.hosts, set_name))
    assert "lmcache" in str(caught.value)


def test_a_namespace_that_is_not_there_is_told(server, set_name):
    with pytest.raises((AerospikeDeniedError, AerospikeConnectionError), match="nowhere"):
        create_adapter(adapter_spec(server.hosts, set_name, namespace="nowhere"))


@pytest.mark.parametrize("ttl", [1, 86_400])
def test_a_ttl_that_the_namespace_refuses_is_told_at_the_start(ttl):
    with (
        _native.DevServer(namespaces=[{"name": "lmcache", "nsup_period_s": 0}]) as bare,
        pytest.raises(AerospikeTTLConfigError, match="nsup-period"),
    ):
        create_adapter(adapter_spec(bare.hosts, "s", default_ttl_seconds=ttl))


@pytest.mark.parametrize("ttl", [0, -1])
def test_without_a_ttl_such_a_namespace_works(ttl):
    with _native.DevServer(namespaces=[{"name": "lmcache", "nsup_period_s": 0}]) as bare:
        driver = AdapterDriver(adapter_spec(bare.hosts, "s", default_ttl_seconds=ttl))
        try:
            content = random_bytes(ttl, 2 * MIB)
            assert driver.store(object_key(), content)
            assert driver.load(object_key(), len(content)) == content
        finally:
            driver.close()


def test_a_ttl_without_nsup_that_is_allowed_works_with_a_warning(caplog):
    namespace = {"name": "lmcache", "nsup_period_s": 0, "allow_ttl_without_nsup": True}
    with _native.DevServer(namespaces=[namespace]) as bare:
        driver = AdapterDriver(adapter_spec(bare.hosts, "s", default_ttl_seconds=100))
        try:
            assert driver.store(object_key(), b"content")
            assert driver.load(object_key(), 7) == b"content"
            deadline = time.monotonic() + 5
            while "nsup-period is 0" not in caplog.text:  # the engine's lines come by a thread
                assert time.monotonic() < deadline
                select.select([], [], [], 0.01)
        finally:
            driver.close()


def test_nobody_there_is_an_error_within_seconds(set_name):
    with _native.DevServer() as gone:
        hosts = gone.hosts
        gone.stop()
    started = time.monotonic()
    with pytest.raises(AerospikeConnectionError, match=re.escape(hosts)):
        create_adapter(adapter_spec(hosts, set_name, connect_timeout_ms=300))
    assert time.monotonic() - started < 5


def test_an_adapter_that_was_not_made_can_be_shown(set_name):
    """A traceback with the values of its variables shows the connector, too."""
    with pytest.raises(AerospikeConnectionError) as caught:
        create_adapter(adapter_spec("127.0.0.1:1", set_name, connect_timeout_ms=100))
    frame = caught.traceback[-1].frame
    assert "AerospikeNativeConnector" in repr(frame.f_locals["self"])


def test_a_dead_seed_beside_a_living_one_is_no_obstacle(server, set_name):
    with _native.DevServer() as gone:
        dead = gone.hosts
    started = time.monotonic()
    driver = AdapterDriver(adapter_spec(f"{dead},{server.hosts}", set_name))
    assert time.monotonic() - started < 5
    assert driver.store(object_key(), b"content")
    driver.close()


def test_hosts_namespace_and_set_may_come_from_the_environment(server, set_name, monkeypatch):
    monkeypatch.setenv("LMCACHE_AEROSPIKE_HOSTS", server.hosts)
    monkeypatch.setenv("LMCACHE_AEROSPIKE_NAMESPACE", "lmcache")
    monkeypatch.setenv("LMCACHE_AEROSPIKE_SET", set_name)
    spec = adapter_spec("", "")
    named = AdapterDriver(adapter_spec(server.hosts, set_name))
    unnamed = AdapterDriver(spec)
    try:
        assert unnamed.store(object_key(), b"content")
        assert named.load(object_key(), 7) == b"content"
    finally:
        named.close()
        unnamed.close()
