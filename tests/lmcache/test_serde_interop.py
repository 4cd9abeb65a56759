# SPDX-License-Identifier: Apache-2.0
"""Our serdes and LMCache's read each other's bytes, and refuse what nobody wrote."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash
from lmcache.v1.distributed.serde import AsyncSerdeProcessor, single_to_multi_serializer
from lmcache_driver import object_key
from serde_driver import (
    BF16,
    E4M3,
    E5M2,
    FP16,
    FP32,
    U8,
    KvObject,
    Layout,
    SerdeDriver,
    any_bits,
    byte_object,
    layout_desc,
    numbers,
)

from lmcache_aerospike.lmcache_serde import AerospikeDeserializer, AerospikeSerializer

Open = Callable[..., SerdeDriver]

LAYOUTS: dict[str, Layout] = {
    "kv": [((2, 3, 16, 64), BF16)],
    "kv_float16": [((2, 2, 16, 64), FP16)],
    "kv_float32": [((2, 2, 4, 32), FP32)],
    "mla": [((1, 4, 16, 576), BF16)],
    "odd": [((2, 1, 5, 33), BF16)],
    "one": [((1,), FP16)],
    "all_bfloat16": [((1 << 16,), BF16)],
}
CONTENTS = {"numbers": numbers, "any_bits": any_bits}
FORMATS = ["float8_e4m3fn", "float8_e5m2"]
SALTS = ["", "tenantA", "mandant-\u00fc", "x" * 128]
SMALL: Layout = [((2, 1, 4, 8), BF16)]  # short enough to try each length of its frame


@pytest.fixture
def open_serde() -> Iterator[Open]:
    """Makes processors as LMCache does, closed at the end."""
    drivers: list[SerdeDriver] = []

    def make(name: str, **params: Any) -> SerdeDriver:
        drivers.append(SerdeDriver({"type": name, **params}))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    """A master key that only its owner can read."""
    return make_key_file(tmp_path / "master.key")


def make_key_file(path: Path) -> str:
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(32))
    return str(path)


def flipped(frame: bytes, at: int, bit: int = 0) -> bytes:
    """The frame with one bit turned over."""
    return frame[:at] + bytes([frame[at] ^ (1 << bit)]) + frame[at + 1 :]


# ---- fp8 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fp8_dtype", FORMATS)
def test_fp8_writes_and_reads_what_lmcache_does(open_serde, fp8_dtype, layout, content):
    ours, theirs = (open_serde(name, fp8_dtype=fp8_dtype) for name in ("aerospike_fp8", "fp8"))
    shape, key = LAYOUTS[layout], object_key()
    source = CONTENTS[content](shape, 1)
    if layout == "all_bfloat16":
        source = b"".join(i.to_bytes(2, "little") for i in range(1 << 16))
    assert ours.estimate(shape) == theirs.estimate(shape)
    frame = theirs.serialize(shape, source, key)
    assert ours.serialize(shape, source, key) == frame
    back = theirs.deserialize(shape, frame, key)
    assert back is not None
    assert ours.deserialize(shape, frame, key) == back


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("fp8_dtype", FORMATS)
def test_each_code_of_fp8_becomes_the_number_that_lmcache_makes_of_it(open_serde, fp8_dtype, dtype):
    ours, theirs = (open_serde(name, fp8_dtype=fp8_dtype) for name in ("aerospike_fp8", "fp8"))
    layout, codes = [((256,), dtype)], bytes(range(256))
    theirs_back = theirs.deserialize(layout, codes, object_key())
    assert theirs_back is not None
    assert ours.deserialize(layout, codes, object_key()) == theirs_back


def test_fp8_writes_the_tensors_of_a_hybrid_object_one_behind_the_other(open_serde):
    """LMCache's own fails on such objects; each tensor alone is what it would write."""
    ours, theirs = open_serde("aerospike_fp8"), open_serde("fp8")
    parts: list[Layout] = [[((2, 2, 8, 16), BF16)], [((1, 3, 8, 24), FP16)], [((5,), FP32)]]
    contents = [any_bits(part, seed) for seed, part in enumerate(parts)]
    frames = [theirs.serialize(p, c, object_key()) for p, c in zip(parts, contents, strict=True)]
    whole = [tensor for part in parts for tensor in part]
    frame = ours.serialize(whole, b"".join(contents), object_key())
    assert frame == b"".join(frames)
    back = [theirs.deserialize(p, f, object_key()) for p, f in zip(parts, frames, strict=True)]
    assert ours.deserialize(whole, frame, object_key()) == b"".join(back)


@pytest.mark.parametrize("dtype", [U8, E4M3, E5M2])
def test_fp8_leaves_a_cache_of_8_bits_as_it_is(open_serde, dtype):
    ours, layout = open_serde("aerospike_fp8"), [((2, 2, 8, 16), dtype)]
    source = bytes(range(256)) * 2
    frame = ours.serialize(layout, source, object_key())
    assert frame == source
    assert ours.deserialize(layout, frame, object_key()) == source


