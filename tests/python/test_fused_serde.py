# SPDX-License-Identifier: Apache-2.0
"""Option ``serde``: objects are encoded between the caller's buffer and the wire."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from completions import Completions

from lmcache_aerospike import AerospikeNativeConnector, Store, _native
from lmcache_aerospike.config import Config
from lmcache_aerospike.errors import AerospikeConfigError

OpenStore = Callable[..., Store]
SIZE = 3 << 20


def bfloat16_numbers(count: int, seed: int) -> bytearray:
    """Finite numbers between -100 and 100, rounded to what fp8 can hold exactly."""
    numbers = random.Random(seed)
    codes = [
        struct.pack(">f", numbers.choice((-1, 1)) * 2.0 ** numbers.randint(-5, 6))
        for _ in range(97)
    ]
    few = b"".join(code[1::-1] for code in codes)
    return bytearray((few * (2 * count // len(few) + 1))[: 2 * count])


@pytest.fixture
def hosts(server: _native.DevServer) -> str:
    """Where the server listens."""
    return str(server.hosts)


SERDES = {
    "fp8": {"type": "fp8", "dtype": "bfloat16"},
    "fp8_with_prefix": {"type": "aerospike_fp8", "dtype": "bfloat16", "fp8_dtype": "float8_e5m2"},
    "checksum": {"type": "checksum"},
    "lossless": {"type": "lossless", "dtype": "bfloat16"},
    "chain": {
        "type": "chain",
        "dtype": "bfloat16",
        "stages": [{"type": "fp8"}, {"type": "checksum"}],
    },
}


@pytest.mark.parametrize("name", SERDES)
def test_round_trip(hosts: str, name: str) -> None:
    connector = AerospikeNativeConnector(hosts=hosts, serde=SERDES[name])
    completions = Completions(connector)
    keys = [f"{name}/{i}" for i in range(5)]
    sources = [bfloat16_numbers(n, n) for n in (SIZE // 2, 0, 7, 100, SIZE // 2 + 1)]
    batch = connector.submit_batch_set(keys, [memoryview(source) for source in sources])
    assert completions.wait(batch) == (batch, True, "", [True] * 5)
    targets = [bytearray(len(source)) for source in sources]
    batch = connector.submit_batch_get(keys, [memoryview(target) for target in targets])
    assert completions.wait(batch) == (batch, True, "", [True] * 5)
    assert targets == sources
    connector.close()


def test_aesgcm_keeps_tenants_apart(hosts: str, tmp_path: Path) -> None:
    key_file = tmp_path / "master.key"
    key_file.touch(mode=0o600)
    key_file.write_bytes(bytes(range(32)))
    serde = {"type": "aesgcm", "master_key_path": str(key_file)}
    source = bfloat16_numbers(SIZE // 2, 1)
    keys = [f"m@01000100@0@{'ab' * 32}{salt}" for salt in ("", "@tenantA")]
    with Store(hosts=hosts, serde=serde) as store:
        for key in keys:
            store.put(key, source)
            assert store.get(key) == source
    key_file.write_bytes(bytes(32))
    with Store(hosts=hosts, serde=serde) as store:
        assert store.get(keys[0]) is None
        assert store.stats()["misses_by_reason"]["undecodable"] == 1
        assert not store.exists(keys[0])


def test_half_the_bytes_are_stored_and_the_record_says_why(hosts: str) -> None:
    source = bfloat16_numbers(SIZE // 2, 2)
    with Store(hosts=hosts, serde=SERDES["fp8"]) as store:
        store.put("k", source)
        assert store.get("k") == source
        assert store.stats()["operations"]["put"]["bytes"] == SIZE // 2
    with Store(hosts=hosts) as plain:
        found = plain.inspect("k")
        assert found is not None
        assert (found["serde"], found["bytes"], found["raw_bytes"]) == (
            "fp8:float8_e4m3fn",
            SIZE // 2,
            SIZE,
        )


@pytest.mark.parametrize("reader", [None, {**SERDES["fp8"], "fp8_dtype": "float8_e5m2"}])
def test_a_reader_configured_otherwise_misses(hosts: str, reader: dict[str, str] | None) -> None:
    source = bfloat16_numbers(64, 3)
    with Store(hosts=hosts, serde=SERDES["fp8"]) as store:
        store.put("other", source)
    with Store(hosts=hosts, serde=reader) as store:
        assert store.get("other") is None
        assert store.get_into("other", bytearray(len(source))) is None
        assert store.stats()["misses_by_reason"]["other_serde"] >= 1
        assert not store.exists("other")


@pytest.mark.parametrize(
    ("serde", "reason"),
    [
        ({"type": "fp8"}, "dtype: missing"),
        ({"type": "fp8", "dtype": "bfloat17"}, "dtype: expected a name"),
        ({"type": "fp8", "dtype": "int32"}, "int32"),
        ({"type": "nothing", "dtype": "bfloat16"}, "unknown type"),
        ({"type": "fp8", "dtype": "bfloat16", "level": 3}, "unknown parameter level"),
        ({"type": "fp8", "dtype": "bfloat16", "max_workers": 0}, "max_workers"),
        ({"type": "int8", "dtype": "bfloat16"}, "aerospike_int8"),
        ({"type": "aesgcm"}, "master_key_path"),
        ({"dtype": "bfloat16"}, "option 'serde'"),
        ("{", "option 'serde'"),
    ],
)
def test_faults_of_the_configuration_are_told(hosts: str, serde: object, reason: str) -> None:
    with pytest.raises(AerospikeConfigError, match=reason):
        AerospikeNativeConnector(hosts=hosts, serde=serde)


def test_a_bad_serde_is_told_without_a_cluster() -> None:
    with pytest.raises(AerospikeConfigError, match="dtype: missing"):
        AerospikeNativeConnector(hosts="127.0.0.1:1", serde={"type": "fp8"})


def test_json_text_is_as_good_as_a_mapping() -> None:
    serde = SERDES["chain"]
    given = Config.resolve({"hosts": "h", "serde": json.dumps(serde)})
    assert given.native()["serde"] == serde
    assert given == Config.resolve({"hosts": "h", "serde": serde})
