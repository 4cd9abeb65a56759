# SPDX-License-Identifier: Apache-2.0
"""A store over TLS with a user, against servers in this process and as a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmcache_aerospike import Store, _native
from lmcache_aerospike.errors import (
    AerospikeConnectionError,
    AerospikeConnectorError,
    AerospikeDeniedError,
)

NAME = "db.example"
OBJECT = bytes(range(256)) * 12288  # 3 MiB: several segments, many TLS records


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> _native.CertificateFiles:
    folder = tmp_path_factory.mktemp("tls") / "made"
    return _native.make_certificates(str(folder), NAME, ["pam"])


@pytest.fixture
def secured(certificates: _native.CertificateFiles) -> Any:
    """Three nodes that speak nothing but TLS, and know three users."""
    tls = {
        "cert_file": certificates["server_cert"],
        "key_file": certificates["server_key"],
        "ca_file": certificates["ca_file"],
        "client_certificates": "optional",
        "name": NAME,
    }
    users = ["rw:correct-horse:read-write", "reader:battery:read", "pam::read-write:pki"]
    with _native.DevServer(
        nodes=3, replication=2, tls=tls, users=users, clear_port=False
    ) as server:
        yield server


def options(certificates: _native.CertificateFiles, **more: Any) -> dict[str, Any]:
    return {
        "tls_enable": True,
        "tls_name": NAME,
        "tls_ca_file": certificates["ca_file"],
        "username": "rw",
        "password": "correct-horse",
        **more,
    }


def check(store: Store) -> None:
    """Objects of one record and of several are stored, found, loaded and deleted."""
    store.put_many(["small", "large"], [b"content", OBJECT])
    assert store.exists_many(["small", "large", "absent"]) == [True, True, False]
    assert store.get("small") == b"content"
    assert store.get("large") == OBJECT
    assert store.delete_many(["small", "large"]) == [True, True]
    assert store.get("large") is None


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_objects_through_tls(
    secured: Any, certificates: _native.CertificateFiles, version: str
) -> None:
    with Store(secured.tls_hosts, **options(certificates, tls_min_version=version)) as store:
        check(store)
    assert all(secured.stats(node)["connections_opened"] > 0 for node in range(3))


def test_the_certificate_is_the_user(secured: Any, certificates: _native.CertificateFiles) -> None:
    cert, key = certificates["clients"]["pam"]
    given = options(certificates, tls_cert_file=cert, tls_key_file=key, auth_mode="pki")
    del given["username"], given["password"]
    with Store(secured.tls_hosts, **given) as store:
        check(store)


def test_an_external_user_sends_the_password_in_tls_alone(
    certificates: _native.CertificateFiles,
) -> None:
    tls = {"cert_file": certificates["server_cert"], "key_file": certificates["server_key"]}
    users = ["ldap:from-the-directory:read-write:external"]
    with _native.DevServer(tls={**tls, "name": NAME}, users=users) as server:
        given = options(certificates, username="ldap", password="from-the-directory")
        with Store(server.tls_hosts, **given, auth_mode="external") as store:
            check(store)
        with pytest.raises(AerospikeConnectorError) as caught:
            Store(
                server.hosts,
                username="ldap",
                password="from-the-directory",
                auth_mode="external",
            )
        assert "tls_enable" in str(caught.value)
        assert "from-the-directory" not in str(caught.value)


def test_a_role_is_held_through_tls(secured: Any, certificates: _native.CertificateFiles) -> None:
    with Store(secured.tls_hosts, **options(certificates)) as store:
        store.put("key", b"content")
    reader = options(certificates, username="reader", password="battery")
    with Store(secured.tls_hosts, **reader) as store:
        assert store.get("key") == b"content"
        with pytest.raises(AerospikeDeniedError, match="role violation"):
            store.put("key", b"other")
        assert store.get("key") == b"content"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"password": "wrong-horse"}, ("credential", "password")),
        ({"tls_name": "other.example"}, ("wrong name", NAME)),
    ],
)
def test_refusals_name_the_reason(
    secured: Any,
    certificates: _native.CertificateFiles,
    changes: dict[str, str],
    words: tuple[str, ...],
) -> None:
    with pytest.raises(AerospikeConnectorError) as caught:
        Store(secured.tls_hosts, **options(certificates, **changes))
    assert any(word in str(caught.value) for word in words), str(caught.value)
    assert "horse" not in str(caught.value)


def test_another_authority_is_refused(
    secured: Any, certificates: _native.CertificateFiles, tmp_path: Path
) -> None:
    foreign = _native.make_certificates(str(tmp_path / "foreign"), NAME, [])
    with pytest.raises(AerospikeDeniedError, match=r"unknown CA|self-signed"):
        Store(secured.tls_hosts, **options(certificates, tls_ca_file=foreign["ca_file"]))


def test_the_command_serves_what_its_line_says(
    server_factory: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "tls"
    server = server_factory(
        "--tls-dir", str(folder), "--no-clear-port", "--user", "rw:hush-hush:read-write"
    )
    given = {
        "tls_enable": True,
        "tls_name": "aerospike.test",
        "tls_ca_file": str(folder / "ca.pem"),
        "username": "rw",
        "password": "hush-hush",
    }
    with Store(server.hosts, **given) as store:
        check(store)
    with pytest.raises(AerospikeConnectionError):
        Store(server.hosts, username="rw", password="hush-hush", connect_timeout_ms=2000)
