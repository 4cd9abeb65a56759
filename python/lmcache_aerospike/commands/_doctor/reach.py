# SPDX-License-Identifier: Apache-2.0
"""Whether the hosts that were given can be reached at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from lmcache_aerospike.commands._doctor.findings import FAIL, OK, WARN, Finding


def split_hosts(hosts: str) -> list[tuple[str, int]]:
    """Names and ports of the option `hosts`, which is checked."""
    pairs = (entry.rpartition(":") for entry in hosts.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def check_hosts(hosts: str, timeout: float) -> Iterator[Finding]:
    """One finding for each host; they fail only if none can be reached."""
    seen = [(host, port, _connect(host, port, timeout)) for host, port in split_hosts(hosts)]
    is_one_up = any(problem is None for _, _, problem in seen)
    for host, port, problem in seen:
        name = f"{host}:{port}"
        if problem is None:
            yield Finding("host", OK, f"{name} takes connections")
        else:
            yield Finding("host", WARN if is_one_up else FAIL, f"{name}: {problem[0]}", problem[1])


def _connect(host: str, port: int, timeout: float) -> tuple[str, str] | None:
    """None, or what went wrong and what to do."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return f"the name is not known ({error.strerror})", "correct --hosts, or DNS"
    last: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as probe:
            probe.settimeout(timeout)
            try:
                probe.connect(address)
            except OSError as error:
                last = error
            else:
                return None
    if isinstance(last, TimeoutError):
        return (
            f"no answer within {timeout:g} s",
            (
                "is the machine up, and does a firewall let the port through? "
                "aerospike.conf, network { service { address, port } }"
            ),
        )
    if isinstance(last, ConnectionRefusedError):
        return (
            "connection refused",
            (
                "nothing listens there: start the server, or correct --hosts (aerospike.conf, "
                "network { service { port 3000 } }); for development: lmcache-aerospike serve"
            ),
        )
    return str(last), "correct --hosts, or the network"
