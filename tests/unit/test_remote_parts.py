# SPDX-License-Identifier: Apache-2.0
"""Keys, segments, limits, policies and metadata: the pure parts of the remote connector."""

from __future__ import annotations

import logging
import random
import sys
import time
import zlib
from typing import Any

import pytest
import torch
from fakes import FakeInfoClient, FakeKey, FakeLocalCPUBackend, FakeMemoryObj
from lmcache.utils import CacheEngineKey
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.protocol import RemoteMetadata, init_remote_metadata_info
from unit_world import HIDDEN, LAYERS, TOKENS, World, content

from lmcache_aerospike import keys, limits, policies, serde, sharding
from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.errors import (
    AerospikeConfigError,
    AerospikeInternalError,
    AerospikeNamespaceProbeError,
    AerospikeServerLimitError,
    AerospikeTTLConfigError,
)
from lmcache_aerospike.sharding import ShardPlan

KIB, MIB = 1 << 10, 1 << 20


def config(**given: Any) -> AerospikeConfig:
    return AerospikeConfig(hosts=(("h1", 3000),), **given)


# ---- keys ----------------------------------------------------------------------------------------


def test_record_keys() -> None:
    key = FakeKey("model@1@0@abc@bfloat16")
    assert keys.meta_key("ns", "set", key) == ("ns", "set", "model@1@0@abc@bfloat16|m")
    assert keys.segment_key("ns", "set", key, 3) == ("ns", "set", "model@1@0@abc@bfloat16|s|3")
    many = keys.segment_keys("ns", "set", key, 4)
    assert [one[2].rpartition("|s|")[2] for one in many] == ["0", "1", "2", "3"]
    assert keys.meta_key("ns", "set", "text") == ("ns", "set", "text|m")


def test_keys_of_layers_differ() -> None:
    key = CacheEngineKey("m", 1, 0, 0xABC, torch.bfloat16, {"lmcache.tag.user": "a"})
    texts = [keys.logical_key(one) for one in (key, *key.split_layers(3))]
    assert len(set(texts)) == 4
    assert texts[1] == "m@1@0@abc@bfloat16@0@user%a"


# ---- segments ------------------------------------------------------------------------------------


def plan(size: int, **changes: int) -> ShardPlan:
    sizes = {
        "target_segment_bytes": 4 * MIB,
        "max_segment_bytes": 8 * MIB,
        "min_segment_bytes": 64 * KIB,
        "single_record_threshold_bytes": 4 * MIB,
    }
    return sharding.plan(size, **{**sizes, **changes})


def of_cap(cap: int) -> dict[str, int]:
    most = cap - 65536
    target = min(4 * MIB, most)
    return {
        "target_segment_bytes": target,
        "max_segment_bytes": most,
        "single_record_threshold_bytes": target,
    }


def test_segments_of_the_defaults() -> None:
    assert plan(256) == ShardPlan(1, 256)
    assert plan(4 * MIB) == ShardPlan(1, 4194304)
    assert plan(4 * MIB + 1) == ShardPlan(2, 2097153)
    assert plan(16 * MIB) == ShardPlan(4, 4194304)
    assert plan(64 * MIB) == ShardPlan(16, 4194304)
    assert plan(0) == ShardPlan(1, 0)


@pytest.mark.parametrize(
    ("cap", "size", "expected", "last"),
    [
        (MIB, 983040, (1, 983040), 983040),
        (MIB, 983041, (2, 491521), 491520),
        (MIB, MIB, (2, 524288), 524288),
        (MIB, 2 * MIB, (3, 699051), 699050),
        (MIB, 4 * MIB, (5, 838861), 838860),
        (MIB, 8 * MIB, (9, 932068), 932064),
        (MIB, 16 * MIB, (18, 932068), 932060),
        (MIB, 32 * MIB, (35, 958699), 958666),
        (MIB, 64 * MIB, (69, 972593), 972540),
        (MIB, 80 * MIB, (86, 975420), 975380),
        (8 * MIB, 4194305, (2, 2097153), 2097152),
        (8 * MIB, 8323073, (2, 4161537), 4161536),
        (8 * MIB, 80 * MIB, (20, 4194304), 4194304),
        (128 * KIB, 65536, (1, 65536), 65536),
        (128 * KIB, 65537, (2, 32769), 32768),
    ],
)
def test_segments_of_real_caps(cap: int, size: int, expected: tuple[int, int], last: int) -> None:
    found = plan(size, **of_cap(cap))
    assert (found.nseg, found.seg_b) == expected
    assert size - (found.nseg - 1) * found.seg_b == last


