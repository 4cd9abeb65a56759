# SPDX-License-Identifier: Apache-2.0
"""Shared clients, and the adapter that LMCache loads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeKey, FakeLocalCPUBackend
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.storage_backend.connector import ConnectorContext, CreateConnector
from unit_world import World, metadata_of

from lmcache_aerospike import AerospikeConnectorAdapter, AerospikeRemoteConnector, _native, client
from lmcache_aerospike.client import AerospikeClientHolder
from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.errors import (
    AerospikeConfigError,
    AerospikeConnectionError,
    ClosedError,
)


def config_of(server: _native.DevServer, **given: Any) -> AerospikeConfig:
    host, port = server.hosts.rsplit(":", 1)
    return AerospikeConfig(hosts=((host, int(port)),), **given)


# ---- holders -------------------------------------------------------------------------------------


def test_holders_are_shared_and_counted(server: _native.DevServer) -> None:
    first = AerospikeClientHolder.get_or_create(config_of(server))
    again = AerospikeClientHolder.get_or_create(config_of(server, set_name="another"))
    assert again is first
    assert first.refcount == 2
    assert again.client is first.client
    first.release()
    assert first.client.is_connected()
    again.release()
    assert not first.client.is_connected()
    assert first not in client._HOLDERS.values()


def test_a_rebuilt_connector_gets_the_same_client(world: Any) -> None:
    made: World = world()
    counts = [made.holder.refcount]
    rebuilt: World = world()
    counts.append(made.holder.refcount)
    assert rebuilt.holder is made.holder
    made.close()
    counts.append(made.holder.refcount)
    assert counts == [1, 2, 1]
    assert rebuilt.put("k")


def test_too_many_releases_are_ignored(server: _native.DevServer, caplog: Any) -> None:
    holder = AerospikeClientHolder.get_or_create(config_of(server))
    holder.release()
    holder.release()
    holder.release()
    assert "more often than it was acquired" in caplog.text
    assert holder.refcount == 0
    fresh = AerospikeClientHolder.get_or_create(config_of(server))
    assert fresh is not holder
    holder.release()
    assert fresh.client.is_connected()
    fresh.release()


def test_others_have_other_holders() -> None:
    users = [{"name": "kv", "password": "p"}, {"name": "other", "password": "p"}]
    spaces = [{"name": "lmcache"}, {"name": "second"}]
    with _native.DevServer(users=users, namespaces=spaces) as server:
        login = {"username": "kv", "password": "p"}
        holders = [
            AerospikeClientHolder.get_or_create(config_of(server, **given))
            for given in (
                login,
                {**login, "namespace": "second"},
                {**login, "username": "other"},
                {**login, "set_name": "s", "default_ttl_seconds": -1},
            )
        ]
        assert len({id(holder) for holder in holders}) == 3
        assert holders[3] is holders[0]
        for holder in holders:
            holder.release()


def test_many_threads_make_one_client(server: _native.DevServer) -> None:
    found: list[AerospikeClientHolder] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait(20)
        holder = AerospikeClientHolder.get_or_create(config_of(server))
        found.append(holder)
        barrier.wait(20)
        holder.release()

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({id(holder) for holder in found}) == 1
    assert found[0].refcount == 0


def test_a_cluster_that_is_away_leaves_no_holder() -> None:
    cfg = AerospikeConfig(hosts=(("127.0.0.1", 1),), others={"connect_timeout_ms": 100})
    with pytest.raises(AerospikeConnectionError):
        AerospikeClientHolder.get_or_create(cfg)
    assert cfg.hosts not in [key[0] for key in client._HOLDERS]


def test_what_a_client_tells(server: _native.DevServer) -> None:
    holder = AerospikeClientHolder.get_or_create(config_of(server))
    nodes = holder.client.get_node_names()
    assert [f"{node['address']}:{node['port']}" for node in nodes] == [server.hosts]
    name = nodes[0]["node_name"]
    error, text = holder.client.info_all("build")[name]
    assert error is None
    assert text == f"build\t{holder.client.info_random_node('build').split()[1]}\n"
    with pytest.raises(Exception, match="bogus"):
        holder.client.info_random_node("bogus")
    holder.release()
    assert holder.client.get_node_names() == []
    with pytest.raises(ClosedError):
        holder.client.store(config_of(server))


def test_the_engine_is_configured_by_its_first_user(world: Any, caplog: Any) -> None:
    world(options={"num_io_threads": 1})
    other: World = world(options={"num_io_threads": 3, "default_ttl_seconds": -1})
    assert "num_io_threads as another connector" in caplog.text
    assert other.put("k")
    assert other.connector._store.native.inspect("k")["expires_in"] is None
    assert len(other.holder.client.stores()) == 2


def test_a_forked_child_has_clients_of_its_own(server: _native.DevServer) -> None:
    program = """
import os, sys
from lmcache_aerospike.client import AerospikeClientHolder
from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.errors import ClosedError
host, port = sys.argv[1].rsplit(":", 1)
cfg = AerospikeConfig(hosts=((host, int(port)),))
inherited = AerospikeClientHolder.get_or_create(cfg)
child = os.fork()
if child == 0:
    own = AerospikeClientHolder.get_or_create(cfg)
    assert own is not inherited
    assert own.client.is_connected()
    own.release()
    try:
        inherited.client.info_random_node("build")
    except ClosedError:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert inherited.client.info_random_node("build")
