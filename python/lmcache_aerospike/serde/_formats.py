# SPDX-License-Identifier: Apache-2.0
"""The built-in formats as serializers and deserializers, run by the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias, TypeVar

from lmcache_aerospike import _log, _native
from lmcache_aerospike.serde._base import (
    Deserializer,
    KeyLike,
    SerdeConfig,
    Serializer,
    dtype_name,
)

Stage: TypeAlias = Mapping[str, object] | SerdeConfig

_PREFIX = "aerospike_"
_LOGGING = frozenset({"aesgcm", "chain"})  # those that may warn of a weak key
_F = TypeVar("_F", bound="_Format")


def native_config(config: Stage) -> dict[str, object]:
    """A configuration as the engine reads it, stages included."""
    if isinstance(config, SerdeConfig):
        config = {"type": config.type, **config.kwargs}
    out = dict(config)
    stages = out.get("stages")
    if isinstance(stages, (list, tuple)):
        out["stages"] = [
            native_config(stage) if isinstance(stage, (Mapping, SerdeConfig)) else stage
            for stage in stages
        ]
    return out


def bare_type(name: str) -> str:
    """The name of a format without the prefix that LMCache knows it by."""
    return name.removeprefix(_PREFIX)


class _Format:
    """What both directions of all formats have: parameters, from which they are made again."""

    format: ClassVar[str]
    _params: dict[str, object]

    def _set_up(self, params: Mapping[str, object]) -> dict[str, object]:
        self._params = {name: value for name, value in params.items() if value is not None}
        if self.format in _LOGGING:
            _log.start()
        return native_config({"type": self.format, **self._params})

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self._params)


def _rebuild(kind: type[_F], params: dict[str, object]) -> _F:
    made = kind.__new__(kind)
    made._open(params)  # type: ignore[attr-defined]  # noqa: SLF001 - its own constructor
    return made


class NativeSerializer(_Format, Serializer):
    """A serializer of the engine. Immutable; calls release the GIL and may come from any thread."""

    def _open(self, params: Mapping[str, object]) -> None:
        self._native = _native.Serializer(self._set_up(params))

    @property
    def tag(self) -> str:
        """The format and all parameters that a reader must share."""
        return self._native.tag

    def serialize(self, src: object, dst: object, key: KeyLike | None = None) -> int:
        """Writes the serialized form of `src` to the front of `dst`; returns its bytes."""
        return self._native.serialize(src, dst, key)

    def estimate_serialized_size(self, layout_desc: object) -> int:
        """An upper bound of what serialize() writes for tensors of this layout."""
        return self._native.estimate_serialized_size(layout_desc)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tag}>"


class NativeDeserializer(_Format, Deserializer):
    """The counterpart of NativeSerializer."""

    def _open(self, params: Mapping[str, object]) -> None:
        self._native = _native.Deserializer(self._set_up(params))

    @property
    def tag(self) -> str:
        """The format and all parameters that the writer must share."""
        return self._native.tag

    def deserialize(self, src: object, dst: object, key: KeyLike | None = None) -> None:
        """Fills `dst` from the serialized bytes at the front of `src`."""
        self._native.deserialize(src, dst, key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tag}>"


class Fp8QuantizationSerializer(NativeSerializer):
    """Casts to 8-bit floats: one byte for each element, no header.

    Args:
        fp8_dtype: "float8_e4m3fn" or "float8_e5m2", also as torch's or ml_dtypes' type.
        overflow: "saturate" as torch does it since 2.13, or "nan" as older versions did.
        size_margin: Factor of the estimate. 1.0 is exact; LMCache's adapters need that where
            stored and read size must be the same.
    """

    format = "fp8"

    def __init__(
        self,
        fp8_dtype: object = "float8_e4m3fn",
        *,
        overflow: str | None = None,
        size_margin: float = 1.5,
    ) -> None:
        name = dtype_name(fp8_dtype)
        self._open({"fp8_dtype": name, "overflow": overflow, "size_margin": size_margin})


class Fp8QuantizationDeserializer(NativeDeserializer):
    """Casts 8-bit floats back to the type of the target.

    Args:
        fp8_dtype: The one that was written.
    """

    format = "fp8"

    def __init__(self, fp8_dtype: object = "float8_e4m3fn") -> None:
        self._open({"fp8_dtype": dtype_name(fp8_dtype)})


class Int8Serializer(NativeSerializer):
    """Quantizes to 8-bit integers with scales, inside a frame that describes itself.

    Args:
        head_dim: Elements that share a scale for V; 0 = a whole row.
    """

    format = "int8"

    def __init__(self, *, head_dim: int = 0) -> None:
        self._open({"head_dim": head_dim})


class Int8Deserializer(NativeDeserializer):
    """Reads what Int8Serializer wrote.

    Args:
        head_dim: As it was written.
    """

    format = "int8"

    def __init__(self, *, head_dim: int = 0) -> None:
        self._open({"head_dim": head_dim})


class Int4Serializer(NativeSerializer):
    """Quantizes to 4-bit integers with scales, inside a frame that describes itself.

    Args:
        head_dim: Elements that share a scale for V; 0 = a whole row.
    """

    format = "int4"

    def __init__(self, *, head_dim: int = 0) -> None:
        self._open({"head_dim": head_dim})


class Int4Deserializer(NativeDeserializer):
    """Reads what Int4Serializer wrote.

    Args:
        head_dim: As it was written.
    """

    format = "int4"

    def __init__(self, *, head_dim: int = 0) -> None:
        self._open({"head_dim": head_dim})


class LosslessSerializer(NativeSerializer):
    """Compresses bit-exactly: bytes of equal weight side by side, through zstd where it pays.

    Args:
        level: Of zstd.
    """

    format = "lossless"

    def __init__(self, *, level: int | None = None) -> None:
        self._open({"level": level})


class LosslessDeserializer(NativeDeserializer):
    """Reads what LosslessSerializer wrote, of any level."""

    format = "lossless"

    def __init__(self) -> None:
        self._open({})


class ChecksumSerializer(NativeSerializer):
    """Puts the key's hash and a sum of the bytes in front of them."""

    format = "checksum"

    def __init__(self) -> None:
        self._open({})


