# SPDX-License-Identifier: Apache-2.0
"""What holds for every shape, type and value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmcache_aerospike import serde

WIDTHS = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
FLOATS = ["bfloat16", "float16", "float32"]
EXAMPLES = settings(
    max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)

shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
layouts = st.lists(st.tuples(shapes, st.sampled_from(sorted(WIDTHS))), min_size=1, max_size=3)
seeds = st.integers(0, 2**32 - 1)
SALT = "abz019-_\u00fc"


def size_of(layout: list[tuple[tuple[int, ...], str]]) -> int:
    return sum(math.prod(shape) * WIDTHS[dtype] for shape, dtype in layout)


def random_bytes(seed: int, size: int) -> bytes:
    """Noise, but with runs, so that there is something to compress."""
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, size, np.uint8)
    data[random.random(size) < random.random()] = random.integers(0, 256)
    return data.tobytes()


@pytest.fixture(scope="module")
def key_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("keys") / "master"
    path.write_bytes(bytes(range(16)))
    path.chmod(0o600)
    return str(path)


def exact_pair(name: str, key_path: str, level: int) -> tuple[serde.Serializer, serde.Deserializer]:
    if name == "lossless":
        return serde.LosslessSerializer(level=level), serde.LosslessDeserializer()
    if name == "checksum":
        return serde.ChecksumSerializer(), serde.ChecksumDeserializer()
    if name == "aesgcm":
        return serde.AesGcmSerializer(key_path), serde.AesGcmDeserializer(key_path)
    stages: list[dict[str, object]] = [
        {"type": "lossless", "level": level},
        {"type": "aesgcm", "master_key_path": key_path, "aes_bits": 256},
        {"type": "aerospike_checksum"},
    ]
    return serde.ChainSerializer(stages), serde.ChainDeserializer(stages)


@pytest.mark.parametrize("name", ["lossless", "checksum", "aesgcm", "chain"])
@EXAMPLES
@given(layout=layouts, seed=seeds, level=st.integers(1, 3), data=st.data())
def test_exact_formats_give_every_bit_back(
    name: str,
    key_path: str,
    layout: list[tuple[tuple[int, ...], str]],
    seed: int,
    level: int,
    data: st.DataObject,
) -> None:
    serializer, deserializer = exact_pair(name, key_path, level)
    key = serde.SerdeKey(data.draw(st.binary(max_size=40)), data.draw(st.text(SALT, max_size=20)))
    source = random_bytes(seed, size_of(layout))
    estimate = serializer.estimate_serialized_size(layout)
    buffer = bytearray(b"\xaa" * (estimate + 8))
    size = serializer.serialize(serde.Tensors(source, layout), memoryview(buffer)[:estimate], key)
    assert size <= estimate
    assert buffer[estimate:] == b"\xaa" * 8
    if name in {"lossless", "checksum"}:
        again = bytearray(estimate)
        assert serializer.serialize(serde.Tensors(source, layout), again, key) == size
        assert again[:size] == buffer[:size]
    for kept in (size, len(buffer)):
        target = bytearray(len(source))
        deserializer.deserialize(memoryview(buffer)[:kept], serde.Tensors(target, layout), key)
        assert target == source
    if size > 0:
        cut = data.draw(st.integers(0, size - 1))
        with pytest.raises(Exception, match=r".") as refused:
            deserializer.deserialize(
                memoryview(buffer)[:cut], serde.Tensors(bytearray(len(source)), layout), key
            )
        assert type(refused.value).__module__ == "lmcache_aerospike.errors"


def floats_of(data: st.DataObject, dtype: str, torch: Any) -> Any:
    """A tensor with any bits at all, or with ordinary values."""
    shape = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple))
    random = np.random.default_rng(data.draw(seeds))
    if data.draw(st.booleans()):
        width = WIDTHS[dtype]
        raw = random.integers(0, 256, (*shape[:-1], shape[-1] * width), np.uint8)
        return torch.from_numpy(raw).view(getattr(torch, dtype)).reshape(shape)
    scale = 2.0 ** data.draw(st.integers(-16, 16))
    values = (random.standard_normal(shape) * scale).astype(np.float32)
    return torch.from_numpy(values).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fp8", ["float8_e4m3fn", "float8_e5m2"])
@EXAMPLES
@given(data=st.data())
def test_fp8_is_the_cast_of_torch(dtype: str, fp8: str, data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    source = floats_of(data, dtype, torch)
    codes = torch.zeros(source.numel(), dtype=torch.uint8)
    assert serde.Fp8QuantizationSerializer(fp8).serialize(source, codes) == source.numel()
    expected = source.to(getattr(torch, fp8))
    assert torch.equal(codes, expected.view(torch.uint8).flatten())
    target = torch.zeros_like(source)
    serde.Fp8QuantizationDeserializer(fp8).deserialize(codes, target)
    bits = {2: torch.int16, 4: torch.int32}[source.element_size()]
    back = expected.to(source.dtype)
    numbers = ~back.isnan()
    assert torch.equal(target.isnan(), back.isnan())
    assert torch.equal(target[numbers].view(bits), back[numbers].view(bits))


kv_shapes = st.tuples(
    st.just(2), st.integers(1, 3), st.integers(1, 20), st.sampled_from([8, 16, 40, 128])
)


@pytest.mark.parametrize("bits", [8, 4])
@EXAMPLES
@given(shape=kv_shapes, seed=seeds, scale=st.integers(-8, 8), dtype=st.sampled_from(FLOATS))
def test_integers_stay_within_half_a_step(
    bits: int, shape: tuple[int, ...], seed: int, scale: int, dtype: str
) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(seed)
    values = (random.standard_normal(shape) * 2.0**scale).astype(np.float32)
    source = torch.from_numpy(values).to(getattr(torch, dtype))
    pairs = {
        8: (serde.Int8Serializer(), serde.Int8Deserializer()),
        4: (serde.Int4Serializer(), serde.Int4Deserializer()),
    }
    serializer, deserializer = pairs[bits]
    buffer = bytearray(serializer.estimate_serialized_size([(shape, dtype)]))
    serializer.serialize(source, buffer)
    target = torch.zeros_like(source)
    deserializer.deserialize(buffer, target)
    exact, seen = source.to(torch.float64), target.to(torch.float64)
    # Keys share a scale along the tokens, values along the row: no error is above half a step of
    # it, and the type itself rounds once more.
    step = torch.empty_like(exact)
    levels = 127 if bits == 8 else 7
    step[0] = exact[0].abs().amax(dim=1, keepdim=True) / levels
    step[1] = exact[1].abs().amax(dim=2, keepdim=True) / levels
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-22}[dtype]
    bound = step * (0.5 + 2.0**-10) + seen.abs() * rounding + exact.abs() * rounding + 2.0**-24
    assert bool(((exact - seen).abs() <= bound).all())


@EXAMPLES
@given(shape=kv_shapes, seed=seeds, dtype=st.sampled_from(["bfloat16", "float16"]))
def test_k16v8_keeps_keys_exactly(shape: tuple[int, ...], seed: int, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(seed)
    keys = random.integers(0, 1 << 15, math.prod(shape) // 2).astype(np.int16)
    values = random.standard_normal(math.prod(shape) // 2).astype(np.float32)
    source = torch.stack(
        [
            torch.from_numpy(keys).view(getattr(torch, dtype)),
            torch.from_numpy(values).to(getattr(torch, dtype)),
        ]
    ).reshape(shape)
    serializer, deserializer = serde.K16V8Serializer(), serde.K16V8Deserializer()
    buffer = bytearray(serializer.estimate_serialized_size([(shape, dtype)]))
    serializer.serialize(source, buffer)
    target = torch.zeros_like(source)
    deserializer.deserialize(buffer, target)
    assert torch.equal(target[0].view(torch.int16), source[0].view(torch.int16))
    largest = source[1].abs().max().item()
    # Three bits of mantissa: half a step is a sixteenth of the value; near zero the smallest step.
    error = (target[1].to(torch.float64) - source[1].to(torch.float64)).abs()
    bound = source[1].to(torch.float64).abs() * (1 / 16 + 2.0**-7) + largest / 448 * 2.0**-9
    assert bool((error <= bound + 2.0**-24).all())
