# SPDX-License-Identifier: Apache-2.0
"""The class that LMCache's adapter type ``native_plugin`` loads."""

from __future__ import annotations

from lmcache_aerospike import _lmcache, _log, _native, metrics
from lmcache_aerospike.config import Config

__all__ = ["AerospikeNativeConnector"]

_lmcache.register_serdes()


class AerospikeNativeConnector(_native.Connector):
    """Batches of loads, stores, lookups and deletes, each with one completion.

    All methods but the constructor are those of the engine; no Python code runs between LMCache
    and it.

    Args:
        hosts: Nodes to start from, "host:port[,host:port...]".
        namespace: Namespace of the server, "lmcache" if not given.
        set_name: Set that holds the objects, "kv_chunks" if not given.
        **options: The other options of docs/reference/config.md.

    Raises:
        AerospikeConfigError: An option is unknown, missing or has a bad value.
        AerospikeConnectionError: No node could be reached.
        AerospikeDeniedError: Login, namespace or TTL was refused.
    """

    def __init__(
        self,
        hosts: str | None = None,
        namespace: str | None = None,
        set_name: str | None = None,
        **options: object,
    ) -> None:
        if set_name is not None:
            options["set_name"] = set_name
        config = Config.resolve({"hosts": hosts, "namespace": namespace, **options})
        _log.start()
        metrics.attach()
        super().__init__(config.native())
