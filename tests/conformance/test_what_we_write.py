# SPDX-License-Identifier: Apache-2.0
"""The official client reads every record that our engine writes."""

from __future__ import annotations

import time
import zlib

import aerospike
import pytest
import xxhash
from records import NAMESPACE, InTree, Plugin, plan, random_bytes

MIB = 1 << 20
NEVER = aerospike.TTL_NEVER_EXPIRE
GRACE = 60
SIZES = [0, 1, 4096, 983_040, 983_041, 2 * MIB, 5 * MIB + 3]


def read(client, set_name, user_key):
    """Meta data and bins of a record."""
    _, meta, bins = client.get((NAMESPACE, set_name, user_key))
    return meta, bins


def check_segments(client, set_name, key, content, with_crc32, ttl):
    count, size = plan(len(content))
    for i in range(count):
        meta, bins = read(client, set_name, f"{key}|s|{i}")
        part = content[i * size : (i + 1) * size]
        expected = {"b": part, "sum": signed(xxhash.xxh3_64_intdigest(part))}
        if with_crc32:
            expected["crc32"] = zlib.crc32(part)
        assert bins == expected
        assert type(bins["sum"]) is int
        assert isinstance(bins["b"], bytes)
        assert meta["gen"] == 1
        assert ttl + GRACE - 2 <= meta["ttl"] <= ttl + GRACE
    with pytest.raises(aerospike.exception.RecordNotFound):
        read(client, set_name, f"{key}|s|{count}")


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("with_crc32", [False, True])
def test_every_bin_has_its_type_and_value(client, open_store, set_name, size, with_crc32):
    store = open_store(enable_crc32=with_crc32, default_ttl_seconds=1000)
    content = random_bytes(size, size)
    before = int(time.time())
    assert store.put("key", content) == size
    after = int(time.time())
    meta, bins = read(client, set_name, "key|m")
    count, segment_bytes = plan(size)
    parts = [content[i * segment_bytes : (i + 1) * segment_bytes] for i in range(count)]
    assert before <= bins.pop("created_at") <= after
    expected = {
        "ver": 1,
        "state": "ready",
        "nseg": count,
        "seg_b": segment_bytes,
        "tot_b": size,
        "pin": False,
        "sums": b"".join(xxhash.xxh3_64_digest(part) for part in parts),
    }
    if count == 1:
        expected["b"] = content
    if with_crc32:
        expected["crc32"] = zlib.crc32(content)
    assert bins == expected
    assert type(bins["pin"]) is bool
    for name in ("ver", "nseg", "seg_b", "tot_b"):
        assert type(bins[name]) is int
    assert meta["gen"] == 1
    assert 998 <= meta["ttl"] <= 1000
    if count > 1:
        check_segments(client, set_name, "key", content, with_crc32, 1000)
    else:
        with pytest.raises(aerospike.exception.RecordNotFound):
            read(client, set_name, "key|s|0")


@pytest.mark.parametrize("size", SIZES)
def test_other_readers_of_the_format_read_it(client, open_store, set_name, size):
    store = open_store(enable_crc32=True)
    content = random_bytes(size, size)
    store.put("key", content)
    assert Plugin(client, set_name).get("key") == content
    assert Plugin(client, set_name, enable_crc32=True).get("key") == content
    if size > 0:  # the in-tree connector takes an empty payload for none
        assert InTree(client, set_name).get("key", size) == content


@pytest.mark.parametrize("size", [100, 2 * MIB])
@pytest.mark.parametrize(
    ("ttl", "meta_ttl", "segment_ttl"),
    [
        (0, NEVER, NEVER),  # the namespace's default, which is none
        (-1, NEVER, NEVER),
        (-2, NEVER, NEVER),  # keeps what a new record has
        (1, 1, 1 + GRACE),
        (500, 500, 500 + GRACE),
        (315_360_000, 315_360_000, 315_360_000),
    ],
)
def test_life_times(client, open_store, set_name, size, ttl, meta_ttl, segment_ttl):
    store = open_store(default_ttl_seconds=ttl)
    store.put("key", random_bytes(1, size))
    names = {"key|m": meta_ttl}
    names.update({f"key|s|{i}": segment_ttl for i in range(3 if size > MIB else 0)})
    for name, expected in names.items():
        seen = read(client, set_name, name)[0]["ttl"]
        assert expected - 2 <= seen <= expected + (GRACE if expected != NEVER else 0)
        if name == "key|m":
            assert seen <= expected