def test_fp8_refuses_each_frame_that_is_too_short(open_serde):
    ours = open_serde("aerospike_fp8")
    frame = ours.serialize(SMALL, numbers(SMALL, 1), object_key())
    for length in range(1, len(frame)):
        assert ours.deserialize(SMALL, frame[:length], object_key()) is None
    assert ours.deserialize(SMALL, frame + b"more", object_key()) is not None


# ---- aesgcm ------------------------------------------------------------------------------------


@pytest.mark.parametrize("salt", SALTS, ids=["none", "ascii", "utf8", "long"])
@pytest.mark.parametrize("bits", [128, 256])
def test_aesgcm_reads_lmcaches_frames_and_is_read_by_it(open_serde, key_file, bits, salt):
    params = {"master_key_path": key_file, "aes_bits": bits}
    ours, theirs = open_serde("aerospike_aesgcm", **params), open_serde("aesgcm", **params)
    key = object_key(cache_salt=salt)
    for layout in LAYOUTS.values():
        source = any_bits(layout, 2)
        assert ours.estimate(layout) == theirs.estimate(layout) == len(source) + 29
        for writer, reader in ((ours, theirs), (theirs, ours)):
            frame = writer.serialize(layout, source, key)
            assert len(frame) == len(source) + 29
            assert frame[0] == 1
            assert reader.deserialize(layout, frame, key) == source
            assert writer.deserialize(layout, frame + b"behind", key) == source
            assert writer.serialize(layout, source, key)[1:13] != frame[1:13], "an IV came twice"


def test_aesgcm_refuses_what_lmcache_refuses(open_serde, key_file, tmp_path):
    params = {"master_key_path": key_file}
    ours, theirs = open_serde("aerospike_aesgcm", **params), open_serde("aesgcm", **params)
    key, source = object_key(cache_salt="a"), numbers(SMALL, 1)
    frame = theirs.serialize(SMALL, source, key)
    for length in range(1, len(frame)):
        assert ours.deserialize(SMALL, frame[:length], key) is None
    for at in range(len(frame)):  # version, IV, ciphertext and tag
        assert ours.deserialize(SMALL, flipped(frame, at, at % 8), key) is None
    for at in (0, 1, 13, len(frame) - 1):
        assert theirs.deserialize(SMALL, flipped(frame, at), key) is None
    assert ours.deserialize(SMALL, frame, object_key(cache_salt="b")) is None
    assert ours.deserialize(SMALL, frame, object_key()) is None
    wide = open_serde("aerospike_aesgcm", **params, aes_bits=256)
    assert wide.deserialize(SMALL, frame, key) is None
    other = open_serde("aerospike_aesgcm", master_key_path=make_key_file(tmp_path / "other"))
    assert other.deserialize(SMALL, frame, key) is None
    assert ours.deserialize(SMALL, frame, key) == source


# ---- checksum ----------------------------------------------------------------------------------


def checksum_frame(payload: bytes, chunk_hash: bytes) -> bytes:
    """The frame as LMCache's development version writes it; 0.5.6 has none."""
    fingerprint = chunk_hash[:8].ljust(8, b"\0")
    return b"\x01" + fingerprint + xxhash.xxh3_64(payload).digest() + payload


@pytest.mark.parametrize("hash_bytes", [32, 8, 3, 20])
def test_checksum_writes_version_fingerprint_sum_and_payload(open_serde, hash_bytes):
    ours = open_serde("aerospike_checksum")
    key = object_key(chunk_hash=bytes(range(7, 7 + hash_bytes)))
    for layout in LAYOUTS.values():
        source = any_bits(layout, 3)
        frame = checksum_frame(source, key.chunk_hash)
        assert ours.estimate(layout) == len(frame)
        assert ours.serialize(layout, source, key) == frame
        assert ours.deserialize(layout, frame, key) == source


def test_checksum_refuses_damage_and_frames_of_other_keys(open_serde):
    ours, key, source = open_serde("aerospike_checksum"), object_key(1), numbers(SMALL, 1)
    frame = checksum_frame(source, key.chunk_hash)
    for length in range(1, len(frame)):
        assert ours.deserialize(SMALL, frame[:length], key) is None
    for at in range(len(frame)):
        assert ours.deserialize(SMALL, flipped(frame, at, at % 8), key) is None
    assert ours.deserialize(SMALL, frame, object_key(2)) is None
    assert ours.deserialize(SMALL, frame + b"behind", key) == source


# ---- formats of our own ------------------------------------------------------------------------

OWN: dict[str, dict[str, Any]] = {
    "lossless": {"type": "aerospike_lossless"},
    "int8": {"type": "aerospike_int8"},
    "int4": {"type": "aerospike_int4"},
    "chain": {
        "type": "aerospike_chain",
        "stages": [{"type": "lossless"}, {"type": "checksum"}],
    },
}


