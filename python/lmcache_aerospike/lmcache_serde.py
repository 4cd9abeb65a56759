# SPDX-License-Identifier: Apache-2.0
"""The serdes as LMCache's own classes, registered by importing this module.

``{"type": "fs", ..., "serde": {"type": "aerospike_fp8"}}`` then works for every L2 adapter. Needs
LMCache; ``lmcache_aerospike.serde`` has the same without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lmcache.v1.distributed.serde import (
    Deserializer,
    MultiDeserializer,
    MultiSerializer,
    SerdeProcessor,
    Serializer,
    get_registered_serde_types,
    register_serde_factory,
)

from lmcache_aerospike import _native, serde

__all__ = [
    "AerospikeDeserializer",
    "AerospikeMultiDeserializer",
    "AerospikeMultiSerializer",
    "AerospikeSerdeProcessor",
    "AerospikeSerializer",
    "register",
]


_PREFIX: Final = "aerospike_"


class AerospikeSerializer(Serializer):  # type: ignore[misc]
    """A serializer of the engine as LMCache's.

    Args:
        format: "fp8", "lossless", ..., with or without the prefix.
        **params: Of the format, as in its JSON configuration.
    """

    def __init__(self, format: str, **params: object) -> None:
        self._native = _native.Serializer(serde.native_config({"type": format, **params}))

    def serialize(self, src: object, dst: object, key: serde.KeyLike | None = None) -> int:
        """Writes the serialized form of `src` to the front of `dst`; returns its bytes."""
        return self._native.serialize(src, dst, key)

    def estimate_serialized_size(self, layout_desc: object) -> int:
        """An upper bound of what serialize() writes for objects of this layout."""
        return self._native.estimate_serialized_size(layout_desc)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._native.tag}>"


class AerospikeDeserializer(Deserializer):  # type: ignore[misc]
    """A deserializer of the engine as LMCache's.

    Args:
        format: "fp8", "lossless", ..., with or without the prefix.
        **params: Of the format, as in its JSON configuration.
    """

    def __init__(self, format: str, **params: object) -> None:
        self._native = _native.Deserializer(serde.native_config({"type": format, **params}))

    def deserialize(self, src: object, dst: object, key: serde.KeyLike | None = None) -> None:
        """Fills `dst` from the serialized bytes at the front of `src`."""
        self._native.deserialize(src, dst, key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._native.tag}>"


class AerospikeMultiSerializer(MultiSerializer):  # type: ignore[misc]
    """K exactly and V in 8 bits as LMCache's multi-output serializer; see K16V8MultiSerializer.

    Args:
        k_dtype: The type that containers without K say K has.
    """

    def __init__(self, k_dtype: object = "bfloat16") -> None:
        self._inner = serde.K16V8MultiSerializer(k_dtype)

    @property
    def group_size(self) -> int:
        """Two: K and V."""
        return self._inner.group_size

    def serialize(
        self, src: Sequence[object], dst: object, key: serde.KeyLike | None = None
    ) -> int:
        """Writes the container to the front of `dst`; returns its bytes."""
        return self._inner.serialize(src, dst, key)

    def estimate_serialized_size(self, layout_descs: Sequence[object]) -> int:
        """The bytes of the container; None stands for an absent K."""
        return self._inner.estimate_serialized_size(layout_descs)


class AerospikeMultiDeserializer(MultiDeserializer):  # type: ignore[misc]
    """The counterpart of AerospikeMultiSerializer; see K16V8MultiDeserializer."""

    def __init__(self) -> None:
        self._inner = serde.K16V8MultiDeserializer()

    @property
    def group_size(self) -> int:
        """Two: K and V."""
        return self._inner.group_size

    def deserialize(
        self, src: object, dst: Sequence[object], key: serde.KeyLike | None = None
    ) -> None:
        """Fills the objects of the group that are not None."""
        self._inner.deserialize(src, dst, key)


class AerospikeSerdeProcessor(SerdeProcessor):  # type: ignore[misc]
    """The engine's processor as LMCache's. Failures are logged with their reasons.

    Args:
        config: As in JSON: type (with or without the prefix), parameters, `max_workers`.
    """

    def __init__(self, config: dict[str, object]) -> None:
        self._inner = serde.AsyncSerdeProcessor.from_config(config)

    def get_serialize_event_fd(self) -> int:
        """The eventfd that is signalled once for each serialize task."""
        return self._inner.get_serialize_event_fd()

    def get_deserialize_event_fd(self) -> int:
        """The eventfd that is signalled once for each deserialize task."""
        return self._inner.get_deserialize_event_fd()

    def submit_serialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[serde.KeyLike | None] | None = None,
    ) -> serde.SerdeTaskId:
        """Starts to serialize each of `src_objs` into the one of `dst_objs` beside it."""
        return self._inner.submit_serialize(src_objs, dst_objs, keys)

    def query_serialize_result(self, task_id: serde.SerdeTaskId) -> bool | None:
        """Whether all objects of the task were serialized: once for each task, None before."""
        return self._inner.query_serialize_result(task_id)

    def submit_deserialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[serde.KeyLike | None] | None = None,
    ) -> serde.SerdeTaskId:
        """Starts to deserialize each of `src_objs` into the one of `dst_objs` beside it."""
        return self._inner.submit_deserialize(src_objs, dst_objs, keys)

    def query_deserialize_result(self, task_id: serde.SerdeTaskId) -> bool | None:
        """Whether all objects of the task were deserialized: once for each task, None before."""
        return self._inner.query_deserialize_result(task_id)

    def estimate_serialized_size(self, layout_desc: object) -> int:
        """An upper bound of what is written for objects of this layout."""
        return self._inner.estimate_serialized_size(layout_desc)

    def last_errors(self) -> list[serde.SerdeFailure]:
        """The newest failures, oldest first."""
        return self._inner.last_errors()

    def close(self) -> None:
        """Ends what has not begun, waits for what has, frees threads and descriptors."""
        self._inner.close()

    def __repr__(self) -> str:
        return repr(self._inner)


def _factory(type_name: str) -> Callable[[dict[str, object]], AerospikeSerdeProcessor]:
    def create(kwargs: dict[str, object]) -> AerospikeSerdeProcessor:
        return AerospikeSerdeProcessor({**kwargs, "type": type_name})

    return create


def register() -> None:
    """Makes the types known to LMCache; those that it knows already stay as they are."""
    known = get_registered_serde_types()
    for name in _native.serde_types():
        if _PREFIX + name not in known:
            register_serde_factory(_PREFIX + name, _factory(name))


register()
