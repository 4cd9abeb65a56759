# SPDX-License-Identifier: Apache-2.0
"""Groups of K and V: which may be absent, and what is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from lmcache_aerospike import _native, serde
from lmcache_aerospike.errors import CorruptionError, InvalidArgumentError

SHAPE = (4, 9, 32)
RANDOM = np.random.default_rng(3)
K = RANDOM.integers(0, 1 << 15, SHAPE).astype(np.uint16).view(np.float16)
V = RANDOM.standard_normal(SHAPE).astype(np.float16)
LAYOUT = [(SHAPE, "float16")]

SERIALIZER = serde.K16V8MultiSerializer()
DESERIALIZER = serde.K16V8MultiDeserializer()


def container(k: np.ndarray | None = K, v: np.ndarray | None = V) -> bytearray:
    layouts = tuple(None if part is None else LAYOUT for part in (k, v))
    out = bytearray(SERIALIZER.estimate_serialized_size(layouts))
    assert SERIALIZER.serialize((k, v), out, serde.SerdeKey()) == len(out)
    return out


def empty() -> np.ndarray:
    return np.full(SHAPE, 7, np.float16)


def bits(array: np.ndarray) -> list[int]:
    return array.view(np.uint16).ravel().tolist()


def test_both() -> None:
    assert SERIALIZER.group_size == DESERIALIZER.group_size == 2
    k, v = empty(), empty()
    DESERIALIZER.deserialize(container() + b"more", (k, v))
    assert bits(k) == bits(K)
    assert np.abs(v - V).max() <= np.abs(V).max() / 16


@pytest.mark.parametrize("stored", ["both", "values"])
def test_values_alone(stored: str) -> None:
    data = container(K if stored == "both" else None)
    assert (len(data) < K.nbytes) == (stored == "values")
    v, wide = empty(), np.zeros(SHAPE, np.float32)
    DESERIALIZER.deserialize(data, (None, v))
    DESERIALIZER.deserialize(data, [None, wide])
    assert np.abs(v - V).max() <= np.abs(V).max() / 16
    assert np.array_equal(wide.astype(np.float16), v)


def test_keys_alone() -> None:
    k = empty()
    DESERIALIZER.deserialize(container(), (k, None))
    assert bits(k) == bits(K)


def test_nothing_is_wanted() -> None:
    DESERIALIZER.deserialize(container(), (None, None))


def test_tensors_of_every_kind_in_one_group() -> None:
    raw, target = K.tobytes(), bytearray(K.nbytes)
    out = bytearray(len(container()))
    SERIALIZER.serialize((serde.Tensor(raw, SHAPE, "float16"), V), np.frombuffer(out, np.uint8))
    assert out == container()
    DESERIALIZER.deserialize(bytes(out), (serde.Tensor(target, SHAPE, "float16"), empty()))
    assert target == raw


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ((K, None), "slot 1"),
        ((None, None), "slot 1"),
        ((K,), "a group of 1, expected 2"),
        ((K, V, V), "a group of 3, expected 2"),
        ((K[:2], V), "same shape"),
        ((K, V.view(np.int16)), "int16"),
        ((K, V.T), r"src\[1\]: .*contiguous"),
    ],
)
def test_groups_that_cannot_be_written(group: tuple[object, ...], words: str) -> None:
    out = bytearray(b"." * 10000)
    with pytest.raises(ValueError, match=words):
        SERIALIZER.serialize(group, out)
    assert out == b"." * 10000


def test_what_else_is_refused() -> None:
    data = container()
    frozen = empty()
    frozen.flags.writeable = False
    for refused, error, words in (
        (lambda: SERIALIZER.serialize((K, V), data[:-1]), ValueError, "target of"),
        (lambda: SERIALIZER.serialize(K, data), ValueError, "group of 4"),
        (lambda: SERIALIZER.serialize(5, data), TypeError, "src: int"),
        (lambda: SERIALIZER.serialize((K, "V"), data), TypeError, r"src\[1\]: str"),
        (lambda: SERIALIZER.estimate_serialized_size((LAYOUT, None)), ValueError, "slot 1"),
        (lambda: SERIALIZER.estimate_serialized_size((LAYOUT,)), ValueError, "group of 1"),
        (lambda: DESERIALIZER.deserialize(data, (K,)), ValueError, "group of 1"),
        (lambda: DESERIALIZER.deserialize(data, (frozen, None)), ValueError, r"dst\[0\]: read-on"),
        (lambda: DESERIALIZER.deserialize(data, (None, V[:2].copy())), ValueError, "expected"),
        (lambda: DESERIALIZER.deserialize(container(None), (empty(), None)), ValueError, "no K"),
        (lambda: DESERIALIZER.deserialize(data[:200], (None, empty())), CorruptionError, "k16v8"),
        (lambda: DESERIALIZER.deserialize(b"", (None, empty())), CorruptionError, "k16v8"),
        (lambda: serde.K16V8MultiSerializer("float9"), InvalidArgumentError, "k_dtype"),
        (lambda: _native.MultiSerializer({"type": "fp8"}), InvalidArgumentError, "no groups"),
        (lambda: _native.MultiDeserializer({"type": "k16v8", "x": 1}), InvalidArgumentError, "x"),
    ):
        with pytest.raises(error, match=words):
            refused()
    data[-1] ^= 1
    with pytest.raises(CorruptionError):
        DESERIALIZER.deserialize(data, (empty(), empty()))


def test_group_serdes_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps((serde.K16V8MultiSerializer(np.float32), DESERIALIZER)))
    out = bytearray(len(container(None)))
    again[0].serialize((None, V), out)
    assert out != container(None)  # it names another type for the K that is elsewhere
    v = empty()
    again[1].deserialize(out, (None, v))
    assert np.abs(v - V).max() <= np.abs(V).max() / 16
