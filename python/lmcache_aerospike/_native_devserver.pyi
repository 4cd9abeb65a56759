# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PYI021 - docstrings of an extension module have no better place; editors show them
"""The part of the native module that is the development server; see _native.pyi."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypedDict

from typing_extensions import Self

class FaultCounter(TypedDict):
    id: int
    matched: int
    applied: int

class ServerStats(TypedDict):
    requests: dict[str, int]
    bytes_in: int
    bytes_out: int
    connections_opened: int
    connections_now: int
    records: int
    used_bytes: int
    running: bool
    frozen: bool
    member: bool

class DevServer:
    """An Aerospike-compatible server in this process: in memory, for tests and demos.

    Nodes are named by their index. Serves from the constructor on; ends with stop(), at the end
    of a with block, or with the object. Thread-safe.
    """

    def __init__(
        self,
        *,
        host: str = ...,
        port: int = ...,
        nodes: int = ...,
        spare_nodes: int = ...,
        replication: int = ...,
        namespaces: Sequence[dict[str, Any]] | None = ...,
        users: Sequence[dict[str, Any] | str] | None = ...,
        session_ttl_s: int = ...,
        node_ids: Sequence[str] | None = ...,
        cluster_name: str = ...,
        build: str = ...,
        threads: int = ...,
        reserve_bytes: int = ...,
        link_bytes_per_second: int = ...,
        default_timeout_ms: int = ...,
        timing: dict[str, int] | None = ...,
        racks: Sequence[int] | None = ...,
        advertised_host: str = ...,
        alternate_host: str = ...,
        tls: dict[str, Any] | None = ...,
        clear_port: bool = ...,
    ) -> None:
        """Start it.

        Args:
            host: Address to bind and to advertise.
            port: Port of the first node; 0 = any.
            nodes: That run from the start.
            spare_nodes: That start_node() can add; with the others 1 to 16.
            replication: Copies of each record.
            namespaces: Dicts with name, size_bytes, nsup_period_s, max_record_bytes,
                default_ttl_s, allow_ttl_without_nsup.
            users: Dicts with name, password, roles (names), login (internal, external, pki),
                read_quota, write_quota; or texts as the option `--user` takes them.
            session_ttl_s: Life of a login.
            node_ids: One hexadecimal name for each node.
            cluster_name: As nodes report it.
            build: Version that the nodes report.
            threads: That serve connections; 0 = up to 4.
            reserve_bytes: Memory for new records that is touched before it is needed.
            link_bytes_per_second: What the link of each node carries in each direction; 0 = all.
            default_timeout_ms: Of requests that give none.
            timing: detection_ms, join_ms, resume_ms, map_change_ms, migration_us.
            racks: Rack of each node, the spare ones included; copies go to different racks first.
            advertised_host: What nodes advertise in place of `host`.
            alternate_host: A second address of each node, bound and advertised as alternate.
            tls: A port for TLS beside the clear one: cert_file, key_file, ca_file, crl_file,
                key_password_file, client_certificates (none, optional, required), min_version
                (1.2, 1.3), ciphers, cipher_suites, name (in peers lists), port (of the first node).
            clear_port: False = TLS alone.
        """

    @property
    def hosts(self) -> str:
        """The nodes that run from the start, in the form of the option `hosts`."""

    @property
    def tls_hosts(self) -> str:
        """Their addresses for TLS; empty if there are none."""

    @property
    def alternate_hosts(self) -> str:
        """Their alternate addresses; empty if there are none."""

    def endpoints(self) -> list[tuple[str, int]]:
        """One (host, port) for each node, the spare ones last."""

    def stop(self) -> None: ...
    def stop_node(self, node: int) -> None:
        """Kill a node: its sockets close, its data are gone."""

    def start_node(self, node: int) -> None:
        """Start a stopped or spare node, empty, on its port."""

    def pause_node(self, node: int) -> None:
        """Freeze a node: clients can connect, nothing is answered."""

    def resume_node(self, node: int) -> None:
        """Let a frozen node go on with what it had."""

    def restart_node(self, node: int, down: float = 0.2) -> None:
        """Kill a node and start it `down` seconds later."""

    def rolling_restart(self, down: float = 0.2, timeout: float = 120.0) -> None:
        """Restart one node after the other, each when all has settled."""

    def remove_node(self, node: int, timeout: float = 120.0) -> None:
        """Hand a node's data over, then stop it; it is a spare one from then on."""

    def set_link(self, node: int, bytes_per_second: int) -> None:
        """Change the speed of a node's link; 0 = no limit, node -1 = all."""

    def set_latency(self, node: int, milliseconds: float) -> None:
        """Let every answer of a node leave later; node -1 = all."""

    def set_stop_writes(self, node: int, on: bool) -> None:
        """Let a node refuse writes; node -1 = all."""

    def set_rack(self, node: int, rack: int) -> None:
        """Move a node to another rack."""

    def set_user(self, user: dict[str, Any] | str) -> None:
        """Add a user, or give one another password and other rights, at once."""

    def drop_user(self, name: str) -> None:
        """Drop a user; its sessions end."""

    def expire_sessions(self) -> None:
        """End all sessions, as if their time was over."""

    def control(self, line: str) -> None:
        """Carry out a command of `lmcache-aerospike serve --control`."""

    def await_settled(self, timeout: float = 10.0) -> None:
        """Wait until all running nodes are members and hold their data."""

    def add_fault(
        self,
        *,
        action: str,
        node: int = ...,
        kinds: Sequence[str] | None = ...,
        digests: Sequence[bytes | str] | None = ...,
        key_contains: str = ...,
        set: str = ...,
        skip: int = ...,
        count: int = ...,
        delay_ms: float = ...,
        code: int = ...,
        bytes: int = ...,
        damage: str = ...,
        seed: int = ...,
    ) -> int:
        """Add an entry to the fault plan; the names are those of docs/reference/cli.md."""

    def remove_fault(self, id: int) -> bool: ...
    def clear_faults(self) -> None: ...
    def fault_counters(self) -> list[FaultCounter]: ...
    def await_fault(self, id: int, count: int = 1, timeout: float = 10.0) -> None:
        """Wait until a fault was applied `count` times."""

    def stats(self, node: int = 0) -> ServerStats: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class CertificateFiles(TypedDict):
    """Paths of PEM files."""

    ca_file: str
    server_cert: str
    server_key: str
    clients: dict[str, tuple[str, str]]

def make_certificates(folder: str, server_name: str, clients: Sequence[str]) -> CertificateFiles:
    """Make an authority of the moment and certificates that it signs, to try TLS with.

    Args:
        folder: Made if it is not there; files of the same names are replaced.
        server_name: Of the server's certificate, the option `tls_name` of clients.
        clients: Common names of certificates for clients.
    """
