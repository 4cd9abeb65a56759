# SPDX-License-Identifier: Apache-2.0
"""The interfaces: transforms, processors, and what they are given."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Self

SerdeTaskId: TypeAlias = int
TensorGroup: TypeAlias = Sequence[object]
LayoutGroup: TypeAlias = Sequence[object]
Shape: TypeAlias = Sequence[int]


class KeyLike(Protocol):
    """What transforms look at in a key; LMCache's ``ObjectKey`` is one."""

    @property
    def chunk_hash(self) -> bytes:
        """The hash that a frame is bound to."""

    @property
    def cache_salt(self) -> str:
        """The tenant, whose key encrypts; empty = none."""


@dataclass(frozen=True)
class SerdeKey:
    """A key for those who have none of LMCache's.

    Attributes:
        chunk_hash: The hash that a frame is bound to.
        cache_salt: The tenant, whose key encrypts; empty = none.
    """

    chunk_hash: bytes = b""
    cache_salt: str = ""


@dataclass
class SerdeConfig:
    """A serde as a JSON configuration names it.

    Attributes:
        type: Its registered name.
        kwargs: Everything else of the JSON object.
    """

    type: str
    kwargs: dict[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class SerdeFailure:
    """Why one object of a task failed.

    Attributes:
        task_id: The task, as its submit returned it.
        index: The place of the object in its task.
        error: The reason.
    """

    task_id: SerdeTaskId
    index: int
    error: BaseException


def dtype_name(dtype: object) -> str:
    """The name of an element type as torch, NumPy or ml_dtypes write it, without "torch."."""
    if isinstance(dtype, type):
        name = dtype.__name__
    else:
        name = dtype if isinstance(dtype, str) else str(getattr(dtype, "name", dtype))
    return name.removeprefix("torch.")


class Tensors:
    """Tensors one behind the other in one buffer, without padding.

    Says what plain bytes mean; it takes no copy.

    Args:
        buffer: Anything with the buffer protocol, contiguous.
        layout: A pair (shape, dtype) for each tensor.
    """

    def __init__(self, buffer: object, layout: Sequence[tuple[Shape, object]]) -> None:
        self.byte_array = buffer
        self.layout = tuple((tuple(shape), dtype_name(dtype)) for shape, dtype in layout)

    def get_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each tensor."""
        return [shape for shape, _ in self.layout]

    def get_dtypes(self) -> list[str]:
        """The element type of each tensor."""
        return [dtype for _, dtype in self.layout]

    def __repr__(self) -> str:
        text = " + ".join(f"{dtype}{list(shape)}" for shape, dtype in self.layout)
        return f"<{type(self).__name__} {text}>"


class Tensor(Tensors):
    """One tensor in a buffer.

    Args:
        buffer: Anything with the buffer protocol, contiguous.
        shape: Its dimensions, row-major.
        dtype: Its element type, "bfloat16" or as torch, NumPy or ml_dtypes have it.
    """

    def __init__(self, buffer: object, shape: Shape, dtype: object) -> None:
        super().__init__(buffer, [(shape, dtype)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self.layout[0][0]

    @property
    def dtype(self) -> str:
        """Its element type."""
        return self.layout[0][1]


class Serializer(abc.ABC):
    """Turns a tensor into bytes.

    Implementations may leave `key` out of their serialize(): it is passed only to those that take
    it.
    """

    @abc.abstractmethod
    def serialize(self, src: object, dst: object, key: KeyLike | None = None) -> int:
        """Writes the serialized form of `src` to the front of `dst`.

        Args:
            src: A tensor.
            dst: A writable buffer of at least the estimated size.
            key: The key of the object; most formats ignore it.

        Returns:
            The bytes written. The same source gives the same bytes, but for formats that encrypt.
        """

    @abc.abstractmethod
    def estimate_serialized_size(self, layout_desc: object) -> int:
        """An upper bound of what serialize() writes for tensors of this layout.

        Args:
            layout_desc: An object with `shapes` and `dtypes` (as LMCache's ``MemoryLayoutDesc``),
                or a list of pairs (shape, dtype).
        """


class Deserializer(abc.ABC):
    """Turns bytes back into a tensor. As for Serializer, `key` may be left out."""

    @abc.abstractmethod
    def deserialize(self, src: object, dst: object, key: KeyLike | None = None) -> None:
        """Fills all of `dst`.

        Args:
            src: A buffer with the serialized bytes at its front; more may follow.
            dst: A writable tensor of the original shape and type.
            key: The key of the object; most formats ignore it.
        """


class MultiSerializer(abc.ABC):
    """As Serializer, from a group of tensors of fixed length, in which some may be None."""

    @property
    @abc.abstractmethod
    def group_size(self) -> int:
        """Tensors of a group."""

    @abc.abstractmethod
    def serialize(self, src: TensorGroup, dst: object, key: KeyLike | None = None) -> int:
        """Writes the serialized form of the group to the front of `dst`.

        Raises:
            ValueError: The group has another length, or a required tensor is None.
        """

    @abc.abstractmethod
    def estimate_serialized_size(self, layout_descs: LayoutGroup) -> int:
        """An upper bound; None stands for the layout of an absent tensor."""


class MultiDeserializer(abc.ABC):
    """As Deserializer, into a group. A None in it is not wanted and nothing is made for it."""

    @property
    @abc.abstractmethod
    def group_size(self) -> int:
        """Tensors of a group."""

    @abc.abstractmethod
    def deserialize(self, src: object, dst: TensorGroup, key: KeyLike | None = None) -> None:
        """Fills the tensors of the group that are not None."""


class SerdeProcessor(abc.ABC):
    """Tasks of many objects beside the caller, announced through event descriptors.

    The contract of LMCache's ``SerdeProcessor``. What a task uses is held until its result was
    taken; nobody else may touch the targets until then.
    """

    @abc.abstractmethod
    def get_serialize_event_fd(self) -> int:
        """The eventfd that is signalled once for each serialize task, when its result is there."""

    @abc.abstractmethod
    def get_deserialize_event_fd(self) -> int:
        """As get_serialize_event_fd(); another descriptor."""

    @abc.abstractmethod
    def submit_serialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[KeyLike | None] | None = None,
    ) -> SerdeTaskId:
        """Starts a task and returns at once."""

    @abc.abstractmethod
    def query_serialize_result(self, task_id: SerdeTaskId) -> bool | None:
        """Whether all objects of the task were serialized: once for each task, None before.

        Where a target has ``set_used_size(n)``, it was called with the bytes written before True
        is returned.
        """

    @abc.abstractmethod
    def submit_deserialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[KeyLike | None] | None = None,
    ) -> SerdeTaskId:
        """Starts a task and returns at once."""

    @abc.abstractmethod
    def query_deserialize_result(self, task_id: SerdeTaskId) -> bool | None:
        """Whether all objects of the task were deserialized: once for each task, None before."""

    @abc.abstractmethod
    def estimate_serialized_size(self, layout_desc: object) -> int:
        """The serializer's estimate."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends what has not begun, waits for what has, frees threads and descriptors."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
