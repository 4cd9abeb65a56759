# SPDX-License-Identifier: Apache-2.0
"""Keeps the KV cache of LLM serving in an Aerospike cluster; plugs into stock LMCache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmcache_aerospike import errors
from lmcache_aerospike._native import __version__
from lmcache_aerospike.store import Store

if TYPE_CHECKING:
    from lmcache_aerospike.native_connector import AerospikeNativeConnector

__all__ = ["AerospikeNativeConnector", "Store", "__version__", "errors"]


def __getattr__(name: str) -> object:
    # Imported when it is asked for: its module looks for LMCache, which takes seconds to import.
    if name == "AerospikeNativeConnector":
        from lmcache_aerospike.native_connector import (  # noqa: PLC0415
            AerospikeNativeConnector,
        )

        return AerospikeNativeConnector
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
