# SPDX-License-Identifier: Apache-2.0
"""A cluster of the development server with the official client connected to it."""

from __future__ import annotations

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
        client = aerospike.client({"hosts": server.endpoints()}).connect()
        try:
            yield Cluster(server, client)
        finally:
            client.close()
