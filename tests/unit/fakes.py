# SPDX-License-Identifier: Apache-2.0
"""What stands for LMCache's memory in tests: it counts, and complains of a second release."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import torch
from lmcache.v1.memory_management import MemoryFormat


def size_of(shapes: list[torch.Size], dtypes: list[Any]) -> int:
    return sum(
        shape.numel() * dtype.itemsize if dtype is not None else shape[0]
        for shape, dtype in zip(shapes, dtypes, strict=True)
    )


class FakeMemoryObj:
    """Bytes with the shape of a chunk."""

    def __init__(
        self,
        shapes: list[torch.Size],
        dtypes: list[Any],
        fmt: MemoryFormat,
        backend: FakeLocalCPUBackend | None = None,
    ) -> None:
        self.raw_data: Any = memoryview(bytearray(size_of(shapes, dtypes)))
        self.meta = SimpleNamespace(
            shape=shapes[0], dtype=dtypes[0], shapes=shapes, dtypes=dtypes, fmt=fmt
        )
        self.refs = 1
        self.ref_count_downs = 0
        self.backend = backend

    @property
    def byte_array(self) -> memoryview:
        assert self.refs > 0, "used after its release"
        return memoryview(self.raw_data)

    def get_size(self) -> int:
        return len(self.raw_data)

    def get_shapes(self) -> list[torch.Size]:
        return self.meta.shapes

    def get_dtypes(self) -> list[Any]:
        return self.meta.dtypes

    def get_memory_format(self) -> MemoryFormat:
        return self.meta.fmt

    def ref_count_up(self) -> None:
        self.refs += 1

    def ref_count_down(self) -> None:
        self.refs -= 1
        self.ref_count_downs += 1
        assert self.refs >= 0, "released twice"
        if self.refs == 0 and self.backend is not None:
            self.backend.give_back(self)


class FakeLocalCPUBackend:
    """Allocates as many objects as it is told, and knows which are out."""

    def __init__(self, config: Any = None, metadata: Any = None, room: int = 1 << 30) -> None:
        self.config = config
        self.metadata = metadata
        self.room = room
        self.allocations: list[tuple[list[torch.Size], list[Any], MemoryFormat]] = []
        self.out: set[int] = set()
        self.lock = threading.Lock()

    def allocate(
        self,
        shapes: list[torch.Size],
        dtypes: list[Any],
        fmt: MemoryFormat,
    ) -> FakeMemoryObj | None:
        with self.lock:
            self.allocations.append((shapes, dtypes, fmt))
            if len(self.out) >= self.room:
                return None
            made = FakeMemoryObj(shapes, dtypes, fmt, self)
            self.out.add(id(made))
            return made

    def give_back(self, memory: FakeMemoryObj) -> None:
        with self.lock:
            self.out.remove(id(memory))


class FakeKey:
    """A key of LMCache; only its text counts."""

    def __init__(self, text: str) -> None:
        self.text = text

    def to_string(self) -> str:
        return self.text


class FakeInfoClient:
    """Answers what it is told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.commands: list[str] = []

    def info_random_node(self, command: str) -> Any:
        self.commands.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