inherited.release()
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, server.hosts], check=True, timeout=60
    )


# ---- the adapter ---------------------------------------------------------------------------------


def test_what_the_adapter_takes() -> None:
    adapter = AerospikeConnectorAdapter()
    for url in (
        "plugin://aerospike",
        "plugin://aerospike.primary",
        "aerospike://h1:3000/ns/set",
    ):
        assert adapter.can_parse(url), url
    for url in ("redis://x", "plugin://aerospike2", "plugin://fs.aerospike", "aerospikes://x", ""):
        assert not adapter.can_parse(url), url


@pytest.mark.parametrize("plugin", ["aerospike", "aerospike.primary"])
def test_the_adapter_makes_a_connector(
    server: _native.DevServer, loop: Any, plugin: str, set_name: str
) -> None:
    extra = {
        f"remote_storage_plugin.{plugin}.hosts": server.hosts,
        f"remote_storage_plugin.{plugin}.set_name": set_name,
    }
    backend = SimpleNamespace(
        config=LMCacheEngineConfig.from_defaults(extra_config=extra),
        metadata=metadata_of(),
        allocate=FakeLocalCPUBackend().allocate,
    )
    for plugin_name in (plugin, None):
        context = ConnectorContext(
            f"plugin://{plugin}", loop, backend, None, None, plugin_name=plugin_name
        )
        made = AerospikeConnectorAdapter().create_connector(context)
        assert isinstance(made, AerospikeRemoteConnector)
        assert (made.cfg.plugin_name, made.cfg.set_name) == (plugin, set_name)
        loop.run_until_complete(made.close())


def test_a_scheduler_has_no_backend(server: _native.DevServer, loop: Any) -> None:
    config = LMCacheEngineConfig.from_defaults(
        extra_config={"remote_storage_plugin.aerospike.hosts": server.hosts}
    )
    context = ConnectorContext("plugin://aerospike", loop, None, config, metadata_of())
    made = AerospikeConnectorAdapter().create_connector(context)
    assert made.batched_contains([FakeKey("k")]) == 0
    loop.run_until_complete(made.close())


def lmcache_config(how: str, server: _native.DevServer) -> tuple[str, LMCacheEngineConfig]:
    prefix = "remote_storage_plugin.aerospike."
    connector = how == "connector class"
    extra = {
        f"{prefix}module_path": "lmcache_aerospike" if connector else "lmcache_aerospike.adapter",
        f"{prefix}class_name": "AerospikeRemoteConnector"
        if connector
        else "AerospikeConnectorAdapter",
    }
    url = "plugin://aerospike"
    if how == "url":
        url = f"aerospike://{server.hosts}/lmcache/by_url?read_timeout_ms=777"
    else:
        extra[f"{prefix}hosts"] = server.hosts
    return url, LMCacheEngineConfig.from_defaults(
        remote_storage_plugins=["aerospike"], extra_config=extra
    )


@pytest.mark.parametrize("how", ["plugin", "url", "connector class"])
def test_lmcache_finds_it(server: _native.DevServer, loop: Any, how: str) -> None:
    url, config = lmcache_config(how, server)
    backend = FakeLocalCPUBackend(config, metadata_of())
    made = CreateConnector(url, loop, backend, config, metadata_of())
    inner = made.getWrappedConnector()
    assert isinstance(inner, AerospikeRemoteConnector)
    if how == "url":
        assert (inner.cfg.set_name, inner.cfg.read_timeout_ms) == ("by_url", 777)
    assert loop.run_until_complete(made.ping()) == 0
    loop.run_until_complete(made.close())


def test_bad_options_fail_with_their_full_key(loop: Any) -> None:
    config = LMCacheEngineConfig.from_defaults(
        extra_config={"remote_storage_plugin.aerospike.primary.replica": "bogus"}
    )
    backend = FakeLocalCPUBackend(config, metadata_of())
    context = ConnectorContext("plugin://aerospike.primary", loop, backend, None, None)
    with pytest.raises(
        AerospikeConfigError, match=r"remote_storage_plugin\.aerospike\.primary\.replica"
    ):
        AerospikeConnectorAdapter().create_connector(context)


def test_a_connector_that_cannot_be_made_releases_its_client(
    server: _native.DevServer, loop: Any
) -> None:
    config = LMCacheEngineConfig.from_defaults(
        extra_config={"remote_storage_plugin.aerospike.hosts": server.hosts}
    )
    context = ConnectorContext("plugin://aerospike", loop, None, config, None)
    before = list(client._HOLDERS)
    with pytest.raises(AssertionError):
        AerospikeConnectorAdapter().create_connector(context)
    assert list(client._HOLDERS) == before


def test_the_package_needs_no_lmcache() -> None:
    program = """
import sys
for name in ("lmcache", "torch", "aerospike", "prometheus_client"):
    sys.modules[name] = None
import lmcache_aerospike
from lmcache_aerospike import client, config, errors, keys, limits, policies, serde, sharding
assert "AerospikeConnectorAdapter" in lmcache_aerospike.__all__
try:
    lmcache_aerospike.AerospikeConnectorAdapter
except ImportError as error:
    assert "lmcache" in str(error)
else:
    raise SystemExit("imported without LMCache")
try:
    lmcache_aerospike.nothing
except AttributeError:
    pass
"""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment)
