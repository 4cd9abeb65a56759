# SPDX-License-Identifier: Apache-2.0
"""Questions to the nodes, and connectors that share a store."""

from __future__ import annotations

import select

import pytest
from completions import WAIT_SECONDS

from lmcache_aerospike import Store, _native
from lmcache_aerospike.errors import (
    AerospikeConnectionError,
    AerospikeDeniedError,
    ClosedError,
    InvalidArgumentError,
)


def results_of(connector: _native.Connector) -> dict[int, list[tuple]]:
    ready, _, _ = select.select([connector.event_fd()], [], [], WAIT_SECONDS)
    assert ready
    return dict(connector.drain_results())


def test_info_asks_every_node() -> None:
    with _native.DevServer(nodes=2) as server, Store(server.hosts) as store:
        answers = store.info("namespace/lmcache")
        assert len(answers) == 2
        for text in answers.values():
            assert isinstance(text, str)
            assert "nsup-period=" in text


def test_info_tells_what_a_node_refuses_and_which_is_away() -> None:
    with (
        _native.DevServer(nodes=2) as server,
        Store(server.hosts, tend_interval_ms=3_600_000) as store,
    ):
        refused = store.info("no-such-command")
        assert [type(error) for error in refused.values()] == [AerospikeDeniedError] * 2
        server.stop_node(1)
        kinds = [type(answer) for answer in store.info("build").values()]
        assert kinds == [str, AerospikeConnectionError]


@pytest.mark.parametrize("bad", ["", "a\nb", "\x00", "n" * 1025, "\u00e9"])
def test_info_takes_one_plain_command(store: Store, bad: str) -> None:
    with pytest.raises(InvalidArgumentError, match="info command"):
        store.info(bad)


def test_connectors_share_a_store_and_its_counters(store: Store) -> None:
    connectors = [_native.Connector(store) for _ in range(2)]
    before = store.stats()["operations"]["put"]["items"]
    for number, connector in enumerate(connectors):
        batch = connector.submit_batch_set([f"shared{number}"], [b"abc"])
        assert results_of(connector)[batch][0][:2] == ("hit", 3)
    assert store.stats()["operations"]["put"]["items"] == before + 2
    connectors[0].close()
    assert store.get("shared1") == b"abc"
    batch = connectors[1].submit_batch_exists(["shared0"])
    assert results_of(connectors[1])[batch][0][0] == "hit"
    connectors[1].close()


def test_closing_the_store_ends_the_batches_of_its_connectors(server: _native.DevServer) -> None:
    store = Store(server.hosts, batch_timeout_ms=60_000)
    connector = _native.Connector(store)
    server.add_fault(action="drop", count=1000)
    batch = connector.submit_batch_exists(["slow"])
    store.close()
    (_, _, _, error) = results_of(connector)[batch][0]
    assert isinstance(error, ClosedError)
    connector.close()


def test_a_connector_needs_options_or_a_store() -> None:
    with pytest.raises(TypeError, match="expected a dict of options or a Store"):
        _native.Connector("127.0.0.1:3000")  # type: ignore[arg-type]
