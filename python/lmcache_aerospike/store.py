# SPDX-License-Identifier: Apache-2.0
"""The library: objects of any size in an Aerospike cluster, without LMCache."""

from __future__ import annotations

from lmcache_aerospike import _log, _native, metrics
from lmcache_aerospike.config import Config

__all__ = ["Store"]


class Store(_native.Store):
    """Loads, stores, looks up and lists objects; every call waits for its result.

    Calls release the GIL while they wait, and may come from any thread. A missing object is no
    error: it is None or False.

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