def test_a_ttl_of_minus_two_keeps_what_a_record_has(client, open_store, set_name):
    content = random_bytes(1, 2 * MIB)
    open_store().put("key", content, ttl=700)
    open_store(default_ttl_seconds=-2).put("key", content[::-1])
    assert 690 <= read(client, set_name, "key|m")[0]["ttl"] <= 700
    for i in range(3):
        assert 690 + GRACE <= read(client, set_name, f"key|s|{i}")[0]["ttl"] <= 700 + GRACE
    assert Plugin(client, set_name).get("key") == content[::-1]


def test_the_grace_of_segments_can_be_chosen(client, open_store, set_name):
    open_store(segment_ttl_grace_seconds=1234).put("key", random_bytes(1, 2 * MIB), ttl=100)
    assert 98 <= read(client, set_name, "key|m")[0]["ttl"] <= 100
    assert 1330 <= read(client, set_name, "key|s|2")[0]["ttl"] <= 1334


def test_a_touch_renews_all_records(client, store, set_name):
    store.put("key", random_bytes(1, 2 * MIB), ttl=100)
    assert store.touch("key", ttl=900)
    assert 890 <= read(client, set_name, "key|m")[0]["ttl"] <= 900
    for i in range(3):
        assert 890 + GRACE <= read(client, set_name, f"key|s|{i}")[0]["ttl"] <= 900 + GRACE


def test_a_pinned_object_says_so_and_has_no_end(client, store, set_name):
    store.put("key", random_bytes(1, 2 * MIB), pin=True)
    meta, bins = read(client, set_name, "key|m")
    assert bins["pin"] is True
    assert meta["ttl"] == NEVER
    assert read(client, set_name, "key|s|0")[0]["ttl"] == NEVER


def test_each_store_is_one_generation_and_leaves_no_old_bin(client, open_store, set_name):
    open_store(enable_crc32=True).put("key", random_bytes(1, 2 * MIB))
    store = open_store()
    for generation in (2, 3):
        store.put("key", random_bytes(generation, 2 * MIB))
        meta, bins = read(client, set_name, "key|m")
        assert meta["gen"] == generation
        assert "crc32" not in bins
        meta, bins = read(client, set_name, "key|s|1")
        assert meta["gen"] == generation
        assert set(bins) == {"b", "sum"}
    store.put("key", b"inline now")
    assert "b" in read(client, set_name, "key|m")[1]
    assert Plugin(client, set_name).get("key") == b"inline now"
    for i in range(3):
        with pytest.raises(aerospike.exception.RecordNotFound):
            read(client, set_name, f"key|s|{i}")
    store.put("key", random_bytes(9, 2 * MIB))
    assert "b" not in read(client, set_name, "key|m")[1]


@pytest.mark.parametrize("send_key", [True, False])
def test_meta_records_carry_their_key_if_wanted(client, open_store, set_name, send_key):
    store = open_store(send_key=send_key)
    keys = ["plain", "model@01000100@0@00ff@tenant", "caf\u00e9 \U0001f600", "a|m", "x" * 1000]
    for key in keys:
        store.put(key, b"content")
    store.put("large", random_bytes(1, 2 * MIB))
    listed = client.query(NAMESPACE, set_name).results()
    names = [name for (_, _, name, _), _, _ in listed if name is not None]
    assert len(listed) == len(keys) + 4
    expected = [f"{key}|m" for key in [*keys, "large"]] if send_key else []
    assert sorted(names) == sorted(expected)


def test_a_deleted_object_leaves_no_record(client, store, set_name):
    store.put("one", random_bytes(1, 3 * MIB))
    store.put("two", b"stays")
    assert store.delete("one")
    assert len(client.query(NAMESPACE, set_name).results()) == 1
    assert Plugin(client, set_name).get("one") is None
    assert not store.delete("one")


def test_both_find_the_same_digests_and_records(client, store, set_name):
    contents = {f"key {i}": random_bytes(i, 1000 * i) for i in range(50)}
    store.put_many(list(contents), list(contents.values()))
    objects, _ = store.list(count=10_000)
    assert {item["key"] for item in objects} == set(contents)
    for item in objects:
        digest = aerospike.calc_digest(NAMESPACE, set_name, f"{item['key']}|m")
        assert item["digest"] == bytes(digest).hex()
        assert item["bytes"] == len(contents[item["key"]])
