# SPDX-License-Identifier: Apache-2.0
"""Our container of K and V against LMCache's ``asym_k16_v8``, in both directions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lmcache.v1.distributed.serde.asym_k16_v8 import (
    AsymK16V8MultiDeserializer,
    AsymK16V8MultiSerializer,
    AsymK16V8VOnlyMultiDeserializer,
    AsymK16V8VOnlyMultiSerializer,
)
from lmcache_driver import object_key
from serde_driver import (
    BF16,
    FP16,
    FP32,
    KvObject,
    Layout,
    SerdeDriver,
    any_bits,
    byte_object,
    layout_bytes,
    layout_desc,
    numbers,
)

from lmcache_aerospike.errors import AerospikeConnectorError
from lmcache_aerospike.lmcache_serde import AerospikeMultiDeserializer, AerospikeMultiSerializer

# LMCache's container is a view of bytes that torch would like to write into.
pytestmark = pytest.mark.filterwarnings("ignore:The given buffer is not writable")

KEY = object_key()
HEAD_BYTES = 213  # with six empty texts
CRC_AT = HEAD_BYTES - 4
SHAPES = {"kv": (3, 16, 64), "mla": (1, 4, 16, 576), "odd": (1, 5, 33), "one": (1,)}


def infinite(layout: Layout, seed: int) -> bytes:
    """Numbers, and one infinity."""
    content = bytearray(numbers(layout, seed))
    size = layout[0][1].itemsize
    content[:size] = bytes(torch.tensor([math.inf]).to(layout[0][1]).view(torch.uint8).numpy())
    return bytes(content)


def zeros(layout: Layout, seed: int) -> bytes:
    """Nothing to scale by."""
    del seed
    return bytes(layout_bytes(layout))


CONTENTS = {"numbers": numbers, "any_bits": any_bits, "infinite": infinite, "zeros": zeros}


def encode(serializer: Any, k: KvObject | None, v: KvObject | None) -> bytes:
    """The container, from a buffer of the size that the serializer estimates."""
    slots = [slot and slot.memory for slot in (k, v)]
    layouts = [
        slot and layout_desc(list(zip(slot.get_shapes(), slot.get_dtypes(), strict=True)))
        for slot in slots
    ]
    target = byte_object(serializer.estimate_serialized_size(tuple(layouts)))
    size = serializer.serialize(tuple(slots), target.memory, KEY)
    return target.bytes()[:size]


def decode(deserializer: Any, blob: bytes, k: KvObject | None, v: KvObject | None) -> None:
    """Fills the objects."""
    source = byte_object(len(blob), blob)
    deserializer.deserialize(source.memory, tuple(s and s.memory for s in (k, v)), KEY)
    assert source.bytes() == blob


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_write_the_same_bytes_and_read_them_alike(shape, dtype, content):
    layout: Layout = [(SHAPES[shape], dtype)]
    k, v = (KvObject(layout, CONTENTS[content](layout, seed)) for seed in (1, 2))
    blob = encode(AsymK16V8MultiSerializer(), k, v)
    assert encode(AerospikeMultiSerializer(), k, v) == blob
    read = []
    for reader in (AsymK16V8MultiDeserializer(), AerospikeMultiDeserializer()):
        k_out, v_out = KvObject(layout), KvObject(layout)
        decode(reader, blob, k_out, v_out)
        assert k_out.bytes() == k.bytes()
        read.append(v_out.bytes())
    assert read[0] == read[1]


@pytest.mark.parametrize("v_dtype", [BF16, FP16, FP32])
def test_v_is_read_as_any_of_three_types(v_dtype):
    layout: Layout = [((3, 16, 64), BF16)]
    blob = encode(
        AsymK16V8MultiSerializer(), *(KvObject(layout, numbers(layout, s)) for s in (1, 2))
    )
    read = []
    for reader in (AsymK16V8MultiDeserializer(), AerospikeMultiDeserializer()):
        v_out = KvObject([((3, 16, 64), v_dtype)])
        decode(reader, blob, None, v_out)
        read.append(v_out.bytes())
    assert read[0] == read[1]


@pytest.mark.parametrize("wanted", ["k", "v", "neither"])
@pytest.mark.parametrize("reader", [AsymK16V8MultiDeserializer, AerospikeMultiDeserializer])
def test_a_slot_that_is_not_wanted_is_left_alone(reader, wanted):
    layout: Layout = [((3, 16, 64), FP16)]
    k, v = (KvObject(layout, numbers(layout, seed)) for seed in (1, 2))
    whole = KvObject(layout)
    blob = encode(AerospikeMultiSerializer(), k, v)
    decode(reader(), blob, KvObject(layout), whole)
    out = KvObject(layout)
    decode(reader(), blob, out if wanted == "k" else None, out if wanted == "v" else None)
    if wanted == "neither":
        assert out.is_untouched()
    else:
        assert out.bytes() == {"k": k, "v": whole}[wanted].bytes()


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_containers_of_v_alone(dtype, content):
    layout: Layout = [((3, 16, 64), dtype)]
    v = KvObject(layout, CONTENTS[content](layout, 1))
    blob = encode(AsymK16V8VOnlyMultiSerializer(k_dtype_tag=dtype), None, v)
    assert encode(AerospikeMultiSerializer(dtype), None, v) == blob
    read = []
    for reader in (AsymK16V8VOnlyMultiDeserializer(), AerospikeMultiDeserializer()):
        v_out = KvObject(layout)
        decode(reader, blob, None, v_out)
        read.append(v_out.bytes())
    assert read[0] == read[1]
    with pytest.raises(AerospikeConnectorError, match="k16v8"):  # it has no K to give
        decode(AerospikeMultiDeserializer(), blob, KvObject(layout), KvObject(layout))


def test_v_is_required():
    layout: Layout = [((3, 16, 64), BF16)]
    for serializer in (AerospikeMultiSerializer(), AsymK16V8MultiSerializer()):
        with pytest.raises(ValueError, match=r"required|expected|provided"):
            serializer.serialize(
                (KvObject(layout, numbers(layout, 1)).memory, None), byte_object(9999).memory, KEY
            )
        with pytest.raises(ValueError, match=r"required|expected|provided"):
            serializer.serialize((None,), byte_object(9999).memory, KEY)


@pytest.mark.parametrize("reader", [AsymK16V8MultiDeserializer, AerospikeMultiDeserializer])
def test_bytes_behind_the_container_do_no_harm(reader):
    """LMCache's buffers are as long as its estimate, with up to 1,024 bytes behind."""
    layout: Layout = [((3, 16, 64), BF16)]
    k, v = (KvObject(layout, numbers(layout, seed)) for seed in (1, 2))
    blob = encode(AsymK16V8MultiSerializer(), k, v)
    k_out = KvObject(layout)
    decode(reader(), blob + b"\xff" * 811, k_out, KvObject(layout))
    assert k_out.bytes() == k.bytes()