def test_small_segments_are_avoided_where_one_record_holds_it() -> None:
    sizes = {
        "target_segment_bytes": 60000,
        "single_record_threshold_bytes": 50000,
        "max_segment_bytes": 983040,
    }
    assert plan(100000, **sizes) == ShardPlan(1, 100000)


def test_a_target_over_the_most_is_refused() -> None:
    with pytest.raises(AerospikeConfigError, match="target_segment_bytes"):
        plan(17 * MIB, target_segment_bytes=9 * MIB)
    with pytest.raises(AerospikeConfigError):
        plan(16, target_segment_bytes=0)


def test_slices_make_up_the_payload() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(2000):
        size, cap = numbers.randrange(100 * MIB), numbers.choice([128 * KIB, MIB, 8 * MIB])
        found = plan(size, **of_cap(cap))
        slices = [min(found.seg_b, size - i * found.seg_b) for i in range(found.nseg)]
        assert sum(slices) == size
        assert size == 0 or min(slices) > 0
        assert max(slices) <= cap - 65536


def test_the_engine_cuts_the_same_way(world: Any) -> None:
    made: World = world()
    resolved = made.connector._resolved
    for size in (2, 65536, 65538, 131072, 131074, 200_000, 1_000_000):
        made.put_bytes("k", size)
        found = made.connector._store.native.inspect("k")
        expected = sharding.plan(
            size, **{name: getattr(resolved, name) for name in resolved.__dataclass_fields__}
        )
        assert (found["segment_count"], found["segment_bytes"]) == (expected.nseg, expected.seg_b)


# ---- limits --------------------------------------------------------------------------------------

A = "namespace/lmcache\tmax-record-size=1048576;nsup-period=120\n"
B = (
    "max-record-size=0;nsup-period=120;storage-engine=device;"
    "storage-engine.write-block-size=1048576"
)
C = "nsup-period=120;replication-factor=1"
E = "max-record-size=1048576;nsup-period=0"
F = "max-record-size=1048576;nsup-period=0;allow-ttl-without-nsup=true"
K = "x-max-record-size=5;max-record-size=1048576"


def discover(answer: Any) -> limits.ServerLimits:
    return limits.discover_limits(FakeInfoClient(answer), "lmcache")


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        (A, "max-record-size"),
        (B, "storage-engine.write-block-size"),
        ("write-block-size=1048576;nsup-period=120", "write-block-size"),
        (K, "max-record-size"),
    ],
)
def test_the_record_limit(answer: str, source: str) -> None:
    found = discover(answer)
    assert (found.server_max_record_bytes, found.source) == (1048576, source)
    resolved = limits.resolve_segment_limits(config(), found)
    assert resolved.max_segment_bytes == 1048576 - 65536
    assert resolved.target_segment_bytes == 983040
    assert resolved.single_record_threshold_bytes == 983040
    assert resolved.min_segment_bytes == 65536


def test_the_node_is_asked_for_its_namespace() -> None:
    client = FakeInfoClient(A)
    limits.discover_limits(client, "lmcache")
    assert client.commands == ["namespace/lmcache"]


@pytest.mark.parametrize(
    "answer",
    [
        "max-record-size=0;nsup-period=120",
        C,
        "max-record-size=1000",
        "max-record-size=8388609",
        "max-record-size=many",
        "max-record-size=-1",
    ],
)
def test_no_usable_record_limit(answer: str) -> None:
    with pytest.raises(AerospikeServerLimitError):
        discover(answer)


@pytest.mark.parametrize(
    "answer",
    ["", "garbage", "ERROR:4:bad namespace", "type=unknown", "a\t", None, RuntimeError("away")],
)
def test_no_answer_about_the_namespace(answer: Any) -> None:
    with pytest.raises(AerospikeNamespaceProbeError, match="namespace lmcache"):
        discover(answer)


