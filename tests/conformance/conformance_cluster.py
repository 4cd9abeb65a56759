# SPDX-License-Identifier: Apache-2.0
"""A cluster of the development server with the official client connected to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aerospike

from lmcache_aerospike import _native


@dataclass
class Cluster:
    """A development server and an official client that is connected to it."""

    server: _native.DevServer
    client: Any


def open_cluster(**options: Any) -> Iterator[Cluster]:
    """A cluster with the given options of DevServer."""
    with _native.DevServer(**options) as server:
        config: dict[str, Any] = {"hosts": server.endpoints()}
        if user := os.environ.get("LMCACHE_AEROSPIKE_USERNAME"):
            config |= {"user": user, "password": os.environ["LMCACHE_AEROSPIKE_PASSWORD"]}
        client = aerospike.client(config).connect()
        try:
            yield Cluster(server, client)
        finally:
            client.close()
