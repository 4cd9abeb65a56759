# SPDX-License-Identifier: Apache-2.0
"""Our engine reads version 1 records of other writers, and takes damaged ones for misses."""

from __future__ import annotations

import aerospike
import pytest
from records import NAMESPACE, InTree, Plugin, random_bytes, remote_metadata

from lmcache_aerospike import Store

MIB = 1 << 20
SIZES = [0, 1, 4096, 983_040, 983_041, 2 * MIB, 5 * MIB + 3]
SEGMENTED = 2 * MIB + 7  # three segments


def load(store: Store, key: str, size: int) -> bytes | None:
    """Loads into a buffer with guard zones, as LMCache's buffers have neighbours."""
    arena = bytearray(b"\xa5" * (size + 128))
    found = store.get_into(key, memoryview(arena)[64 : 64 + size])
    assert arena[:64] == arena[64 + size :] == b"\xa5" * 64
    return None if found is None else bytes(arena[64 : 64 + found])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pin", [False, True, 0, 1])
@pytest.mark.parametrize("extras", ["", "crc32", "md", "crc32 md"])
def test_the_python_plugins_objects(client, open_store, set_name, size, pin, extras):
    content = random_bytes(size, size)
    plugin = Plugin(
        client, set_name, enable_crc32="crc32" in extras, save_chunk_meta="md" in extras, pin=pin
    )
    plugin.put("key", content)
    for verify in ("none", "identity", "full"):
        store = open_store(verify=verify, enable_crc32=verify == "full")
        assert store.exists("key")
        assert load(store, "key", size) == content
        assert store.get("key") == content
    details = store.inspect("key")
    assert details is not None
    assert details["bytes"] == size
    assert details["pin"] is bool(pin)
    assert details["has_crc32"] is ("crc32" in extras)
    assert details["has_sums"] is False
    assert details["metadata_bytes"] == (len(remote_metadata(size)) if "md" in extras else 0)
    assert details["segment_count"] == (1 if size <= 983_040 else len(details["records"]) - 1)


@pytest.mark.parametrize("size", SIZES[1:])
def test_the_in_tree_connectors_objects(client, store, set_name, size):
    content = random_bytes(size, size)
    InTree(client, set_name).put("key", content)
    assert store.exists_many(["key", "other"]) == [True, False]
    assert load(store, "key", size) == content
    assert store.get("key") == content
    assert load(store, "key", size - 1) is None
    assert load(store, "key", size + 100) == content


@pytest.mark.parametrize("target", [65_536, 100_000, 524_288])
def test_segments_of_any_size(client, store, set_name, target):
    """The meta record says how an object is cut, not our own plan."""
    content = random_bytes(target, SEGMENTED)
    Plugin(client, set_name, target=target, enable_crc32=True).put("key", content)
    assert load(store, "key", SEGMENTED) == content
    assert store.get("key") == content


def test_one_record_and_many_are_the_same_object(client, open_store, set_name):
    """Two writers that cut the same payload in different ways."""
    content = random_bytes(1, 900_000)
    Plugin(client, set_name).put("key", content)
    fine = open_store(target_segment_bytes=65_536, min_segment_bytes=1)
    assert load(fine, "key", 900_000) == content
    fine.put("key", content[::-1])
    assert fine.inspect("key")["segment_count"] == 14
    assert load(open_store(), "key", 900_000) == content[::-1]
    assert InTree(client, set_name).get("key", 900_000) == content[::-1]


@pytest.mark.parametrize("size", [4096, SEGMENTED])
def test_objects_change_hands(client, store, set_name, size):
    """Each writes over what the other has stored, and deletes what the other has stored."""
    plugin, in_tree = Plugin(client, set_name, enable_crc32=True), InTree(client, set_name)
    contents = [random_bytes(i, size) for i in range(4)]
    plugin.put("key", contents[0])
    store.put("key", contents[1])
    assert Plugin(client, set_name).get("key") == contents[1]
    in_tree.put("key", contents[2])
    # Their put keeps the bins that it does not name: our sums agree with each other, as before.
    assert load(store, "key", size) == contents[2]
    store.put("key", contents[3])
    assert load(store, "key", size) == contents[3]
    assert in_tree.get("key", size) == contents[3]
    assert store.delete("key")
    plugin.put("key", contents[0])
    assert load(store, "key", size) == contents[0]
    assert store.delete("key")
    assert plugin.get("key") is None
    assert client.query(NAMESPACE, set_name).results() == []