def test_ttl_needs_nsup() -> None:
    with pytest.raises(AerospikeTTLConfigError, match="nsup-period"):
        limits.resolve_segment_limits(config(), discover(E))
    with pytest.raises(AerospikeTTLConfigError, match="nsup-period"):
        limits.discover_limits(FakeInfoClient(E), "lmcache", 86400)
    for ttl in (0, -1, -2):
        limits.resolve_segment_limits(config(default_ttl_seconds=ttl), discover(E))


def test_ttl_without_nsup_may_be_allowed(caplog: Any) -> None:
    limits.resolve_segment_limits(config(), discover(F))
    assert "never purged" in caplog.text


def test_wishes_are_lowered_to_what_the_server_allows(caplog: Any) -> None:
    wishes = config(
        target_segment_bytes=8 * MIB,
        max_segment_bytes=8 * MIB,
        single_record_threshold_bytes=2 * MIB,
        min_segment_bytes=1,
    )
    with caplog.at_level(logging.INFO, "lmcache_aerospike"):
        found = limits.resolve_segment_limits(wishes, discover(A))
    assert found == limits.ResolvedLimits(983040, 983040, 1, 983040)
    for name in ("target_segment_bytes", "max_segment_bytes", "single_record_threshold_bytes"):
        assert f"remote_storage_plugin.aerospike.{name}" in caplog.text
    assert "max-record-size is 1048576 bytes" in caplog.text


def test_a_real_server_through_the_engine_and_the_official_client(world: Any, raw: Any) -> None:
    made: World = world()
    for client in (made.holder.client, raw):
        found = limits.discover_limits(client, "lmcache", 86400)
        assert found.server_max_record_bytes == 128 * KIB
        resolved = limits.resolve_segment_limits(made.cfg, found)
        assert resolved == made.connector._resolved


# ---- policies ------------------------------------------------------------------------------------


def test_policies_have_the_constants_of_the_client() -> None:
    aerospike = pytest.importorskip("aerospike")
    for name, value in policies.CONSTANTS.items():
        assert getattr(aerospike, name) == value, name
    for replica in ("master", "any", "sequence", "prefer_rack"):
        found = policies.read_policy(config(replica=replica))
        assert found["replica"] == getattr(aerospike, f"POLICY_REPLICA_{replica.upper()}")
    for level in ("all", "master"):
        found = policies.write_policy(config(commit_level=level))
        assert found["commit_level"] == getattr(aerospike, f"POLICY_COMMIT_LEVEL_{level.upper()}")


def test_policies(monkeypatch: Any) -> None:
    expected_read = {
        "total_timeout": 5,
        "socket_timeout": 5,
        "replica": 2,
        "key": 1,
        "max_retries": 2,
    }
    expected_write = {
        "total_timeout": 6,
        "socket_timeout": 6,
        "commit_level": 0,
        "key": 0,
        "exists": 0,
        "gen": 0,
        "max_retries": 0,
    }
    for installed in (True, False):
        if not installed:
            monkeypatch.setitem(sys.modules, "aerospike", None)
        assert policies.read_policy(config(read_timeout_ms=5, send_key=True)) == expected_read
        assert policies.write_policy(config(write_timeout_ms=6, send_key=False)) == expected_write
        batch = policies.batch_policy(config(read_timeout_ms=5, write_timeout_ms=6))
        assert batch == {"total_timeout": 6}


def test_unknown_words_are_refused(monkeypatch: Any) -> None:
    with pytest.raises(AerospikeConfigError, match="replica"):
        policies.read_policy(config(replica="bogus"))
    with pytest.raises(AerospikeConfigError, match="commit_level"):
        policies.write_policy(config(commit_level="bogus"))
    aerospike = pytest.importorskip("aerospike")
    monkeypatch.delattr(aerospike, "POLICY_REPLICA_ANY")
    with pytest.raises(AerospikeConfigError, match="POLICY_REPLICA_ANY"):
        policies.read_policy(config(replica="any"))


# ---- metadata and payloads -----------------------------------------------------------------------


