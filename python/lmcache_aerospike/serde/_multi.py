# SPDX-License-Identifier: Apache-2.0
"""Groups of tensors: single-tensor pairs seen as groups of one, and the format of K and V."""

from __future__ import annotations

from collections.abc import Sequence

from lmcache_aerospike.errors import InvalidArgumentError
from lmcache_aerospike.serde._base import (
    Deserializer,
    KeyLike,
    LayoutGroup,
    MultiDeserializer,
    MultiSerializer,
    Serializer,
    TensorGroup,
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
