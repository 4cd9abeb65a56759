# SPDX-License-Identifier: Apache-2.0
"""What serdes take as tensors and as bytes, and what they refuse."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from lmcache_aerospike import serde
from lmcache_aerospike.errors import CorruptionError, InvalidArgumentError

SERIALIZER = serde.Fp8QuantizationSerializer()
DESERIALIZER = serde.Fp8QuantizationDeserializer()
SUMS = serde.ChecksumSerializer()
UNSUM = serde.ChecksumDeserializer()

VALUES = np.array([[0.0, 1.0, -2.0], [0.25, 448.0, -0.5]], np.float32)
CODES = bytes([0x00, 0x38, 0xC0, 0x28, 0x7E, 0xB0])
BF16 = (VALUES.view(np.uint32) >> 16).astype(np.uint16)


class Interface:
    """Memory known by ``__array_interface__`` alone, as arrays of ml_dtypes have it."""

    def __init__(self, array: np.ndarray, dtype: str | None = None) -> None:
        self.__array_interface__ = dict(array.__array_interface__)
        self.array = array
        if dtype is not None:
            self.__array_interface__["typestr"] = f"<V{array.itemsize}"
            self.dtype = type("dtype", (), {"name": dtype})()


class Capsule:
    """Memory known by DLPack alone."""

    def __init__(self, array: object, device: tuple[int, int] | None = None) -> None:
        self.array = array
        self.device = device

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device or self.array.__dlpack_device__()


class Memory:
    """As LMCache's memory objects."""

    def __init__(
        self, data: bytearray, shapes: list, dtypes: list, used: int | None = None
    ) -> None:
        self.data = data
        self.shapes, self.dtypes, self.used = shapes, dtypes, used
        self.valid = True

    def get_shapes(self) -> list:
        return self.shapes

    def get_dtypes(self) -> list:
        return self.dtypes

    def is_valid(self) -> bool:
        return self.valid

    def get_physical_size(self) -> int:
        return len(self.data)

    @property
    def data_ptr(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self.data))

    @property
    def byte_array(self) -> memoryview:
        size = len(self.data) if self.used is None else self.used
        return memoryview((ctypes.c_ubyte * size).from_buffer(self.data))


def memory_of(array: np.ndarray, dtype: str) -> Memory:
    return Memory(bytearray(array.tobytes()), [array.shape], [dtype])


