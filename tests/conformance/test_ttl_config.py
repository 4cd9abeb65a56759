# SPDX-License-Identifier: Apache-2.0
"""Life times and the namespaces that refuse them, as both clients see it."""

from __future__ import annotations

import select
import time

import aerospike
import pytest
from conformance_cluster import open_cluster
from records import NAMESPACE, Plugin, random_bytes

from lmcache_aerospike import Store
from lmcache_aerospike.errors import AerospikeTTLConfigError

MIB = 1 << 20
SET = "life_times"
NEVER = aerospike.TTL_NEVER_EXPIRE


@pytest.fixture(scope="module")
def without_nsup():
    """A namespace that purges nothing, and so refuses life times."""
    yield from open_cluster(namespaces=[{"name": NAMESPACE, "nsup_period_s": 0}])


def test_the_official_client_is_refused_there(without_nsup):
    with pytest.raises(aerospike.exception.ForbiddenError):
        without_nsup.client.put((NAMESPACE, SET, "k"), {"b": b"x"}, policy={"ttl": 10})


@pytest.mark.parametrize("ttl", [1, 86_400])
def test_the_engine_says_so_when_it_is_opened(without_nsup, ttl):
    with pytest.raises(AerospikeTTLConfigError, match="nsup-period"):
        Store(without_nsup.server.hosts, set_name=SET, default_ttl_seconds=ttl)


@pytest.mark.parametrize("ttl", [0, -1, -2])
def test_objects_without_a_life_time_are_welcome(without_nsup, ttl):
    with Store(without_nsup.server.hosts, set_name=SET, default_ttl_seconds=ttl) as store:
        content = random_bytes(ttl, 2 * MIB)
        store.put("key", content)
        assert store.get("key") == content
        _, meta = without_nsup.client.exists((NAMESPACE, SET, "key|m"))
        assert meta["ttl"] == NEVER


def test_a_life_time_for_one_object_is_refused_there(without_nsup):
    with Store(without_nsup.server.hosts, set_name=SET, default_ttl_seconds=-1) as store:
        with pytest.raises(AerospikeTTLConfigError):
            store.put("limited", b"content", ttl=10)
        assert store.get("limited") is None
        store.put("endless", b"content")
        assert store.get("endless") == b"content"


def test_the_default_of_the_namespace():
    for cluster in open_cluster(namespaces=[{"name": NAMESPACE, "default_ttl_s": 400}]):
        with Store(cluster.server.hosts, set_name=SET, default_ttl_seconds=0) as store:
            store.put("key", random_bytes(1, 2 * MIB))
            ages = [
                cluster.client.exists((NAMESPACE, SET, f"key|{suffix}"))[1]["ttl"]
                for suffix in ("m", "s|0", "s|1", "s|2")
            ]
        assert 398 <= ages[0] <= 400
        # Segments must not end before their meta record.
        assert all(age >= ages[0] for age in ages[1:])


def test_both_clients_see_an_object_end():
    namespace = {"name": NAMESPACE, "nsup_period_s": 1}
    for cluster in open_cluster(namespaces=[namespace]):
        options = {"default_ttl_seconds": 1, "segment_ttl_grace_seconds": 1}
        with Store(cluster.server.hosts, set_name=SET, **options) as store:
            store.put("key", random_bytes(1, 2 * MIB))
            plugin = Plugin(cluster.client, SET)
            assert plugin.get("key") is not None
            deadline = time.monotonic() + 10
            while store.exists("key"):
                assert time.monotonic() < deadline
                select.select([], [], [], 0.05)  # expiry has no event
            assert plugin.get("key") is None
            assert store.get("key") is None
            while cluster.server.stats()["records"] > 0:  # nsup takes the segments, too
                assert time.monotonic() < deadline
                select.select([], [], [], 0.05)


def test_a_load_renews_the_life_time_if_wanted():
    for cluster in open_cluster():
        with Store(cluster.server.hosts, set_name=SET, refresh_ttl_on_read=True) as store:
            content = random_bytes(1, 2 * MIB)
            store.put("key", content, ttl=100)
            assert store.get("key") == content
            deadline = time.monotonic() + 10
            while cluster.client.exists((NAMESPACE, SET, "key|m"))[1]["ttl"] <= 100:
                assert time.monotonic() < deadline  # the touch follows the load
                select.select([], [], [], 0.01)
            for suffix in ("m", "s|0", "s|1", "s|2"):
                _, meta = cluster.client.exists((NAMESPACE, SET, f"key|{suffix}"))
                assert meta["ttl"] > 80_000
        with Store(cluster.server.hosts, set_name=SET) as store:
            store.put("other", content, ttl=100)
            assert store.get("other") == content
            assert cluster.client.exists((NAMESPACE, SET, "other|m"))[1]["ttl"] <= 100
