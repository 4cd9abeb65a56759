#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden vectors of the int8 and int4 frames: a second implementation, in NumPy.

It was written from docs/formats/int.md and shares no code with the engine. The vectors of version 1
are frozen: run it with --check, which compares what it makes with what lies here, and write new
files for a new version only.

Usage: make.py [--check] [--kv PATH]; PATH is a safetensors file of keys and values for the case
`real`, which is left as it is without one.
"""

from __future__ import annotations

import argparse
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

HERE = Path(__file__).resolve().parent
CODES = {"uint8": 1, "int32": 4, "float16": 10, "bfloat16": 11, "float32": 12, "float64": 13}
SIZES = {"uint8": 1, "int32": 4, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
F32 = np.float32
Floats = npt.NDArray[np.float32]


@dataclass
class Tensor:
    """One tensor: its type, shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def to_float(dtype: str, data: bytes) -> Floats:
    """The values as float32."""
    if dtype == "float32":
        return np.frombuffer(data, "<f4").astype(F32)
    if dtype == "float16":
        return np.frombuffer(data, "<f2").astype(F32)
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(F32)


def from_float(dtype: str, values: Floats) -> bytes:
    """The values in `dtype`, rounded to nearest, ties to even."""
    values = np.ascontiguousarray(values, F32)
    if dtype == "float32":
        return values.astype("<f4").tobytes()
    if dtype == "float16":
        return values.astype("<f2").tobytes()
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def pack(codes: npt.NDArray[np.int64]) -> bytes:
    """Rows of 4-bit codes, the low half of a byte first."""
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1)))
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8).tobytes()


def matrix(dtype: str, bits: int, values: Floats, group: int) -> tuple[bytes, Floats]:
    """Extremes and codes of a matrix, and what a reader makes of them. group 0: by column."""
    rows, columns = values.shape
    parts = values.reshape(rows, 1, columns) if group == 0 else values.reshape(rows, -1, group)
    axis = 0 if group == 0 else 2
    if bits == 8:
        high = np.abs(parts).max(axis=axis, keepdims=True)
        low = -high
        scale = (high / F32(127)).astype(F32)
        start = F32(0) * high
        least, most = -127, 127
    else:
        high = parts.max(axis=axis, keepdims=True)
        low = parts.min(axis=axis, keepdims=True)
        # The lesser of the two zeros is the negative one.
        negative = (np.signbit(parts) & (parts == 0)).any(axis=axis, keepdims=True)
        positive = (~np.signbit(parts) & (parts == 0)).any(axis=axis, keepdims=True)
        low = np.where(low == 0, np.where(negative, F32(-0.0), F32(0)), low)
        high = np.where(high == 0, np.where(positive, F32(0), F32(-0.0)), high)
        scale = ((high.astype(np.float64) - low.astype(np.float64)) / 15).astype(F32)
        start = low
        least, most = 0, 15
    divisor = np.where(scale == 0, F32(1), scale)
    codes = np.clip(np.rint((parts - start) / divisor), least, most).astype(np.int64)
    back = codes.astype(F32) * scale
    back = back if bits == 8 else (low + back).astype(F32)
    back = np.where(back < low, low, back)
    back = np.where(back > high, high, back).reshape(rows, columns)
    flat = codes.reshape(rows, columns)
    body = b"" if bits == 8 else from_float(dtype, low)
    body += from_float(dtype, high)
    return body + (flat.astype(np.int8).tobytes() if bits == 8 else pack(flat)), back


def quantized(bits: int, head_dim: int, tensor: Tensor) -> tuple[bytes, bytes, bytes]:
    """Descriptor, body and what a reader makes of a tensor."""
    code = CODES[tensor.dtype]
    raw = struct.pack("<BBHIQQQQ", code, 0, 0, 0, 0, 0, len(tensor.data), 0)
    if tensor.dtype not in ("float16", "bfloat16", "float32") or not tensor.data:
        return raw, tensor.data, tensor.data
    columns = tensor.shape[-1] if tensor.shape else 1
    group = head_dim or columns
    values = to_float(tensor.dtype, tensor.data).reshape(-1, columns)
    has_keys = len(tensor.shape) in (3, 4) and tensor.shape[0] == 2
    rows = tensor.shape[-2] if has_keys else 0
    keys = len(values) // 2 if has_keys else 0
    body, back = b"", []
    for at in range(0, keys, rows or 1):
        part, result = matrix(tensor.dtype, bits, values[at : at + rows], 0)
        body += part
        back.append(result)
    part, result = matrix(tensor.dtype, bits, values[keys:], group)
    body += part
    back.append(result)
    if len(body) >= len(tensor.data):
        return raw, tensor.data, tensor.data
    matrices = keys // rows if rows else 0
    head = struct.pack("<BBHIQQQQ", code, 1, 0, matrices, rows, len(values) - keys, columns, group)
    return head, body, from_float(tensor.dtype, np.concatenate(back))


def frame(bits: int, head_dim: int, tensors: list[Tensor]) -> tuple[bytes, bytes]:
    """The frame of an object, and what a reader makes of it."""
    parts = [quantized(bits, head_dim, tensor) for tensor in tensors]
    body = b"".join(part[1] for part in parts)
    head = struct.pack("<4sBBHIIQ", b"AKIN", 1, bits, len(parts), head_dim, 0, len(body))
    head += b"".join(part[0] for part in parts)
    total = xxhash.xxh3_64_intdigest(head + body)
    return head + body + struct.pack("<Q", total), b"".join(part[2] for part in parts)


