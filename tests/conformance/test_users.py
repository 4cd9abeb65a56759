# SPDX-License-Identifier: Apache-2.0
"""Users, passwords and sessions that end: the engine beside the official client."""

from __future__ import annotations

import threading
import time

import aerospike
import pytest
from records import Plugin, random_bytes

from lmcache_aerospike import Store, _native
from lmcache_aerospike.errors import AerospikeConnectorError, AerospikeDeniedError

USERS = [
    {"name": "writer", "password": "writers-secret"},
    {"name": "reader", "password": "readers-secret", "roles": ["read"]},
    {"name": "nobody", "password": "nobodys-secret", "roles": []},
]
MIB = 1 << 20


def login(name: str) -> dict[str, str]:
    """The options of our engine for a user."""
    return {"username": name, "password": f"{name}s-secret".replace("nobodys", "nobodys")}


@pytest.fixture(scope="module", params=[1, 3], ids=["one node", "three nodes"])
def guarded(request):
    with _native.DevServer(users=USERS, nodes=request.param, replication=2) as server:
        yield server


@pytest.fixture
def official(guarded):
    config = {"hosts": guarded.endpoints(), "user": "writer", "password": "writers-secret"}
    client = aerospike.client(config).connect()
    yield client
    client.close()


def test_both_worlds_log_in_and_share_objects(guarded, official):
    with Store(guarded.hosts, **login("writer")) as store:
        content = random_bytes(1, 2 * MIB)
        store.put("ours", content)
        assert Plugin(official, "kv_chunks").get("ours") == content
        Plugin(official, "kv_chunks").put("theirs", content[::-1])
        assert store.get("theirs") == content[::-1]
        assert store.exists_many(["ours", "theirs", "nobodys"]) == [True, True, False]
        assert store.delete("ours")
    with Store(guarded.hosts, **login("reader")) as store:
        assert store.get("theirs") == content[::-1]
        with pytest.raises(AerospikeDeniedError):
            store.put("forbidden", b"content")
        assert not store.exists("forbidden")


@pytest.mark.parametrize(
    "credentials",
    [
        {"username": "writer", "password": "wrong-secret"},
        {"username": "writer", "password": "writers-secre"},
        {"username": "stranger", "password": "wrong-secret"},
        {},
    ],
    ids=["wrong", "prefix", "unknown user", "none"],
)
def test_a_refused_login_is_a_typed_error_without_the_password(guarded, credentials):
    started = time.monotonic()
    with pytest.raises(AerospikeDeniedError) as caught:
        Store(guarded.hosts, **credentials)
    assert time.monotonic() - started < 5
    shown = f"{caught.value} {caught.value!r} {vars(caught.value)}"
    assert "secre" not in shown
    assert caught.value.code == "denied"


def test_a_user_without_rights_is_told(guarded):
    with pytest.raises(AerospikeDeniedError), Store(guarded.hosts, **login("nobody")) as store:
        store.get("key")


def test_a_login_where_no_users_are_is_told():
    """As on a Community server, which knows no users."""
    with _native.DevServer() as server, pytest.raises(AerospikeConnectorError) as caught:
        Store(server.hosts, username="writer", password="writers-secret")
    assert "writers-secret" not in str(caught.value)


@pytest.mark.parametrize("nodes", [1, 3])
def test_sessions_that_end_are_renewed_under_load(nodes):
    """Four threads load and store over several lives of a session; nobody sees an end."""
    with (
        _native.DevServer(users=USERS, session_ttl_s=1, nodes=nodes, replication=2) as server,
        Store(server.hosts, **login("writer")) as store,
    ):
        contents = [random_bytes(i, size) for i, size in enumerate((500, 40_000, 2 * MIB))]
        store.put_many(["0", "1", "2"], contents)
        end = time.monotonic() + 3.5
        faults: list[str] = []
        rounds = [0] * 4

        def work(number: int) -> None:
            while time.monotonic() < end and not faults:
                for i, content in enumerate(contents):
                    if store.get(str(i)) != content:
                        faults.append(f"thread {number}: load {i}")
                    try:
                        store.put(f"{number} {i}", content)
                    except AerospikeConnectorError as error:
                        faults.append(f"thread {number}: store {i}: {error!r}")
                if store.exists_many(["0", "1", "2", "absent"]) != [True, True, True, False]:
                    faults.append(f"thread {number}: lookup")
                rounds[number] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        assert all(count > 3 for count in rounds)
        logins = sum(server.stats(node)["requests"]["login"] for node in range(nodes))
        assert logins > nodes, "no session ended: the test shows nothing"