SOURCES: dict[str, Callable[[], object]] = {
    "numpy": lambda: VALUES,
    "numpy float16": lambda: VALUES.astype(np.float16),
    "read-only": lambda: np.frombuffer(VALUES.tobytes(), np.float32),
    "memoryview": lambda: memoryview(VALUES),
    "array": lambda: array.array("f", VALUES.ravel().tolist()),
    "ctypes": lambda: (ctypes.c_float * 6)(*VALUES.ravel().tolist()),
    "interface": lambda: Interface(VALUES),
    "interface bfloat16": lambda: Interface(BF16, "bfloat16"),
    "dlpack": lambda: Capsule(VALUES),
    "tensor of bytes": lambda: serde.Tensor(BF16.tobytes(), (2, 3), "bfloat16"),
    "tensor of an array": lambda: serde.Tensor(BF16, [2, 3], "torch.bfloat16"),
    "two tensors": lambda: serde.Tensors(
        BF16.tobytes()[:6] + VALUES.astype(np.float16).tobytes()[6:],
        [((3,), "bfloat16"), ((3, 1), np.float16)],
    ),
    "memory object": lambda: memory_of(BF16, "torch.bfloat16"),
    "odd address": lambda: serde.Tensor(memoryview(b"x" + BF16.tobytes())[1:], (2, 3), "bfloat16"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name: str) -> None:
    buffer = bytearray(6)
    assert SERIALIZER.serialize(SOURCES[name](), buffer) == 6
    assert bytes(buffer) == CODES


BYTE_TARGETS: dict[str, Callable[[], tuple[object, Callable[[], bytes]]]] = {}


def byte_target(make: Callable[[], tuple[object, Callable[[], bytes]]]) -> None:
    BYTE_TARGETS[make.__name__] = make


@byte_target
def a_bytearray() -> tuple[object, Callable[[], bytes]]:
    data = bytearray(9)
    return data, lambda: bytes(data)


@byte_target
def numpy_bytes() -> tuple[object, Callable[[], bytes]]:
    data = np.zeros(9, np.uint8)
    return data, data.tobytes


@byte_target
def numpy_of_wider_items() -> tuple[object, Callable[[], bytes]]:
    data = np.zeros((2, 2), np.uint32)
    return data, data.tobytes


@byte_target
def a_part() -> tuple[object, Callable[[], bytes]]:
    data = bytearray(12)
    return memoryview(data)[3:9], lambda: bytes(data[3:9])


@byte_target
def by_interface() -> tuple[object, Callable[[], bytes]]:
    data = np.zeros(9, np.uint8)
    return Interface(data), data.tobytes


@byte_target
def by_dlpack() -> tuple[object, Callable[[], bytes]]:
    data = np.zeros(9, np.uint8)
    return Capsule(data), data.tobytes


@byte_target
def a_memory_object() -> tuple[object, Callable[[], bytes]]:
    memory = Memory(bytearray(9), [(9,)], ["torch.uint8"])
    return memory, lambda: bytes(memory.data)


@byte_target
def a_memory_object_that_was_narrowed() -> tuple[object, Callable[[], bytes]]:
    memory = Memory(bytearray(64), [(9,)], ["torch.uint8"], used=2)
    return memory, lambda: bytes(memory.data)


@pytest.mark.parametrize("name", BYTE_TARGETS)
def test_byte_targets(name: str) -> None:
    target, content = BYTE_TARGETS[name]()
    assert SERIALIZER.serialize(VALUES, target) == 6
    assert content()[:6] == CODES


@pytest.mark.parametrize("name", ["bytes", "numpy", "memory object", "interface", "dlpack"])
def test_byte_sources_and_tensor_targets(name: str) -> None:
    codes = np.frombuffer(CODES + b"more", np.uint8).copy()
    source = {
        "bytes": CODES,
        "numpy": codes,
        "memory object": Memory(bytearray(codes), [(10,)], ["uint8"], used=6),
        "interface": Interface(codes),
        "dlpack": Capsule(codes),
    }[name]
    target = np.zeros_like(VALUES)
    raw = bytearray(12)
    half = np.zeros((2, 3), np.uint16)
    for into in (
        target,
        Interface(target),
        Capsule(target),
        serde.Tensor(raw, (2, 3), "bfloat16"),
        Interface(half, "bfloat16"),
        Memory(raw, [(6,)], ["torch.bfloat16"]),
    ):
        target[:], half[:], raw[:] = 0, 0, bytes(12)
        DESERIALIZER.deserialize(source, into)
        assert np.array_equal(target, VALUES) or np.array_equal(half, BF16) or raw == BF16.tobytes()


def test_untyped_memory_objects_are_bytes() -> None:
    memory = Memory(bytearray(b"plain bytes"), [(11, 0, 0, 0)], [None])
    out = bytearray(28)
    assert SUMS.serialize(memory, out) == 28
    assert out[17:] == b"plain bytes"


class Simple(Memory):
    """As LMCache's memory objects with one tensor, whose lists are not filled in."""

    def get_shapes(self) -> list:
        raise AssertionError

    def get_shape(self) -> tuple:
        return self.shapes[0]

    def get_dtype(self) -> object:
        return self.dtypes[0]


class Wrapper:
    """An object that only has a tensor, or only bytes."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


def test_objects_that_wrap_something() -> None:
    simple = Simple(bytearray(BF16.tobytes()), [(2, 3)], ["torch.bfloat16"])
    narrowed = Simple(bytearray(6), [(6,)], ["uint8"], used=1)
    for source in (simple, Wrapper(tensor=VALUES, byte_array=b"x"), Wrapper(tensor=simple)):
        for target in (narrowed, Wrapper(tensor=np.zeros(6, np.uint8)), bytearray(6)):
            assert SERIALIZER.serialize(source, target) == 6
    assert narrowed.data == CODES
    data = bytearray(28)
    assert SUMS.serialize(Wrapper(byte_array=b"plain bytes"), Wrapper(byte_array=data)) == 28
    assert data[17:] == b"plain bytes"
    circle = Wrapper()
    circle.tensor = circle
    for nothing in (circle, Wrapper(tensor=None), Wrapper(tensor=5), Wrapper(byte_array=5)):
        with pytest.raises(TypeError, match=r"src: .*expected a tensor"):
            SUMS.serialize(nothing, data)


@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64],
)
def test_every_dtype_of_numpy(dtype: type) -> None:
    source = np.arange(24).reshape(2, 3, 4).astype(dtype)
    target = np.zeros_like(source)
    out = bytearray(SUMS.estimate_serialized_size(source))
    SUMS.serialize(source, out)
    UNSUM.deserialize(out, target)
    assert np.array_equal(source, target)


@pytest.mark.parametrize(
    "name",
    ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "bool", "int64"],
)
def test_every_dtype_by_name(name: str) -> None:
    data = bytes(range(64))
    items = 64 // 8 if name == "int64" else 64
    target = bytearray(64)
    out = bytearray(81)
    SUMS.serialize(serde.Tensor(data, (items,), name), out)
    UNSUM.deserialize(out, serde.Tensor(target, (items,), name))
    assert target == data


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (1, 1, 5), (3, 1, 2, 1)])
def test_shapes_without_dimensions_elements_or_with_ones(shape: tuple[int, ...]) -> None:
    source = np.ones(shape, np.float32)
    target = np.zeros(shape, np.float32)
    for wrap in (lambda x: x, Interface, Capsule):
        out = bytearray(source.size)
        assert SERIALIZER.serialize(wrap(source), out) == source.size
        DESERIALIZER.deserialize(out, wrap(target))
        assert np.array_equal(source, target)


WIDE = np.zeros((4, 6), np.float32)
BAD_SOURCES: dict[str, tuple[object, type[Exception], str]] = {
    "str": ("text", TypeError, "src: str"),
    "None": (None, TypeError, "src: NoneType"),
    "int": (5, TypeError, "src: int"),
    "object": (object(), TypeError, "src: object, expected a tensor"),
    "transposed": (WIDE.T, InvalidArgumentError, "src: .*not contiguous"),
    "stepped": (WIDE[:, ::2], InvalidArgumentError, "src: .*not contiguous"),
    "reversed": (WIDE[::-1], InvalidArgumentError, "src: .*not contiguous"),
    "interface": (Interface(WIDE.T), InvalidArgumentError, "src: .*not contiguous"),
    "dlpack": (Capsule(WIDE.T), InvalidArgumentError, "src: .*not contiguous"),
    "dlpack on cuda": (Capsule(WIDE, (2, 0)), InvalidArgumentError, "DLPack device 2.*CPU"),
    "complex": (WIDE.astype(np.complex64), InvalidArgumentError, "elements of type.*Tensor"),
    "complex by dlpack": (Capsule(WIDE.astype(np.complex64)), InvalidArgumentError, "DLPack code"),
    "complex by interface": (Interface(WIDE.astype(np.complex64)), InvalidArgumentError, "<c8"),
    "uint16": (WIDE.astype(np.uint16), InvalidArgumentError, "elements of type 'H'"),
    "big endian": (WIDE.astype(">f4"), InvalidArgumentError, "byte order"),
    "big interface": (Interface(WIDE.astype(">f4")), InvalidArgumentError, "byte order"),
    "unknown dtype": (Interface(BF16, "int4"), InvalidArgumentError, "dtype int4: unknown"),
    "objects": (np.array([None]), InvalidArgumentError, "'O'"),
    "structure": (np.zeros(2, "i4,f4"), InvalidArgumentError, "elements of type"),
    "short": (
        serde.Tensor(b"12345", (3,), "bfloat16"),
        InvalidArgumentError,
        "5 bytes, expected 6",
    ),
    "long": (serde.Tensor(b"1234567", (3,), "bfloat16"), InvalidArgumentError, "7 bytes"),
    "no type": (serde.Tensor(b"1234", (2,), "bf16"), InvalidArgumentError, "bf16: unknown"),
    "no dimension": (serde.Tensor(b"1234", (2.5,), "int8"), TypeError, "float"),
    "negative": (serde.Tensor(b"1234", (-2,), "int8"), InvalidArgumentError, "-2"),
    "no buffer": (serde.Tensor(5, (2,), "int8"), TypeError, "byte_array"),
    "steps": (serde.Tensor(WIDE.T, (24,), "float32"), InvalidArgumentError, "contiguous"),
}


@pytest.mark.parametrize("name", BAD_SOURCES)
def test_bad_sources(name: str) -> None:
    source, error, words = BAD_SOURCES[name]
    with pytest.raises(error, match=words):
        SERIALIZER.serialize(source, bytearray(1000))


def test_uneven_memory_objects() -> None:
    for memory, words in (
        (Memory(bytearray(4), [(2,)], ["int8", "int8"]), "2 dtypes, expected 1"),
        (Memory(bytearray(4), [(2, 2)], ["int16"]), "4 bytes, expected 8"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            SUMS.serialize(memory, bytearray(100))
    gone = Memory(bytearray(4), [(4,)], ["int8"])
    gone.valid = False
    for use in (lambda: SUMS.serialize(gone, bytearray(100)), lambda: SUMS.serialize(WIDE, gone)):
        with pytest.raises(InvalidArgumentError, match="invalidated"):
            use()


def test_targets_that_cannot_be_written() -> None:
    frozen = np.zeros(100, np.uint8)
    frozen.flags.writeable = False
    for target in (bytes(100), frozen, memoryview(bytes(100)), Interface(frozen), Capsule(frozen)):
        with pytest.raises(InvalidArgumentError, match=r"dst: read-only.*writable"):
            SERIALIZER.serialize(VALUES, target)
        with pytest.raises(InvalidArgumentError, match=r"dst: read-only.*writable"):
            DESERIALIZER.deserialize(bytearray(100), target)
    with pytest.raises(TypeError, match=r"dst: NoneType"):
        SERIALIZER.serialize(VALUES, None)


def test_sizes_that_do_not_fit() -> None:
    small = bytearray(b"." * 5)
    with pytest.raises(InvalidArgumentError, match="5 bytes, expected 6"):
        SERIALIZER.serialize(VALUES, small)
    assert small == b"....."
    with pytest.raises(CorruptionError, match="5 bytes, expected 6"):
        DESERIALIZER.deserialize(CODES[:5], np.zeros(6, np.float32))


def test_source_and_target_must_not_share_memory() -> None:
    data = np.zeros(64, np.float32)
    for source, target in ((data, data), (data[:8], data.view(np.uint8)[30:])):
        with pytest.raises(InvalidArgumentError, match="shares memory"):
            SERIALIZER.serialize(source, target)
    assert SERIALIZER.serialize(data[:8], data.view(np.uint8)[32:]) == 8


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (5, "key: int"),
        ("text", "key: str"),
        (type("Key", (), {"chunk_hash": "text"})(), "key.chunk_hash: str, expected bytes"),
        (type("Key", (), {"cache_salt": b"bytes"})(), "key.cache_salt: bytes, expected str"),
    ],
)
def test_bad_keys(key: object, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        SUMS.serialize(VALUES, bytearray(100), key)


def test_a_key_may_know_half() -> None:
    out, other = bytearray(100), bytearray(100)
    SUMS.serialize(VALUES, out, type("Key", (), {"chunk_hash": b"12345678"})())
    SUMS.serialize(VALUES, other, serde.SerdeKey(b"12345678", "tenant"))
    assert out == other


def test_tensors_say_what_they_are() -> None:
    tensor = serde.Tensor(b"1234", (2, 1), np.dtype("float16"))
    assert (tensor.shape, tensor.dtype, repr(tensor)) == (
        (2, 1),
        "float16",
        "<Tensor float16[2, 1]>",
    )
    both = serde.Tensors(b"", [((2,), "int8"), ((3,), "torch.bfloat16")])
    assert repr(both) == "<Tensors int8[2] + bfloat16[3]>"


torch_only = pytest.mark.parametrize(
    "name", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "bool"]
)


@torch_only
def test_tensors_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    source = torch.arange(24).remainder(2).reshape(2, 3, 4).to(torch.float32).to(dtype)
    out = torch.zeros(SUMS.estimate_serialized_size(source), dtype=torch.uint8)
    assert SUMS.serialize(source, out) == len(out)
    target = torch.zeros_like(source)
    UNSUM.deserialize(out, target)
    assert torch.equal(source.view(torch.uint8), target.view(torch.uint8))
    assert SERIALIZER.estimate_serialized_size([((2, 3, 4), dtype)]) == 36


def test_tensors_of_torch_that_are_refused() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros(4, 6)
    for bad, words in (
        (whole.T, "not contiguous"),
        (whole[:, ::2], "not contiguous"),
        (whole.to("meta"), "device meta.*CPU"),
        (whole.to_sparse(), "layout torch.sparse_coo"),
        (whole.to(torch.complex64), "complex64: unknown"),
        (torch.zeros(4, dtype=torch.uint16), "uint16: unknown"),
        (torch._neg_view(whole), "resolve_neg"),
    ):
        with pytest.raises(InvalidArgumentError, match=f"src: .*{words}"):
            SERIALIZER.serialize(bad, bytearray(100))
    part = whole[2:]  # contiguous, not at the start of its storage
    part += 1
    out = bytearray(12)
    SERIALIZER.serialize(part, out)
    assert bytes(out) == b"\x38" * 12
    with pytest.raises(InvalidArgumentError, match=r"dst: .*not contiguous"):
        SERIALIZER.serialize(whole, torch.zeros(10, 10, dtype=torch.uint8).T)


def test_arrays_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = VALUES.astype(ml_dtypes.bfloat16)
    out = bytearray(6)
    SERIALIZER.serialize(source, out)
    assert bytes(out) == CODES
    target = np.zeros((2, 3), ml_dtypes.bfloat16)
    DESERIALIZER.deserialize(out, target)
    assert np.array_equal(source, target)
    assert serde.Fp8QuantizationSerializer(ml_dtypes.float8_e5m2).tag == "fp8:float8_e5m2"