@pytest.mark.parametrize("name", OWN)
def test_a_frame_that_was_cut_is_refused_at_each_length(name):
    with SerdeDriver(OWN[name]) as ours:
        source = numbers(SMALL, 1)
        frame = ours.serialize(SMALL, source, object_key())
        whole = ours.deserialize(SMALL, frame, object_key())
        assert whole is not None
        for length in range(1, len(frame)):
            assert ours.deserialize(SMALL, frame[:length], object_key()) is None
        assert ours.deserialize(SMALL, frame + b"behind", object_key()) == whole


@pytest.mark.parametrize("name", ["lossless", "chain"])
def test_a_frame_in_which_any_bit_was_turned_is_refused(name):
    with SerdeDriver(OWN[name]) as ours:
        frame = ours.serialize(SMALL, numbers(SMALL, 1), object_key())
        for at in range(len(frame)):
            for bit in (0, 7):
                assert ours.deserialize(SMALL, flipped(frame, at, bit), object_key()) is None, at


@pytest.mark.parametrize("name", OWN)
def test_a_frame_of_another_layout_is_refused(name):
    with SerdeDriver(OWN[name]) as ours:
        frame = ours.serialize(SMALL, numbers(SMALL, 1), object_key())
        others: list[Layout] = [
            [((2, 1, 4, 9), BF16)],
            [((2, 1, 4, 7), BF16)],
            [((2, 1, 4, 8), FP32)],
        ]
        for other in others:
            assert ours.deserialize(other, frame, object_key()) is None


@pytest.mark.parametrize("name", ["lossless", "chain"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_bits_come_back(name, layout):
    with SerdeDriver(OWN[name]) as ours:
        for seed, make in enumerate(CONTENTS.values()):
            source = make(LAYOUTS[layout], seed)
            frame = ours.serialize(LAYOUTS[layout], source, object_key())
            assert len(frame) <= ours.estimate(LAYOUTS[layout])
            assert ours.deserialize(LAYOUTS[layout], frame, object_key()) == source


@pytest.mark.parametrize("serde", [{"type": "aerospike_fp8"}, *OWN.values()], ids=["fp8", *OWN])
def test_an_object_that_is_larger_than_the_first_fails_its_batch(serde):
    """LMCache's wrapper reserves the buffers of a batch by its first object."""
    larger: Layout = [((2, 1, 4, 32), BF16)]
    with SerdeDriver(serde) as ours:
        room = ours.estimate(SMALL)
        sources = [KvObject(layout, any_bits(layout, 1)) for layout in (SMALL, larger)]
        targets = [byte_object(room), byte_object(room)]
        assert not ours.run_serialize(sources, targets, [object_key(1), object_key(2)])
        for target in targets:
            target.bytes()  # checks the guard zones


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", ["fp8", "k16v8", "checksum", *OWN])
def test_lmcaches_own_processor_runs_our_classes(name, workers):
    """LMCache passes three arguments, and narrows the target to what was written."""
    serde = OWN.get(name, {"type": f"aerospike_{name}"})
    params = {key: value for key, value in serde.items() if key != "type"}
    theirs = AsyncSerdeProcessor(
        AerospikeSerializer(serde["type"], **params),
        AerospikeDeserializer(serde["type"], **params),
        max_workers=workers,
    )
    with SerdeDriver(serde, theirs) as inside, SerdeDriver(serde) as ours:
        for i, layout in enumerate(LAYOUTS.values()):
            key, source = object_key(i), numbers(layout, i)
            assert inside.estimate(layout) == ours.estimate(layout)
            frame = inside.serialize(layout, source, key)
            assert frame is not None
            assert frame == ours.serialize(layout, source, key)
            back = inside.deserialize(layout, frame, key)
            assert back is not None
            assert back == ours.deserialize(layout, frame, key)
            assert inside.deserialize(layout, frame[:-1], key) is None


@pytest.mark.parametrize("name", ["fp8", "checksum", *OWN])
def test_the_form_with_two_arguments_is_the_form_without_a_key(name):
    """As in LMCache before 0.5. Its bridge to groups writes the same bytes."""
    serde = OWN.get(name, {"type": f"aerospike_{name}"})
    params = {key: value for key, value in serde.items() if key != "type"}
    serializer = AerospikeSerializer(serde["type"], **params)
    deserializer = AerospikeDeserializer(serde["type"], **params)
    layout = LAYOUTS["kv"]
    source = KvObject(layout, numbers(layout, 1))
    room = serializer.estimate_serialized_size(layout_desc(layout))
    frames = []
    grouped = byte_object(room)
    size = single_to_multi_serializer(serializer).serialize((source.memory,), grouped.memory, None)
    for arguments in ((), (None,)):
        target = byte_object(room)
        size = serializer.serialize(source.memory, target.memory, *arguments)
        frames.append(target.bytes()[:size])
        back = KvObject(layout)
        deserializer.deserialize(byte_object(size, frames[-1]).memory, back.memory, *arguments)
        assert not back.is_untouched()
        if name in ("checksum", "lossless", "chain"):
            assert back.bytes() == source.bytes()
    assert frames[0] == frames[1] == grouped.bytes()[:size]
