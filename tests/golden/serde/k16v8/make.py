# SPDX-License-Identifier: Apache-2.0
"""Writes the containers of this directory with LMCache's own classes.

Run with a Python that has lmcache 0.5.6 and torch: ``python make.py``. Each case is NAME.k.bin and
NAME.v.bin (the tensors), NAME.bin (the container) and NAME.out.bin (V as LMCache reads it back).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import torch
from lmcache.v1.distributed.serde.asym_k16_v8 import (
    AsymK16V8MultiDeserializer,
    AsymK16V8MultiSerializer,
    AsymK16V8VOnlyMultiDeserializer,
    AsymK16V8VOnlyMultiSerializer,
)

HERE = Path(__file__).parent
SHAPE = (2, 5, 3, 8)


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def write(
    name: str,
    k: torch.Tensor | None,
    v: torch.Tensor,
    scale_dtype: torch.dtype = torch.float32,
) -> None:
    room = SimpleNamespace(tensor=torch.zeros(65536, dtype=torch.uint8))
    group = (None if k is None else SimpleNamespace(tensor=k), SimpleNamespace(tensor=v))
    out = SimpleNamespace(tensor=torch.zeros_like(v))
    if k is None:
        size = AsymK16V8VOnlyMultiSerializer().serialize(group, room, None)
        AsymK16V8VOnlyMultiDeserializer().deserialize(room, (None, out), None)
    else:
        pair = AsymK16V8MultiSerializer(scale_dtype=scale_dtype)
        size = pair.serialize(group, room, None)
        AsymK16V8MultiDeserializer(scale_dtype=scale_dtype).deserialize(room, (None, out), None)
        (HERE / f"{name}.k.bin").write_bytes(raw(k))
    (HERE / f"{name}.bin").write_bytes(raw(room.tensor[:size]))
    (HERE / f"{name}.v.bin").write_bytes(raw(v))
    (HERE / f"{name}.out.bin").write_bytes(raw(out.tensor))


def main() -> None:
    torch.manual_seed(4)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        k = torch.randn(SHAPE).to(dtype)
        v = (3 * torch.randn(SHAPE)).to(dtype)
        write(str(dtype).removeprefix("torch."), k, v)
    k = torch.randn(SHAPE).to(torch.bfloat16)
    v = torch.randn(SHAPE).to(torch.bfloat16)
    write("v_only", None, v)
    write("float16_scale", k, v, torch.float16)
    write("zero", k, torch.zeros_like(v))
    tiny = v * 2.0**-120
    write("tiny", k, tiny)
    special = v.clone().view(-1)
    special[3] = float("inf")
    special[5] = -float("inf")
    write("infinite", k, special.view(SHAPE))
    special[7] = float("nan")
    special[8] = -float("nan")
    write("nan", k, special.view(SHAPE))
    least = torch.zeros(SHAPE)
    least.view(-1)[:3] = torch.tensor([1e-45, -1e-45, 0.0])
    write("least", least, least)


if __name__ == "__main__":
    main()