DAMAGES = {
    "ver missing": {"without": ("ver",)},
    "ver 2": {"instead": {"ver": 2}},
    "ver text": {"instead": {"ver": "1"}},
    "state missing": {"without": ("state",)},
    "state writing": {"instead": {"state": "writing"}},
    "state bytes": {"instead": {"state": b"ready"}},
    "state empty": {"instead": {"state": ""}},
    "nseg missing": {"without": ("nseg",)},
    "nseg 0": {"instead": {"nseg": 0}},
    "nseg -1": {"instead": {"nseg": -1}},
    "nseg one more": {"instead": {"nseg": 4}},
    "nseg one less": {"instead": {"nseg": 2}},
    "nseg 10^9": {"instead": {"nseg": 10**9}},
    "nseg 2^63-1": {"instead": {"nseg": 2**63 - 1}},
    "nseg text": {"instead": {"nseg": "3"}},
    "nseg bool": {"instead": {"nseg": True}},
    "nseg float": {"instead": {"nseg": 3.0}},
    "seg_b missing": {"without": ("seg_b",)},
    "seg_b 0": {"instead": {"seg_b": 0}},
    "seg_b -1": {"instead": {"seg_b": -1}},
    "seg_b one more": {"instead": {"seg_b": 699_056}},
    "seg_b 2^31": {"instead": {"seg_b": 2**31}},
    "seg_b 2^63-1": {"instead": {"seg_b": 2**63 - 1}},
    "tot_b missing": {"without": ("tot_b",)},
    "tot_b -1": {"instead": {"tot_b": -1}},
    "tot_b 0": {"instead": {"tot_b": 0}},
    "tot_b one less": {"instead": {"tot_b": SEGMENTED - 1}},
    "tot_b 2^62": {"instead": {"tot_b": 2**62}},
    "created_at text": {"instead": {"created_at": "now"}},
    "created_at -1": {"instead": {"created_at": -1}},
    "pin 2": {"instead": {"pin": 2}},
    "pin text": {"instead": {"pin": "yes"}},
    "md text": {"instead": {"md": "metadata"}},
    "crc32 text": {"instead": {"crc32": "00000000"}},
    "crc32 2^32": {"instead": {"crc32": 2**32}},
    "crc32 -1": {"instead": {"crc32": -1}},
    "sums short": {"instead": {"sums": bytes(23)}},
    "sums text": {"instead": {"sums": "x" * 24}},
    "sums of others": {"instead": {"sums": bytes(24)}},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_meta_record_that_makes_no_sense_is_a_miss(client, store, set_name, damage):
    content = random_bytes(1, SEGMENTED)
    Plugin(client, set_name, **DAMAGES[damage]).put("bad", content)
    Plugin(client, set_name).put("good", content)
    buffers = [bytearray(SEGMENTED) for _ in range(3)]
    assert store.get_many_into(["good", "bad", "good"], buffers) == [SEGMENTED, None, SEGMENTED]
    assert buffers[0] == buffers[2] == content
    assert store.get("bad") is None
    # Lookups of this process do not find again what could not be loaded, until it is stored.
    assert store.exists_many(["good", "bad"]) == [True, False]
    store.put("bad", content)
    assert store.get("bad") == content
    assert store.exists("bad")


INLINE_DAMAGES = {
    "b missing": {"without": ("b",)},
    "b text": {"instead": {"b": "x" * 5000}},
    "b short": {"instead": {"b": b"x" * 4999}},
    "b long": {"instead": {"b": b"x" * 5001}},
    "b empty": {"instead": {"b": b""}},
    "nseg 2": {"instead": {"nseg": 2}},
    "seg_b short": {"instead": {"seg_b": 4999}},
    "tot_b short": {"instead": {"tot_b": 4999}},
    "sums long": {"instead": {"sums": bytes(16)}},
}


@pytest.mark.parametrize("damage", INLINE_DAMAGES)
def test_a_damaged_inline_object_is_a_miss(client, store, set_name, damage):
    content = random_bytes(1, 5000)
    Plugin(client, set_name, **INLINE_DAMAGES[damage]).put("bad", content)
    assert load(store, "bad", 5000) is None
    assert store.get("bad") is None
    assert not store.exists("bad")


@pytest.mark.parametrize(
    "bins",
    [
        None,  # removed
        {"b": b"short"},
        {"b": bytes(699_054)},  # one byte too long
        {"b": "x" * 699_053},
        {"c": bytes(699_053)},
        {"b": 7},
    ],
    ids=["removed", "short", "long", "text", "other bin", "integer"],
)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_damaged_segment_is_a_miss(client, store, set_name, bins, index):
    content = random_bytes(1, SEGMENTED)
    plugin = Plugin(client, set_name)
    plugin.put("bad", content)
    plugin.put("good", content)
    key = plugin.key("bad", f"s|{index}")
    client.remove(key)
    if bins is not None:
        client.put(key, bins)
    buffers = [bytearray(SEGMENTED) for _ in range(2)]
    assert store.get_many_into(["bad", "good"], buffers) == [None, SEGMENTED]
    assert buffers[1] == content
    assert store.get("bad") is None


def flip(content: bytes, at: int) -> bytes:
    """The content with one bit turned over."""
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.parametrize("options", [{"enable_crc32": True}, {"verify": "full"}])
@pytest.mark.parametrize("size", [5000, SEGMENTED])
def test_bit_rot_in_foreign_records_is_seen_by_their_crc32(
    client, open_store, set_name, options, size
):
    content = random_bytes(1, size)
    plugin = Plugin(client, set_name, enable_crc32=True)
    plugin.put("key", content)
    store = open_store(**options)
    assert load(store, "key", size) == content
    key = plugin.key("key", "m" if size == 5000 else "s|1")
    _, _, bins = client.get(key)
    client.put(key, {"b": flip(bins["b"], 1234)})
    assert load(store, "key", size) is None
    assert store.stats()["misses_by_reason"]["payload_hash"] == 1


@pytest.mark.parametrize("size", [5000, SEGMENTED])
def test_bit_rot_in_our_records_is_seen_if_asked_for(client, open_store, set_name, size):
    content = random_bytes(1, size)
    store = open_store(verify="full")
    store.put("key", content)
    assert load(store, "key", size) == content
    key = (NAMESPACE, set_name, "key|m" if size == 5000 else "key|s|1")
    _, _, bins = client.get(key)
    client.put(key, {"b": flip(bins["b"], 1234)})
    assert load(store, "key", size) is None
    assert store.stats()["misses_by_reason"]["payload_hash"] == 1


@pytest.mark.parametrize("with_crc32", [False, True])
def test_two_segments_that_changed_places_are_a_miss(client, open_store, set_name, with_crc32):
    """Both have the right size; our sums tell them apart, theirs only the crc32 of the whole."""
    content = random_bytes(1, 3 * 699_050)
    if with_crc32:
        Plugin(client, set_name, enable_crc32=True).put("key", content)
        store = open_store(enable_crc32=True)
    else:
        store = open_store()
        store.put("key", content)
    keys = [(NAMESPACE, set_name, f"key|s|{i}") for i in (0, 1)]
    bins = [client.get(key)[2] for key in keys]
    assert len(bins[0]["b"]) == len(bins[1]["b"])
    client.put(keys[0], bins[1])
    client.put(keys[1], bins[0])
    assert load(store, "key", len(content)) is None


@pytest.mark.parametrize(
    ("exists", "verify"),
    [
        (aerospike.POLICY_EXISTS_CREATE_OR_REPLACE, "identity"),
        # A put that keeps the bins that it does not name keeps our sum of the old content, too.
        (aerospike.POLICY_EXISTS_IGNORE, "full"),
    ],
)
def test_a_half_finished_overwrite_by_another_client_is_no_mixture(
    client, open_store, set_name, exists, verify
):
    content, other = random_bytes(1, SEGMENTED), random_bytes(2, SEGMENTED)
    store, plugin = open_store(verify=verify), Plugin(client, set_name)
    for written in range(1, 4):
        store.put("key", content)
        assert load(store, "key", SEGMENTED) == content
        for i in range(written):
            part = other[i * 699_053 : (i + 1) * 699_053]
            client.put(plugin.key("key", f"s|{i}"), {"b": part}, policy={"exists": exists})
        assert load(store, "key", SEGMENTED) is None


def test_records_of_other_applications_are_no_objects(client, store, set_name):
    client.put((NAMESPACE, set_name, "key|m"), {"name": "not ours", "b": b"x"})
    client.put((NAMESPACE, set_name, 7), {"n": 1})
    client.put((NAMESPACE, set_name, b"bytes"), {"n": 1})
    assert load(store, "key", 100) is None
    assert store.get("7") is None
    objects, cursor = store.list(count=100)
    assert cursor == 4096
    assert [item["key"] for item in objects if item["ready"]] == []
