# SPDX-License-Identifier: Apache-2.0
"""Keeps the KV cache of LLM serving in an Aerospike cluster; plugs into stock LMCache."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from lmcache_aerospike import errors
from lmcache_aerospike._native import __version__
from lmcache_aerospike.native_connector import AerospikeNativeConnector
from lmcache_aerospike.store import Store

if TYPE_CHECKING:
    from lmcache_aerospike.adapter import AerospikeConnectorAdapter
    from lmcache_aerospike.connector import AerospikeRemoteConnector
    from lmcache_aerospike.l2_plugin import AerospikeL2Plugin
    from lmcache_aerospike.storage_plugin import AerospikeStoragePlugin

__all__ = [
    "AerospikeConnectorAdapter",
    "AerospikeL2Plugin",
    "AerospikeNativeConnector",
    "AerospikeRemoteConnector",
    "AerospikeStoragePlugin",
    "Store",
    "__version__",
    "errors",
]

# These need LMCache, which takes seconds to import and need not be there.
_LATER: Final = {
    "AerospikeConnectorAdapter": "lmcache_aerospike.adapter",
    "AerospikeL2Plugin": "lmcache_aerospike.l2_plugin",
    "AerospikeRemoteConnector": "lmcache_aerospike.connector",
    "AerospikeStoragePlugin": "lmcache_aerospike.storage_plugin",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_LATER[name]), name)
