# SPDX-License-Identifier: Apache-2.0
"""A development server of three nodes that does what it is told on stdin: "stop 1", "start 1"."""

from __future__ import annotations

import sys

from lmcache_aerospike import _native

FAST = {"detection_ms": 200, "join_ms": 200, "resume_ms": 100, "map_change_ms": 20}


def main() -> None:
    with _native.DevServer(
        port=int(sys.argv[1]),
        nodes=3,
        replication=2,
        timing=FAST,
        namespaces=[{"name": "lmcache", "size_bytes": 1 << 30}],
    ) as server:
        sys.stdout.write(f"ready {server.hosts}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            verb, node = line.split()
            {"stop": server.stop_node, "start": server.start_node}[verb](int(node))
            sys.stdout.write("done\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