class ChecksumDeserializer(NativeDeserializer):
    """Refuses bytes that were damaged or belong to another key."""

    format = "checksum"

    def __init__(self) -> None:
        self._open({})


class AesGcmSerializer(NativeSerializer):
    """Encrypts with a key for each tenant (`cache_salt`), derived from a master key.

    Args:
        master_key_path: A file with the master key that only its owner can read.
        aes_bits: 128 or 256.
    """

    format = "aesgcm"

    def __init__(self, master_key_path: object, *, aes_bits: int = 128) -> None:
        self._open({"master_key_path": master_key_path, "aes_bits": aes_bits})


class AesGcmDeserializer(NativeDeserializer):
    """Decrypts what AesGcmSerializer wrote, and refuses what somebody changed.

    Args:
        master_key_path: A file with the same master key.
        aes_bits: As they were written.
    """

    format = "aesgcm"

    def __init__(self, master_key_path: object, *, aes_bits: int = 128) -> None:
        self._open({"master_key_path": master_key_path, "aes_bits": aes_bits})


class K16V8Serializer(NativeSerializer):
    """Keeps the keys of a [2, ...] tensor exact and casts its values to 8 bits with one scale."""

    format = "k16v8"

    def __init__(self) -> None:
        self._open({})


class K16V8Deserializer(NativeDeserializer):
    """Reads what K16V8Serializer wrote."""

    format = "k16v8"

    def __init__(self) -> None:
        self._open({})


class ChainSerializer(NativeSerializer):
    """Several formats, one after the other.

    Args:
        stages: Their configurations, the first first: ``[{"type": "lossless"}, ...]``.
    """

    format = "chain"

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._open({"stages": [native_config(stage) for stage in stages]})


class ChainDeserializer(NativeDeserializer):
    """Reads what ChainSerializer wrote.

    Args:
        stages: As they were written, in the same order.
    """

    format = "chain"

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._open({"stages": [native_config(stage) for stage in stages]})
