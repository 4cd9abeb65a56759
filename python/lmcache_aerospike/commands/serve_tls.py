# SPDX-License-Identifier: Apache-2.0
"""TLS of the development server: the options of ``serve``, and how clients reach it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmcache_aerospike import _native
from lmcache_aerospike.errors import AerospikeConfigError

_DEFAULT_NAME = "aerospike.test"
_CLIENT_CERTIFICATES = ("none", "optional", "required")


@dataclass(frozen=True, kw_only=True)
class TlsArguments:
    """As they stand on the command line; empty = not given."""

    directory: str
    cert: str
    key: str
    ca: str
    name: str
    port: int
    client_certificates: str


@dataclass(frozen=True, kw_only=True)
class TlsSetup:
    """What the server is given, and what clients have to be told."""

    server: dict[str, Any]
    client: dict[str, str]

    def client_line(self) -> str:
        """The options of a client, for a command line."""
        options = {"tls_enable": "true", **self.client}
        return " ".join(f"-O {shlex.quote(f'{name}={value}')}" for name, value in options.items())


def tls_setup(arguments: TlsArguments, users: list[str]) -> TlsSetup | None:
    """The TLS that the arguments ask for; None if they ask for none.

    With a directory, certificates are made there: one for the server, and one for each user of the
    mode pki, or else for "client".

    Raises:
        AerospikeConfigError: The arguments contradict each other.
    """
    if arguments.client_certificates not in _CLIENT_CERTIFICATES:
        known = ", ".join(_CLIENT_CERTIFICATES)
        msg = f"--tls-client-certificates: '{arguments.client_certificates}', expected {known}"
        raise AerospikeConfigError(msg)
    if arguments.directory and (arguments.cert or arguments.key or arguments.ca):
        msg = "--tls-dir makes certificates: leave --tls-cert, --tls-key and --tls-ca out"
        raise AerospikeConfigError(msg)
    if not arguments.directory and not arguments.cert:
        if arguments.key or arguments.ca or arguments.name:
            msg = "TLS needs --tls-cert and --tls-key, or --tls-dir"
            raise AerospikeConfigError(msg)
        return None
    server: dict[str, Any] = {
        "name": arguments.name,
        "port": arguments.port,
        "client_certificates": arguments.client_certificates,
    }
    if not arguments.directory:
        server.update(
            cert_file=arguments.cert, key_file=arguments.key, ca_file=arguments.ca or None
        )
        return TlsSetup(server=server, client=_named({}, arguments.name))
    return _made(arguments, server, users)


def _made(arguments: TlsArguments, server: dict[str, Any], users: list[str]) -> TlsSetup:
    name = arguments.name or _DEFAULT_NAME
    by_certificate = [user.split(":")[0] for user in users if user.endswith(":pki")]
    folder = str(Path(arguments.directory).absolute())
    made = _native.make_certificates(folder, name, by_certificate or ["client"])
    server.update(
        name=name,
        cert_file=made["server_cert"],
        key_file=made["server_key"],
        ca_file=made["ca_file"],
    )
    client = _named({"tls_ca_file": made["ca_file"]}, name)
    if by_certificate:
        client["auth_mode"] = "pki"
    if by_certificate or arguments.client_certificates != "none":
        cert, key = next(iter(made["clients"].values()))
        client.update(tls_cert_file=cert, tls_key_file=key)
    return TlsSetup(server=server, client=client)


def _named(client: dict[str, str], name: str) -> dict[str, str]:
    return {**client, "tls_name": name} if name else client
