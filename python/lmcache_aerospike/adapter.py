# SPDX-License-Identifier: Apache-2.0
"""The class that LMCache's remote storage plug-ins load, for its in-process mode."""

from __future__ import annotations

from typing import Final

from lmcache.v1.storage_backend.connector import (
    ConnectorAdapter,
    ConnectorContext,
    extract_plugin_type,
)

from lmcache_aerospike.client import AerospikeClientHolder
from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.connector import AerospikeRemoteConnector

__all__ = ["AerospikeConnectorAdapter"]

_SCHEME: Final = "aerospike://"
_PLUGIN: Final = "plugin://"
_TYPE: Final = "aerospike"


class AerospikeConnectorAdapter(ConnectorAdapter):  # type: ignore[misc]
    """Makes connectors for plugin and aerospike URLs.

    They are ``plugin://aerospike``, ``plugin://aerospike.<instance>`` and
    ``aerospike://user@host:port,host2:port/namespace/set?option=value``.
    """

    def __init__(self) -> None:
        super().__init__(_SCHEME)

    def can_parse(self, url: str) -> bool:
        """Whether `url` is one of these."""
        if url.startswith(_PLUGIN):
            return bool(extract_plugin_type(url[len(_PLUGIN) :]) == _TYPE)
        return url.startswith(_SCHEME)

    def create_connector(self, context: ConnectorContext) -> AerospikeRemoteConnector:
        """Connects to the cluster that the configuration names.

        Raises:
            AerospikeConnectorError: One of its subclasses: the options, or the cluster, cannot be
                used; LMCache logs it and tries again later.
        """
        backend = context.local_cpu_backend
        # A scheduler has no backend but a stand-in without these.
        config = getattr(backend, "config", None) or context.config
        metadata = getattr(backend, "metadata", None) or context.metadata
        has_url = context.url.startswith(_SCHEME)
        name = context.plugin_name or (_TYPE if has_url else context.url[len(_PLUGIN) :])
        aerospike_config = AerospikeConfig.from_extra_config(
            config.extra_config if config else None, name, context.url if has_url else ""
        )
        holder = AerospikeClientHolder.get_or_create(aerospike_config)
        try:
            return AerospikeRemoteConnector(
                config=config,
                metadata=metadata,
                local_cpu_backend=backend,
                loop=context.loop,
                aerospike_config=aerospike_config,
                client_holder=holder,
            )
        except BaseException:
            holder.release()
            raise