def test_a_container_that_was_cut_or_changed_is_refused():
    layout: Layout = [((1, 4, 8), BF16)]
    k, v = (KvObject(layout, numbers(layout, seed)) for seed in (1, 2))
    blob = encode(AsymK16V8MultiSerializer(), k, v)
    reader = AerospikeMultiDeserializer()
    broken = [blob[:length] for length in range(1, len(blob))]
    # Sums cover the payload alone. In the head these matter: magic, version, types, lengths, sum.
    matter = [*range(18), *range(CRC_AT, len(blob))]
    broken += [blob[:at] + bytes([blob[at] ^ 0x20]) + blob[at + 1 :] for at in matter]
    for blob_of_a_stranger in broken:
        k_out, v_out = KvObject(layout), KvObject(layout)
        with pytest.raises(AerospikeConnectorError, match="k16v8"):
            decode(reader, blob_of_a_stranger, k_out, v_out)
        k_out.bytes(), v_out.bytes()  # checks the guard zones
    for at in range(len(blob)):
        k_out, v_out = KvObject(layout), KvObject(layout)
        try:
            decode(reader, blob[:at] + b"\xff" + blob[at + 1 :], k_out, v_out)
        except AerospikeConnectorError:
            pass
        else:
            assert k_out.bytes() == k.bytes()  # a text or a number that only describes
        v_out.bytes()


def test_the_serde_of_whole_objects_writes_containers_that_lmcache_reads():
    """Each tensor of an object that begins with 2 is a K and a V."""
    layout: Layout = [((2, 3, 16, 64), BF16)]
    half: Layout = [((3, 16, 64), BF16)]
    content = numbers(layout, 1)
    with SerdeDriver({"type": "aerospike_k16v8"}) as ours:
        blob = ours.serialize(layout, content, KEY)
        k, v = (KvObject(half, part) for part in halves(content))
        assert blob == encode(AsymK16V8MultiSerializer(), k, v)
        k_out, v_out = KvObject(half), KvObject(half)
        decode(AsymK16V8MultiDeserializer(), blob, k_out, v_out)
        assert ours.deserialize(layout, blob, KEY) == k_out.bytes() + v_out.bytes()


def halves(content: bytes) -> tuple[bytes, bytes]:
    """K and V."""
    middle = len(content) // 2
    return content[:middle], content[middle:]
