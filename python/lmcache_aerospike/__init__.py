# SPDX-License-Identifier: Apache-2.0
"""Keeps the KV cache of LLM serving in an Aerospike cluster; plugs into stock LMCache."""

from __future__ import annotations

from lmcache_aerospike import errors
from lmcache_aerospike._native import __version__
from lmcache_aerospike.native_connector import AerospikeNativeConnector
from lmcache_aerospike.store import Store

__all__ = ["AerospikeNativeConnector", "Store", "__version__", "errors"]
