# SPDX-License-Identifier: Apache-2.0
"""The names of objects: any two different keys of LMCache are different objects."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from lmcache_driver import object_key, random_bytes, wire_key

HASH = bytes(range(32))


def test_the_texts_are_those_that_lmcache_makes_today():
    plain = object_key(chunk_hash=HASH, model_name="meta-llama/Llama-3.1-8B")
    assert wire_key(plain) == f"meta-llama/Llama-3.1-8B@01000100@0@{HASH.hex()}"
    salted = object_key(
        chunk_hash=HASH,
        model_name="m",
        kv_rank=0x08050401,
        object_group_id=3,
        cache_salt="tenantA",
    )
    assert wire_key(salted) == f"m@08050401@3@{HASH.hex()}@tenantA"


@pytest.mark.parametrize("size", [700, 2 << 20])
def test_salts_separate_tenants_in_every_operation(driver, size):
    keys = [object_key(chunk_hash=HASH, cache_salt=salt) for salt in ("", "a", "b")]
    contents = [random_bytes(i, size) for i in range(3)]
    assert driver.store(keys[1], contents[1])
    assert driver.lookup(keys) == [False, True, False]
    assert driver.load_many(keys, [size] * 3) == [None, contents[1], None]
    assert driver.store_many(keys, contents).is_successful()
    assert driver.load_many(keys, [size] * 3) == contents
    driver.delete([keys[0]])
    assert driver.lookup(keys) == [False, True, True]
    assert driver.load_many(keys, [size] * 3) == [None, *contents[1:]]
    driver.delete([keys[2]])
    assert driver.load_many(keys, [size] * 3) == [None, contents[1], None]


def test_keys_that_differ_in_one_field_are_different_objects(driver):
    keys = [
        object_key(chunk_hash=HASH),
        object_key(chunk_hash=HASH[:-1] + b"\xff"),
        object_key(chunk_hash=b"\xff" + HASH[1:]),
        object_key(chunk_hash=HASH[:8]),
        object_key(chunk_hash=HASH[-8:]),
        object_key(chunk_hash=HASH + b"\x00"),
        object_key(chunk_hash=b""),
        object_key(chunk_hash=HASH, model_name="meta-llama/Llama-3.1-8b"),
        object_key(chunk_hash=HASH, kv_rank=0x01000101),
        object_key(chunk_hash=HASH, kv_rank=0x08050401),
        object_key(chunk_hash=HASH, kv_rank=0x08050402),
        object_key(chunk_hash=HASH, object_group_id=1),
        object_key(chunk_hash=HASH, object_group_id=0x10),
        object_key(chunk_hash=HASH, cache_salt="0"),
        object_key(chunk_hash=HASH, cache_salt=" 0"),
        object_key(chunk_hash=HASH, cache_salt="0 "),
    ]
    contents = [random_bytes(i, 900) for i in range(len(keys))]
    for i, key in enumerate(keys):
        assert driver.lookup([key]) == [False], f"key {i} is another one's"
        assert driver.store(key, contents[i])
    assert driver.load_many(keys, [900] * len(keys)) == contents


def test_no_escape_makes_two_model_names_one(driver):
    names = [
        "org/model/name",
        "org/model-SEP-name",
        "org-SEP-model-SEP-name",
        "org%2Fmodel/name",
        "org//model/name",
        "org/model/name/",
        "org\\model\\name",
        "org|model|name",
        "org|m",
        "org|s|0",
        "org",
        "ORG",
        "org\x00",
        "org\n",
        "org ",
        "\u6a21\u578b/\u540d",
        unicodedata.normalize("NFC", "mod\xe8le"),
        unicodedata.normalize("NFD", "mod\xe8le"),
        "\U0001f600",
    ]
    keys = [object_key(chunk_hash=HASH, model_name=name) for name in names]
    contents = [random_bytes(i, 500) for i in range(len(names))]
    assert driver.store_many(keys, contents).is_successful()
    assert driver.load_many(keys, [500] * len(keys)) == contents
    for key, content in zip(keys, contents, strict=True):
        driver.delete([key])
        assert driver.load(key, 500) is None
        assert driver.store(key, content)


def test_a_key_that_looks_like_another_ones_segment_is_its_own_object(driver):
    size = 2 << 20
    victim = object_key(chunk_hash=HASH, cache_salt="a")
    impostors = [
        object_key(chunk_hash=HASH, cache_salt=f"a|{suffix}")
        for suffix in ("m", "s", "s|0", "s|1", "s|2", "m|m")
    ]
    content = random_bytes(0, size)
    assert driver.store(victim, content)
    contents = [random_bytes(i + 1, size) for i in range(len(impostors))]
    assert driver.store_many(impostors, contents).is_successful()
    assert driver.load(victim, size) == content
    assert driver.load_many(impostors, [size] * len(impostors)) == contents
    driver.delete(impostors)
    assert driver.load(victim, size) == content


@pytest.mark.parametrize("send_key", [True, False])
@pytest.mark.parametrize("size", [64, 2 << 20])
def test_the_longest_legal_keys_work(make_adapter, send_key, size):
    driver = make_adapter(send_key=send_key)
    keys = [
        object_key(chunk_hash=HASH, model_name="m" * 200, cache_salt="s" * 128),
        object_key(chunk_hash=HASH, model_name="m" * 200, cache_salt="s" * 127),
        object_key(chunk_hash=HASH * 2, model_name="\u540d" * 600, cache_salt="\xe9" * 128),
    ]
    contents = [random_bytes(i, size) for i in range(len(keys))]
    assert driver.store_many(keys, contents).is_successful()
    assert driver.lookup(keys) == [True] * len(keys)
    assert driver.load_many(keys, [size] * len(keys)) == contents
    driver.delete(keys)
    assert driver.lookup(keys) == [False] * len(keys)


def test_a_key_over_the_limit_is_refused_at_once_and_harms_nobody(driver):
    fine, too_long = object_key(1), object_key(2, model_name="m" * 5000)
    for keys in ([too_long], [fine, too_long]):
        contents = [b"content"] * len(keys)
        for call in (
            lambda keys=keys, contents=contents: driver.store_many(keys, contents),
            lambda keys=keys: driver.load_many(keys, [7] * len(keys)),
            lambda keys=keys: driver.lookup(keys),
            lambda keys=keys: driver.delete(keys),
        ):
            with pytest.raises(RuntimeError, match="4096"):
                call()
    assert driver.lookup([fine]) == [False]
    assert driver.store(fine, b"content")
    assert driver.load(fine, 7) == b"content"


def test_salts_with_every_legal_character(driver):
    legal = [chr(c) for c in itertools.chain(range(1, 128), (0xA0, 0x2028, 0x10FFFF))]
    legal = [c for c in legal if c not in "@/\\"]
    keys = [object_key(chunk_hash=HASH, cache_salt=c) for c in legal]
    contents = [random_bytes(i, 50) for i in range(len(keys))]
    assert driver.store_many(keys, contents).is_successful()
    assert driver.load_many(keys, [50] * len(keys)) == contents
