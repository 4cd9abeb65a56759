# SPDX-License-Identifier: Apache-2.0
"""Serdes by name, for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from lmcache_aerospike import _native
from lmcache_aerospike.errors import InvalidArgumentError
from lmcache_aerospike.serde._base import SerdeConfig, SerdeProcessor
from lmcache_aerospike.serde._formats import bare_type
from lmcache_aerospike.serde._processor import AsyncSerdeProcessor

SerdeFactory = Callable[[dict[str, object]], SerdeProcessor]

_lock = threading.Lock()
_factories: dict[str, SerdeFactory] = {}


def register_serde_factory(name: str, factory: SerdeFactory) -> None:
    """Adds a type.

    Args:
        name: As configurations write it.
        factory: Gets the configuration without its type, once for each processor.

    Raises:
        InvalidArgumentError: The name is empty or taken. Also a ValueError.
    """
    if not name:
        msg = "register_serde_factory: empty name"
        raise InvalidArgumentError(msg)
    with _lock:
        if name in _factories or bare_type(name) in _native.serde_types():
            msg = f"register_serde_factory: {name} is registered already"
            raise InvalidArgumentError(msg)
        _factories[name] = factory


def get_registered_serde_types() -> list[str]:
    """All names, the built-in formats included, in alphabetical order."""
    with _lock:
        return sorted({*_factories, *_native.serde_types()})


def create_serde_processor(config: SerdeConfig | Mapping[str, object]) -> SerdeProcessor:
    """Makes a processor.

    Args:
        config: A SerdeConfig, or the JSON object with its `type`. Built-in formats may carry the
            prefix that LMCache knows them by.

    Raises:
        InvalidArgumentError: An unknown type (the known ones are named), or a parameter that is
            unknown, missing or out of range. Also a ValueError.
    """
    if not isinstance(config, SerdeConfig):
        kwargs = dict(config)
        config = SerdeConfig(str(kwargs.pop("type", "")), kwargs)
    with _lock:
        factory = _factories.get(config.type)
    if factory is not None:
        return factory(dict(config.kwargs))
    if bare_type(config.type) in _native.serde_types():
        return AsyncSerdeProcessor.from_config(config)
    known = ", ".join(get_registered_serde_types())
    msg = f"serde: unknown type {config.type!r}, known are {known}"
    raise InvalidArgumentError(msg)
