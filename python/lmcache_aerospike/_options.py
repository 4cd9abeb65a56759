# SPDX-License-Identifier: Apache-2.0
"""The table of options, from which they are checked, documented and shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_DAY: Final = 86_400
_TTL_MAX: Final = 315_360_000
_MS_MAX: Final = 3_600_000
_RECORD_MAX: Final = 8 * _MIB


@dataclass(frozen=True)
class Option:
    """One row of the table.

    Attributes:
        name: As callers write it, unit included.
        kind: "text", "hosts", "bytes", "whole number", "true or false", "choice" or "serde".
        default: What stands when nobody gives it; None where that depends on the cluster.
        unit: "bytes", "seconds", "ms" or nothing.
        effect: What it does, and when to change it.
        low: The smallest number, for text the fewest bytes.
        high: The largest number, for text the most bytes.
        choices: The words of a choice.
        special: Numbers outside the range that have a meaning of their own.
        aliases: Other names that mean the same.
        environment: The variable that fills it in.
        secret: Whether it must never be shown.
        native: Whether the engine knows it; the others end here.
    """

    name: str
    kind: str
    default: Any
    effect: str
    unit: str = ""
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    special: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    environment: str = ""
    secret: bool = False
    native: bool = True

    @property
    def expected(self) -> str:
        """What a good value is, in words."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "serde":
            return '{"type": "...", "dtype": "...", ...}, or the same as JSON text'
        if self.kind == "hosts":
            return "host:port[,host:tls-name:port...], IPv6 as [::1]:3000"
        if self.kind == "true or false":
            return "true or false"
        if self.kind == "text":
            return f"text of {self.low} to {self.high} bytes"
        special = "".join(f"{number}, " for number in self.special)
        return f"{special}{self.low} to {self.high}"


def _segment_bytes(name: str, effect: str, aliases: tuple[str, ...] = ()) -> Option:
    return Option(
        name, "bytes", 0, effect, "bytes", 16 * _KIB, _RECORD_MAX, special=(0,), aliases=aliases
    )


def _ms(name: str, default: int, effect: str) -> Option:
    return Option(name, "whole number", default, effect, "ms", 1, _MS_MAX)


def _flag(name: str, default: bool, effect: str, native: bool = True) -> Option:
    return Option(name, "true or false", default, effect, native=native)


def _path(name: str, effect: str) -> Option:
    return Option(name, "text", "", effect, high=4096)


OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "hosts",
        "hosts",
        None,
        "Nodes to start from; one that answers is enough. The port is 3000 if left out.",
        environment="LMCACHE_AEROSPIKE_HOSTS",
    ),
    Option(
        "namespace",
        "text",
        "lmcache",
        "Namespace of the server. It must exist; it cannot be made at run time.",
        low=1,
        high=31,
        environment="LMCACHE_AEROSPIKE_NAMESPACE",
    ),
    Option(
        "set_name",
        "text",
        "kv_chunks",
        "Set that holds the objects. One for each deployment, to drop or limit it on its own.",
        low=1,
        high=63,
        aliases=("set",),
        environment="LMCACHE_AEROSPIKE_SET",
    ),
    Option(
        "username",
        "text",
        "",
        "User of an Enterprise server; empty = no login.",
        high=63,
        environment="LMCACHE_AEROSPIKE_USERNAME",
    ),
    Option(
        "password",
        "text",
        "",
        "Its password. LMCache logs its configuration: use the environment or a file.",
        high=63,
        environment="LMCACHE_AEROSPIKE_PASSWORD",
        secret=True,
    ),
    Option(
        "password_file",
        "text",
        "",
        "File whose content is the password; one line feed at its end is ignored.",
        high=4096,
        native=False,
    ),
    Option(
        "auth_mode",
        "choice",
        "internal",
        "Who knows the user: the server, a system that it asks (LDAP; the password is sent, so TLS "
        "is needed), or the client's certificate, which names him.",
        choices=("internal", "external", "pki"),
    ),
    _flag(
        "tls_enable",
        False,
        "Speak TLS with the nodes, at their TLS port; see docs/guides/security.md.",
    ),
    Option(
        "tls_name",
        "text",
        "",
        "Name that the certificate of every node must have, where `hosts` or the list of the "
        "nodes gives no other.",
        high=253,
    ),
    _path("tls_ca_file", "PEM file with the CAs to trust. With TLS, this or `tls_ca_path`."),
    _path("tls_ca_path", "Folder with the CAs to trust, as `openssl rehash` makes it."),
    _path("tls_crl_file", "PEM file with a revocation list: certificates on it are refused."),
    _path("tls_cert_file", "PEM file with the client's certificate, if the server asks for one."),
    _path("tls_key_file", "PEM file with its key."),
    Option(
        "tls_key_password",
        "text",
        "",
        "Password of an encrypted key. LMCache logs its configuration: use the environment or "
        "a file.",
        high=1024,
        environment="LMCACHE_AEROSPIKE_TLS_KEY_PASSWORD",
        secret=True,
    ),
    _path("tls_key_password_file", "File whose content is that password, instead."),
    Option(
        "tls_min_version",
        "choice",
        "1.2",
        "Oldest protocol that is spoken.",
        choices=("1.2", "1.3"),
    ),
    Option(
        "tls_ciphers",
        "text",
        "",
        "Ciphers of TLS 1.2 in OpenSSL's notation; empty = AES-GCM and ChaCha20.",
        high=4096,
    ),
    Option(
        "tls_cipher_suites",
        "text",
        "",
        "Cipher suites of TLS 1.3; empty = AES-GCM and ChaCha20, AES-128 first.",
        high=4096,
    ),
    Option(
        "cluster_name",
        "text",
        "",
        "If given, nodes of a cluster with another name are refused.",
        high=64,
    ),
    _flag(
        "use_services_alternate",
        False,
        "Connect to the alternate addresses of the nodes, for clients outside their network.",
    ),
    _segment_bytes(
        "target_segment_bytes",
        "Preferred size of a segment; 0 = 4 MiB or what the server allows, whichever is less.",
    ),
    _segment_bytes(
        "max_segment_bytes",
        "No segment is larger; 0 = the record limit of the server less 64 KiB.",
        ("max_record_bytes",),
    ),
    Option(
        "min_segment_bytes",
        "bytes",
        64 * _KIB,
        "Smaller segments are avoided where one record can hold the object.",
        "bytes",
        1,
        _RECORD_MAX,
    ),
    _segment_bytes(
        "single_record_threshold_bytes",
        "Objects up to this size are one record; 0 = the target segment size.",
    ),
    Option(
        "default_ttl_seconds",
        "whole number",
        _DAY,
        "Life of an object: 0 = the namespace's default, -1 = no end, -2 = keep the present one.",
        "seconds",
        1,
        _TTL_MAX,
        special=(-2, -1, 0),
    ),
    Option(
        "segment_ttl_grace_seconds",
        "whole number",
        60,
        "Segments outlive their meta record by this, so that what is found can be loaded.",
        "seconds",
        0,
        _DAY,
    ),
    _flag(
        "refresh_ttl_on_read",
        False,
        "A load renews the life of the object, so that what is used stays.",
    ),
    _ms(
        "read_timeout_ms", 1000, "Deadline of a load or lookup; it grows with the bytes asked for."
    ),
    _ms("write_timeout_ms", 2000, "Deadline of a store or delete; it grows with the bytes."),
    Option(
        "batch_timeout_ms",
        "whole number",
        0,
        "If above 0, the deadline of every batch, whatever it does and however large it is.",
        "ms",
        0,
        _MS_MAX,
    ),
    _ms(
        "request_timeout_ms",
        150,
        "A node that is silent for so long is left for another one in the middle of a load.",
    ),
    _ms("write_request_timeout_ms", 1000, "The same for one request of a store."),
    _ms("connect_timeout_ms", 1000, "To open a connection; the start takes about twice as long."),
    Option(
        "start_timeout_ms",
        "whole number",
        0,
        "How long a start waits for a cluster that is away; 0 = it fails after two rounds, with "
        "the reason of every seed. A refused login is no reason to wait.",
        "ms",
        0,
        _MS_MAX,
    ),
    _ms("tend_interval_ms", 1000, "Between two looks at the state of the cluster."),
    Option(
        "num_io_threads",
        "whole number",
        2,
        "Threads of the engine. More help only while one core is busy and the link is not full.",
        low=1,
        high=64,
        aliases=("num_workers",),
    ),
    Option(
        "max_bytes_in_flight",
        "bytes",
        256 * _MIB,
        "Bytes under way at once; what is over it waits. At least bandwidth times round trip. "
        "Stores have at most half of it.",
        "bytes",
        _MIB,
        64 * _GIB,
    ),
    Option(
        "max_store_bytes_queued",
        "bytes",
        4 * _GIB,
        "Bytes of objects that wait to be stored or are under way; what comes on top is shed, as "
        "AerospikeBusyError. At least what one prompt stores at once.",
        "bytes",
        _MIB,
        1024 * _GIB,
    ),
    Option(
        "max_connections_per_node",
        "whole number",
        256,
        "Upper limit for each node; a few are used.",
        low=1,
        high=10_000,
    ),
    Option(
        "commit_level",
        "choice",
        "all",
        "Whether a store waits for all replicas or for the master alone.",
        choices=("all", "master"),
    ),
    Option(
        "replica",
        "choice",
        "sequence",
        "Which copy a load asks first; the others follow if it fails.",
        choices=("master", "sequence", "any", "prefer_rack"),
    ),
    Option(
        "rack_id",
        "whole number",
        -1,
        "Rack of this machine, for replica prefer_rack; -1 = none.",
        low=0,
        high=1_000_000,
        special=(-1,),
    ),
    _flag(
        "hedge_reads",
        False,
        "A load that is answered later than most is sent to a second replica, too; the first wins.",
    ),
    _flag("send_key", True, "Meta records carry their key, which makes them listable."),
    _flag("enable_crc32", False, "Also store zlib CRC-32 sums, for readers that check those."),
    Option(
        "verify",
        "choice",
        "identity",
        "What a load checks beyond sizes: nothing, that all segments belong to one write of the "
        "object, or also the received bytes.",
        choices=("none", "identity", "full"),
    ),
    _flag(
        "enable_list",
        False,
        "The remote connector's list() scans the set; without it, it returns nothing.",
        native=False,
    ),
    Option(
        "batch_max_in_flight",
        "whole number",
        64,
        "Accepted for configurations of other connectors, without effect: here the bytes under way "
        "are bounded, by max_bytes_in_flight.",
        low=1,
        high=65_536,
        native=False,
    ),
    Option(
        "executor_threads",
        "whole number",
        16,
        "Accepted for configurations of other connectors, without effect: requests do not hold "
        "threads here, see num_io_threads.",
        low=1,
        high=1024,
        native=False,
    ),
    Option(
        "serde",
        "serde",
        None,
        "Objects are encoded on their way to the server and decoded on their way back, without "
        "a second buffer in LMCache; see docs/reference/serde.md.",
    ),
)

BY_NAME: Final[dict[str, Option]] = {
    name: option for option in OPTIONS for name in (option.name, *option.aliases)
}