def made_up(seed: int, dtype: str, shape: tuple[int, ...], spread: float = 4) -> Tensor:
    """Numbers whose columns and rows have different sizes and offsets."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape) * np.exp(random.standard_normal(shape[-1]))
    values = values * spread + random.standard_normal(shape[-1])
    return Tensor(dtype, shape, from_float(dtype, values.astype(F32)))


def odd_values(dtype: str) -> Tensor:
    """Zeros of both signs, constants, the largest, the smallest, subnormal numbers."""
    if dtype == "float32":
        big, tiny, small = F32(1.5e38), F32(1e-45), F32(1e-39)
    elif dtype == "float16":
        big, tiny, small = F32(65504), F32(2**-24), F32(3e-6)
    else:
        big, tiny, small = F32(1.6e38), F32(9.184e-41), F32(1e-39)
    columns = [
        [0, -0.0, 0, 0],
        [-0.0, -0.0, -0.0, -0.0],
        [3, 3, 3, 3],
        [-5, -5, -5, -5],
        [big, -big, 1, 0],
        [big, big, -big, -big],
        [tiny, 0, -tiny, 0],
        [small, tiny, 0, -small],
        [1000, 1001, 1000.5, 1000.25],
        [-2.5, -1.5, -0.5, 0.5],
        [127, 126.5, 0.5, -1.5],
        [15, 7.5, 0.5, 1.5],
    ]
    values = np.tile(np.array(columns, F32).T, (4, 1))  # 16 rows, 12 columns
    both = np.stack([values, values])
    return Tensor(dtype, both.shape, from_float(dtype, both))


def cases(kv: Path | None) -> dict[str, tuple[int, list[Tensor]]]:
    """Each case: head_dim and the tensors."""
    made: dict[str, tuple[int, list[Tensor]]] = {
        "kv": (0, [made_up(1, "bfloat16", (2, 2, 24, 16))]),
        "heads": (8, [made_up(2, "bfloat16", (2, 2, 24, 16))]),
        "odd_columns": (0, [made_up(3, "float16", (2, 3, 33, 7))]),
        "odd_heads": (3, [made_up(4, "float16", (2, 1, 9, 9))]),
        "latent": (0, [made_up(5, "float32", (1, 2, 12, 20))]),
        "layer": (0, [made_up(6, "bfloat16", (2, 20, 12))]),
        "groups": (
            0,
            [
                made_up(7, "bfloat16", (2, 1, 32, 8)),
                Tensor("uint8", (13,), bytes(range(13))),
                made_up(8, "float32", (5, 9)),
                Tensor("bfloat16", (2, 0, 4, 8), b""),
                made_up(9, "bfloat16", (2, 1, 1, 4)),
                Tensor("float64", (2,), struct.pack("<dd", 1.5, float("nan"))),
                made_up(10, "float16", (64,)),
            ],
        ),
        "odd_bfloat16": (0, [odd_values("bfloat16")]),
        "odd_float16": (0, [odd_values("float16")]),
        "odd_float32": (0, [odd_values("float32")]),
        "empty": (0, []),
        # The layouts of the fuzz target.
        "small_0": (0, [made_up(20, "bfloat16", (2, 1, 8, 4))]),
        "small_1": (0, [made_up(21, "float16", (2, 2, 5, 3))]),
        "small_2": (0, [made_up(22, "float32", (1, 3, 7))]),
        "small_3": (
            0,
            [
                made_up(23, "bfloat16", (2, 6, 5)),
                Tensor("uint8", (9,), bytes(range(9))),
                made_up(24, "float32", (4, 4)),
            ],
        ),
    }
    if kv is not None:
        raw = kv.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        whole = np.frombuffer(raw, "<u2", 2 * 6 * 256 * 384, 8 + size).reshape(2, 6, 256, 384)
        data = whole[:, 2:4, :48, :64].tobytes()
        made["real"] = (32, [Tensor("bfloat16", (2, 2, 48, 64), data)])
    return made


def layout_text(tensors: list[Tensor]) -> str:
    """As the engine writes layouts."""
    return " + ".join(f"{t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors)


def main() -> None:
    """Writes or compares the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--kv", type=Path)
    options = parser.parse_args()
    files: dict[Path, bytes] = {}
    with np.errstate(all="ignore"):
        for bits, folder in ((8, HERE), (4, HERE.parent / "int4")):
            for name, (head_dim, tensors) in cases(options.kv).items():
                stored, loaded = frame(bits, head_dim, tensors)
                text = f"{head_dim}\n{layout_text(tensors)}\n"
                files[folder / f"{name}.txt"] = text.encode()
                files[folder / f"{name}.source"] = b"".join(t.data for t in tensors)
                files[folder / f"{name}.frame"] = stored
                files[folder / f"{name}.loaded"] = loaded
    for path, content in files.items():
        if options.check:
            assert path.read_bytes() == content, path
        else:
            path.write_bytes(content)


if __name__ == "__main__":
    main()
