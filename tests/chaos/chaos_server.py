# SPDX-License-Identifier: Apache-2.0
"""A development server in a process of its own, to which events happen that come on stdin.

Arguments: seed, nodes. Commands are events without their time ("stop 2", "fault 7 action=..."),
and "restore", "settled", "quit"; each is answered by "ok" or "error: ...".
"""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from schedule import RECORD_LIMIT, Recipe

from lmcache_aerospike import Store, _native

FAST = {
    "detection_ms": 300,
    "join_ms": 300,
    "resume_ms": 200,
    "migration_us": 50,
}
USER = {"name": "chaos", "password": "a password", "roles": ["read-write", "sys-admin"]}
REMOVAL_SECONDS = 4.0
NUMBERS = ("node", "skip", "count", "code", "bytes", "seed")


class Stage:
    """The cluster, and what is not as it was at the start."""

    def __init__(self, recipe: Recipe) -> None:
        options: dict[str, Any] = {
            "nodes": recipe.nodes,
            "spare_nodes": 1,
            "replication": recipe.replication,
            "timing": FAST,
            "namespaces": [
                {"name": "lmcache", "size_bytes": 1 << 30, "max_record_bytes": RECORD_LIMIT}
            ],
        }
        if recipe.has_users:
            options |= {"users": [USER], "session_ttl_s": 3}
        if recipe.has_racks:
            options["racks"] = [i % 2 for i in range(recipe.nodes + 1)]
        self.server = _native.DevServer(**options)
        login = {"username": USER["name"], "password": USER["password"]}
        self._login = login if recipe.has_users else {}
        self._nodes = recipe.nodes
        self._stopped: set[int] = set()
        self._frozen: set[int] = set()
        self._faults: dict[str, int] = {}
        self._spare_is_up = False
        self._removal: Future[None] | None = None
        self._pool = ThreadPoolExecutor(1)

    def apply(self, verb: str, arguments: list[str]) -> None:
        getattr(self, f"_{verb}")(*arguments)

    def _stop(self, text: str) -> None:
        self._collect_removal()
        node = int(text)
        self.server.stop_node(node)
        self._frozen.discard(node)
        if node == self._nodes:
            self._spare_is_up = False
        else:
            self._stopped.add(node)

    def _start(self, text: str) -> None:
        self._collect_removal()
        node = int(text)
        if node == self._nodes:
            self._spare_is_up = True
        elif node not in self._stopped:
            return
        self._stopped.discard(node)
        self.server.start_node(node)

    def _pause(self, text: str) -> None:
        if int(text) not in self._stopped:
            self.server.pause_node(int(text))
            self._frozen.add(int(text))

    def _resume(self, text: str) -> None:
        if int(text) in self._frozen:
            self._frozen.discard(int(text))
            self.server.resume_node(int(text))

    def _remove(self, text: str) -> None:
        # It takes as long as the data need; the other events go on.
        self._removal = self._pool.submit(self.server.remove_node, int(text), REMOVAL_SECONDS)

    def _collect_removal(self) -> None:
        if self._removal is None:
            return
        try:
            self._removal.result()
        except Exception:  # a frozen node, for one, did not let it hand over
            self.server.stop_node(self._nodes)
        self._removal = None
        self._spare_is_up = False

    def _fault(self, tag: str, *texts: str) -> None:
        fields: dict[str, Any] = dict(text.split("=", 1) for text in texts)
        fields |= {name: int(fields[name]) for name in NUMBERS if name in fields}
        if "delay_ms" in fields:
            fields["delay_ms"] = float(fields["delay_ms"])
        fields["kinds"] = fields["kinds"].split(",")
        self._faults[tag] = self.server.add_fault(**fields)

    def _unfault(self, tag: str) -> None:
        if tag in self._faults:
            self.server.remove_fault(self._faults.pop(tag))

    def _limit(self, text: str) -> None:
        setting = f"set-config:context=namespace;namespace=lmcache;max-record-size={text}"
        try:
            with Store(self.server.hosts, connect_timeout_ms=300, **self._login) as store:
                store.info(setting)
        except Exception as error:  # nodes that are away keep theirs until restore()
            print(f"limit: {error}", file=sys.stderr)

    def _link(self, node: str, value: str) -> None:
        self.server.set_link(int(node), int(value))

    def _latency(self, node: str, value: str) -> None:
        self.server.set_latency(int(node), int(value) / 1000)

    def _stop_writes(self, node: str, value: str) -> None:
        self.server.set_stop_writes(int(node), value == "1")

    def _expire(self) -> None:
        self.server.expire_sessions()

    def _user(self, value: str) -> None:
        if value == "0":
            self.server.drop_user(USER["name"])
        else:
            self.server.set_user(USER)

    def _rack(self, node: str, value: str) -> None:
        self.server.set_rack(int(node), int(value))

    def _rotate(self) -> None:
        """Certificates are renewed in the C++ part, which speaks TLS."""

    def _restore(self) -> None:
        self.server.clear_faults()
        self._faults.clear()
        self._collect_removal()
        for node in self._frozen:
            self.server.resume_node(node)
        for node in self._stopped:
            self.server.start_node(node)
        self._frozen.clear()
        self._stopped.clear()
        self.server.set_link(-1, 0)
        self.server.set_latency(-1, 0)
        self.server.set_stop_writes(-1, False)
        if self._login:
            self.server.set_user(USER)

    def _settled(self) -> None:
        """Waits; what could not be told to nodes that were away is told now."""
        self.server.await_settled(30.0)
        self._limit(str(RECORD_LIMIT))


def main() -> None:
    """Serves until the end of stdin."""
    stage = Stage(Recipe(seed=int(sys.argv[1]), nodes=int(sys.argv[2])))
    print(f"ready {stage.server.hosts}", flush=True)
    for line in sys.stdin:
        verb, *arguments = line.split()
        try:
            stage.apply(verb, arguments)
        except Exception as error:
            print(f"error: {verb}: {error!r}", flush=True)
        else:
            print("ok", flush=True)
    stage.server.stop()


if __name__ == "__main__":
    main()
