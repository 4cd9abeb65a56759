# SPDX-License-Identifier: Apache-2.0
"""TLS and users of the development server, with the official Aerospike client as the judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmcache_aerospike import _native

aerospike = pytest.importorskip("aerospike", reason="the official client is not installed")
from aerospike import exception  # noqa: E402

NAME = "cluster.test"
KEY = ("lmcache", "official", "k")
PAYLOAD = bytes(range(256)) * 3000
USERS = [
    "alice:secret-1:read-write",
    "reader:secret-1:read",
    "writer:secret-1:write",
    "directory:secret-2:read-write:external",
    "bob::read-write:pki",
    "admin:secret-3:user-admin",
]

Client = Any
Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> _native.CertificateFiles:
    folder = tmp_path_factory.mktemp("tls") / "ours"
    return _native.make_certificates(str(folder), NAME, ["bob", "stranger"])


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> _native.CertificateFiles:
    """The same names, signed by somebody else."""
    folder = tmp_path_factory.mktemp("tls") / "foreign"
    return _native.make_certificates(str(folder), NAME, ["bob"])


def server_tls(files: _native.CertificateFiles, **more: Any) -> dict[str, Any]:
    return {
        "cert_file": files["server_cert"],
        "key_file": files["server_key"],
        "ca_file": files["ca_file"],
        "name": NAME,
        **more,
    }


@pytest.fixture
def connect(certificates: _native.CertificateFiles) -> Iterator[Connect]:
    """Connects over TLS; `certificate` is a pair of files, `auth` a mode."""
    clients = []

    def make(
        server: _native.DevServer,
        *,
        ca: str = certificates["ca_file"],
        name: str = NAME,
        certificate: tuple[str, str] | None = None,
        auth: int | None = None,
        **config: Any,
    ) -> Client:
        tls: dict[str, Any] = {"enable": True, "cafile": ca}
        if certificate:
            tls.update(certfile=certificate[0], keyfile=certificate[1])
        if auth is not None:
            config["policies"] = {"auth_mode": auth}
        addresses = (entry.rsplit(":", 1) for entry in server.tls_hosts.split(","))
        hosts = [(host, int(port), name) for host, port in addresses]
        client = aerospike.client({"hosts": hosts, "tls": tls, **config}).connect()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


def refusal(connect: Connect, *arguments: Any, **options: Any) -> int:
    """The code with which a connection fails."""
    with pytest.raises(exception.AerospikeError) as caught:
        connect(*arguments, **options)
    return int(caught.value.code)


@pytest.fixture(scope="module")
def plain(certificates: _native.CertificateFiles) -> Iterator[_native.DevServer]:
    """Three nodes, TLS alone, no users."""
    with _native.DevServer(nodes=3, tls=server_tls(certificates), clear_port=False) as server:
        yield server


def test_records_come_back_through_tls(plain: _native.DevServer, connect: Connect) -> None:
    assert plain.hosts == plain.tls_hosts
    client = connect(plain)
    assert len(client.get_nodes()) == 3
    for i in range(20):
        client.put((*KEY[:2], f"k{i}"), {"b": PAYLOAD[i:]})
    rows = client.batch_read([(*KEY[:2], f"k{i}") for i in range(20)]).batch_records
    assert [row.record[2]["b"] for row in rows] == [PAYLOAD[i:] for i in range(20)]


def test_who_does_not_trust_the_server_is_not_served(
    plain: _native.DevServer, connect: Connect, foreign: _native.CertificateFiles
) -> None:
    assert refusal(connect, plain, ca=foreign["ca_file"]) == -10
    assert refusal(connect, plain, name="other.test") == -10
    with pytest.raises(exception.AerospikeError):  # clear text on a port for TLS
        aerospike.client({"hosts": plain.endpoints()[:1]}).connect()


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_versions(connect: Connect, certificates: _native.CertificateFiles, version: str) -> None:
    with _native.DevServer(tls=server_tls(certificates, min_version=version)) as server:
        if version == "1.3":  # which the official client does not speak
            assert refusal(connect, server) == -10
        else:
            connect(server).put(KEY, {"b": 1})


def test_certificates_of_clients(
    connect: Connect, certificates: _native.CertificateFiles, foreign: _native.CertificateFiles
) -> None:
    tls = server_tls(certificates, client_certificates="required")
    with _native.DevServer(nodes=2, tls=tls) as server:
        client = connect(server, certificate=certificates["clients"]["bob"])
        client.put(KEY, {"b": PAYLOAD})
        assert client.get(KEY)[2] == {"b": PAYLOAD}
        assert refusal(connect, server) == -10
        assert refusal(connect, server, certificate=foreign["clients"]["bob"]) == -10


def test_renewed_certificates_are_taken_without_a_restart(connect: Connect, tmp_path: Path) -> None:
    files = _native.make_certificates(str(tmp_path), NAME, [])
    with _native.DevServer(tls=server_tls(files)) as server:
        first = connect(server, ca=files["ca_file"])
        first.put(KEY, {"b": 1})
        old_ca = tmp_path / "old_ca.pem"
        old_ca.write_bytes(Path(files["ca_file"]).read_bytes())
        _native.make_certificates(str(tmp_path), NAME, [])
        assert connect(server, ca=files["ca_file"]).get(KEY)[2] == {"b": 1}
        assert refusal(connect, server, ca=str(old_ca)) == -10
        assert first.get(KEY)[2] == {"b": 1}  # its connection stays


@pytest.fixture
def guarded(certificates: _native.CertificateFiles) -> Iterator[_native.DevServer]:
    """Three nodes with users."""
    tls = server_tls(certificates, client_certificates="optional")
    with _native.DevServer(nodes=3, tls=tls, users=USERS) as server:
        yield server


def test_logins_of_each_mode(
    guarded: _native.DevServer, connect: Connect, certificates: _native.CertificateFiles
) -> None:
    external = {"auth": aerospike.AUTH_EXTERNAL}
    clients = certificates["clients"]
    for client in (
        connect(guarded, user="alice", password="secret-1"),
        connect(guarded, user="directory", password="secret-2", **external),
        connect(guarded, certificate=clients["bob"], auth=aerospike.AUTH_PKI),
    ):
        client.put(KEY, {"b": PAYLOAD})
        assert client.get(KEY)[2] == {"b": PAYLOAD}
    assert refusal(connect, guarded, user="alice", password="wrong") == 65
    assert refusal(connect, guarded, user="nobody", password="secret-1") == 60
    assert refusal(connect, guarded, user="directory", password="secret-2") == 65
    assert refusal(connect, guarded, user="directory", password="wrong", **external) == 65
    assert refusal(connect, guarded, auth=aerospike.AUTH_PKI) == 65
    pki = {"auth": aerospike.AUTH_PKI}
    assert refusal(connect, guarded, certificate=clients["stranger"], **pki) == 60
    # A password does not help who has to show a certificate, and the other way round.
    assert refusal(connect, guarded, user="bob", password="secret-1") == 65


def test_roles(guarded: _native.DevServer, connect: Connect) -> None:
    alice = connect(guarded, user="alice", password="secret-1")
    alice.put(KEY, {"b": 1})
    reader = connect(guarded, user="reader", password="secret-1")
    assert reader.get(KEY)[2] == {"b": 1}
    for refused in (lambda: reader.put(KEY, {"b": 2}), lambda: reader.remove(KEY)):
        with pytest.raises(exception.RoleViolation):
            refused()
    writer = connect(guarded, user="writer", password="secret-1")
    writer.put(KEY, {"b": 3})
    with pytest.raises(exception.RoleViolation):
        writer.get(KEY)
    assert alice.get(KEY)[2] == {"b": 3}


def test_an_administrator_of_users_changes_them_while_they_work(
    guarded: _native.DevServer, connect: Connect
) -> None:
    admin = connect(guarded, user="admin", password="secret-3")
    assert admin.admin_query_user_info("alice")["roles"] == ["read-write"]
    assert set(admin.admin_query_users_info()) >= {"alice", "bob", "admin"}
    admin.admin_create_user("new", "secret-4", ["read", "write"])
    with pytest.raises(exception.UserExistsError):
        admin.admin_create_user("new", "secret-4", ["read"])
    with pytest.raises(exception.InvalidRole):
        admin.admin_create_user("other", "secret-4", ["king"])
    client = connect(guarded, user="new", password="secret-4")
    client.put(KEY, {"b": 1})
    admin.admin_revoke_roles("new", ["write"])
    with pytest.raises(exception.RoleViolation):
        client.put(KEY, {"b": 2})
    admin.admin_grant_roles("new", ["read-write"])
    client.put(KEY, {"b": 3})
    admin.admin_set_password("new", "secret-5")
    assert refusal(connect, guarded, user="new", password="secret-4") == 65
    own = connect(guarded, user="new", password="secret-5")
    own.admin_change_password("new", "secret-6")
    connect(guarded, user="new", password="secret-6")
    admin.admin_drop_user("new")
    assert refusal(connect, guarded, user="new", password="secret-6") == 60
    with pytest.raises(exception.AerospikeError):
        client.get(KEY)
    with pytest.raises(exception.RoleViolation):
        connect(guarded, user="alice", password="secret-1").admin_drop_user("reader")


def test_the_client_logs_in_again_when_sessions_have_ended(
    guarded: _native.DevServer, connect: Connect
) -> None:
    client = connect(guarded, user="alice", password="secret-1")
    client.put(KEY, {"b": 1})
    guarded.expire_sessions()
    deadline = time.monotonic() + 20
    while True:
        try:
            assert client.get(KEY)[2] == {"b": 1}
            break
        except exception.AerospikeError:
            assert time.monotonic() < deadline
            time.sleep(0.1)  # its next tend logs in


def test_quotas(certificates: _native.CertificateFiles, connect: Connect) -> None:
    user = {"name": "eve", "password": "secret-1", "roles": ["read-write"], "read_quota": 20}
    with _native.DevServer(tls=server_tls(certificates), users=[user]) as server:
        client = connect(server, user="eve", password="secret-1")
        client.put(KEY, {"b": 1})
        with pytest.raises(exception.AerospikeError) as caught:
            for _ in range(60):
                client.get(KEY)
        assert caught.value.code == 83
        client.put(KEY, {"b": 2})