@pytest.fixture
def memory() -> FakeMemoryObj:
    init_remote_metadata_info(1)
    made = FakeMemoryObj(
        [torch.Size((2, LAYERS, TOKENS, HIDDEN))], [torch.bfloat16], MemoryFormat.KV_2LTD
    )
    made.raw_data[:] = content(len(made.raw_data))
    return made


class Base:
    """What the connector knows of its chunks."""

    def __init__(self, save_chunk_meta: bool) -> None:
        self.meta_shapes = [torch.Size((2, LAYERS, TOKENS, HIDDEN))]
        self.meta_dtypes = [torch.bfloat16]
        self.meta_fmt = MemoryFormat.KV_2LTD
        self.save_chunk_meta = save_chunk_meta


def bins_of(memory: FakeMemoryObj, nseg: int = 1, **changes: Any) -> dict[str, Any]:
    how: dict[str, Any] = {
        "save_chunk_meta": True,
        "enable_crc32": False,
        "default_ttl": 5,
        "pinned": False,
    }
    size = len(memory.byte_array)
    return serde.meta_bins(
        plan=ShardPlan(nseg, size // nseg), memory_obj=memory, **{**how, **changes}
    )


def test_bins_with_metadata(memory: FakeMemoryObj) -> None:
    bins = bins_of(memory)
    assert (bins["ver"], bins["state"], bins["nseg"]) == (1, "ready", 1)
    assert (bins["seg_b"], bins["tot_b"]) == (len(memory.raw_data), len(memory.raw_data))
    assert bins["pin"] is False
    assert abs(bins["created_at"] - time.time()) < 60
    known = RemoteMetadata.deserialize(bins["md"])
    assert (known.shapes, known.length) == (memory.get_shapes(), len(memory.raw_data))
    backend = FakeLocalCPUBackend()
    made, reshape = serde.allocate_for_read(backend, Base(True), bins)
    assert made is not None
    assert not reshape
    assert backend.allocations == [(known.shapes, known.dtypes, known.fmt)]
    assert all(len(name) <= 14 for name in bins)


def test_bins_without_metadata(memory: FakeMemoryObj) -> None:
    bins = bins_of(memory, save_chunk_meta=False)
    assert "md" not in bins
    backend = FakeLocalCPUBackend()
    for has_metadata, found in ((False, bins), (True, bins), (False, bins_of(memory))):
        made, reshape = serde.allocate_for_read(backend, Base(has_metadata), found)
        assert made is not None
        assert reshape
        assert backend.allocations[-1][0] == Base(True).meta_shapes


def test_no_room(memory: FakeMemoryObj) -> None:
    for save in (True, False):
        found = serde.allocate_for_read(FakeLocalCPUBackend(room=0), Base(save), bins_of(memory))
        assert found == (None, False)


def test_the_payload_is_inline_in_one_record_only(memory: FakeMemoryObj) -> None:
    assert bins_of(memory)["b"] == bytes(memory.raw_data)
    assert "b" not in bins_of(memory, nseg=2)
    assert bins_of(memory, enable_crc32=True)["crc32"] == zlib.crc32(memory.raw_data)
    assert bins_of(memory, pinned=True)["pin"] is True


def test_metadata_of_a_chunk_that_was_cut(memory: FakeMemoryObj) -> None:
    """LMCache's reshape_partial_chunk() leaves the old shape in `shapes`."""
    memory.meta.shape = torch.Size((2, LAYERS, 3, HIDDEN))
    memory.raw_data = memory.raw_data[: 2 * LAYERS * 3 * HIDDEN * 2]
    known = serde.build_remote_metadata(memory)
    assert known.shapes == [memory.meta.shape]
    assert known.length == len(memory.raw_data)


def test_writing_a_payload(memory: FakeMemoryObj) -> None:
    assert serde.write_payload_into(memory, b"abc") == 3
    assert bytes(memory.raw_data[:4]) == b"abc" + content(4)[3:]
    assert serde.write_payload_into(memory, memoryview(bytearray(b"xy"))) == 2
    whole = len(memory.raw_data)
    before = bytes(memory.raw_data)
    with pytest.raises(AerospikeInternalError, match=str(whole + 1)):
        serde.write_payload_into(memory, bytes(whole + 1))
    assert bytes(memory.raw_data) == before
