# SPDX-License-Identifier: Apache-2.0
"""Groups of tensors: single-tensor pairs seen as groups of one, and the format of K and V."""

from __future__ import annotations

from collections.abc import Sequence

from lmcache_aerospike import _native
from lmcache_aerospike.errors import InvalidArgumentError
from lmcache_aerospike.serde._base import (
    Deserializer,
    KeyLike,
    LayoutGroup,
    MultiDeserializer,
    MultiSerializer,
    Serializer,
    TensorGroup,
    dtype_name,
)
from lmcache_aerospike.serde._threads import with_key


def validate_group_size(group: Sequence[object], expected: int, *, role: str) -> None:
    """Raises InvalidArgumentError (a ValueError) if `group` has another length.

    Args:
        group: Tensors or layouts.
        expected: The right length.
        role: What the error calls the group: "src", "dst" or "layout".
    """
    if len(group) != expected:
        msg = f"{role}: a group of {len(group)}, expected {expected}"
        raise InvalidArgumentError(msg)


class _SingleAsMultiSerializer(MultiSerializer):
    def __init__(self, inner: Serializer) -> None:
        self._inner = inner
        self._serialize = with_key(inner.serialize)

    @property
    def group_size(self) -> int:
        return 1

    def serialize(self, src: TensorGroup, dst: object, key: KeyLike | None = None) -> int:
        validate_group_size(src, 1, role="src")
        if src[0] is None:
            msg = "src[0]: None, expected a tensor"
            raise InvalidArgumentError(msg)
        size = self._serialize(src[0], dst, key)
        if not isinstance(size, int):
            msg = f"serialize: returned {type(size).__name__}, expected the bytes written"
            raise TypeError(msg)
        return size

    def estimate_serialized_size(self, layout_descs: LayoutGroup) -> int:
        validate_group_size(layout_descs, 1, role="layout")
        if layout_descs[0] is None:
            msg = "layout[0]: None, expected a layout"
            raise InvalidArgumentError(msg)
        return self._inner.estimate_serialized_size(layout_descs[0])


class _SingleAsMultiDeserializer(MultiDeserializer):
    def __init__(self, inner: Deserializer) -> None:
        self._deserialize = with_key(inner.deserialize)

    @property
    def group_size(self) -> int:
        return 1

    def deserialize(self, src: object, dst: TensorGroup, key: KeyLike | None = None) -> None:
        validate_group_size(dst, 1, role="dst")
        if dst[0] is not None:
            self._deserialize(src, dst[0], key)


def single_to_multi_serializer(inner: Serializer) -> MultiSerializer:
    """A serializer as one of groups of one; the bytes are the same."""
    return _SingleAsMultiSerializer(inner)


def single_to_multi_deserializer(inner: Deserializer) -> MultiDeserializer:
    """A deserializer as one of groups of one. A None in the group is skipped."""
    return _SingleAsMultiDeserializer(inner)


class K16V8MultiSerializer(MultiSerializer):
    """Writes K exactly and V in 8 bits with one scale: LMCache's container of ``asym_k16_v8``.

    Groups of two: slot 0 is K; slot 1 is V of bfloat16, float16 or float32, of the same shape. V is
    required. K may be None where it is held elsewhere: the container has none then.

    Args:
        k_dtype: The type that containers without K say K has.
    """

    def __init__(self, k_dtype: object = "bfloat16") -> None:
        self._config: dict[str, object] = {"type": "k16v8", "k_dtype": dtype_name(k_dtype)}
        self._native = _native.MultiSerializer(self._config)

    @property
    def group_size(self) -> int:
        """Two."""
        return self._native.group_size

    def serialize(self, src: TensorGroup, dst: object, key: KeyLike | None = None) -> int:
        """Writes the container to the front of `dst`; returns its bytes."""
        return self._native.serialize(src, dst, key)

    def estimate_serialized_size(self, layout_descs: LayoutGroup) -> int:
        """The bytes of the container; None stands for an absent K."""
        return self._native.estimate_serialized_size(layout_descs)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._config["k_dtype"],)


class K16V8MultiDeserializer(MultiDeserializer):
    """Reads K, V or both from a container of K16V8MultiSerializer or of LMCache.

    Groups of two: slot 0 is K, of the type that was written; slot 1 is V of any of the three types.
    None is not wanted and left alone. K that the container does not have is an error.
    """

    def __init__(self) -> None:
        self._native = _native.MultiDeserializer({"type": "k16v8"})

    @property
    def group_size(self) -> int:
        """Two."""
        return self._native.group_size

    def deserialize(self, src: object, dst: TensorGroup, key: KeyLike | None = None) -> None:
        """Fills the tensors of the group that are not None."""
        self._native.deserialize(src, dst, key)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ()
