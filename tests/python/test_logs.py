# SPDX-License-Identifier: Apache-2.0
"""Each cause logs one line that tells what to do; what is normal logs none."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

# The limit of one line in ten seconds is of the process: each case has one of its own.
BEGIN = """
import hashlib, logging, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
from lmcache_aerospike import Store, _native
from lmcache_aerospike.errors import AerospikeConnectorError

def attempt(call, *arguments):
    try:
        return call(*arguments)
    except AerospikeConnectorError:
        return None

def digest(user_key):
    return hashlib.new("ripemd160", f"kv_chunks\\x03{user_key}".encode()).digest()

server = _native.DevServer(namespaces=[{"name": "lmcache"}])
"""


def lines_of(program: str, *levels: str) -> list[str]:
    """What a program logs."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted = levels or ("WARNING", "ERROR")
    return [line for line in done.stdout.splitlines() if line.startswith(wanted)]


def test_what_is_normal_logs_nothing() -> None:
    program = """
        with Store(server.hosts) as store:
            for i in range(20):
                assert store.get(f"absent {i}") is None
                assert not store.exists(f"absent {i}")
                assert not store.delete(f"absent {i}")
            store.put("key", bytes(3_000_000))
            assert store.get_into("key", bytearray(10)) is None  # too small
            assert store.get("key") == bytes(3_000_000)
            assert store.delete("key")
    """
    lines = lines_of(program, "")
    assert len(lines) == 1, lines
    assert lines[0].startswith("INFO namespace lmcache: record limit")


CAUSES = {
    "a full namespace": (
        "server.add_fault(action='result_code', code=8, kinds=['put'])",
        "store.put",
        ["store failed", "out of space", "give it room", "default_ttl_seconds"],
    ),
    "a TTL that is refused": (
        "server.add_fault(action='result_code', code=22, kinds=['put'])",
        "store.put",
        ["store failed", "forbidden", "nsup-period above 0"],
    ),
    "no right to write": (
        "server.add_fault(action='result_code', code=81, kinds=['put'])",
        "store.put",
        ["store failed", "role violation", "role read-write"],
    ),
    "disks that do not keep up": (
        "server.add_fault(action='result_code', code=18, kinds=['put'])",
        "store.put",
        ["store failed", "device overload", "max_bytes_in_flight"],
    ),
    "an answer that does not come": (
        "server.add_fault(action='drop', kinds=['put'])",
        "store.put",
        ["store failed", "write_timeout_ms"],
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_an_error_is_one_line_with_its_remedy(cause: str) -> None:
    fault, call, words = CAUSES[cause]
    lines = lines_of(f"""
        with Store(server.hosts, batch_timeout_ms=300) as store:
            {fault}
            for i in range(3):
                attempt({call}, f"secret key {{i}}", b"x")
    """)
    matching = [line for line in lines if words[0] in line]
    assert len(matching) == 1, lines
    # All sets share the room of their namespace.
    is_full = cause == "a full namespace"
    where = (
        "namespace lmcache takes no more writes" if is_full else "namespace lmcache, set kv_chunks"
    )
    for word in [where, *words]:
        assert word in matching[0]
    assert "secret key" not in "".join(lines)
    assert len(lines) <= 2  # a node that is silent is a cause of its own


def test_a_retry_is_told_once() -> None:
    lines = lines_of(
        """
        with Store(server.hosts) as store:
            server.add_fault(action="result_code", code=18, kinds=["put"], count=3)
            for i in range(3):
                store.put(f"key {i}", b"x")
        """,
        "INFO",
    )
    assert [line for line in lines if "device overload" in line and "sent again" in line] == lines[
        1:
    ]
    assert len(lines) == 2


DAMAGE = {
    "segment_size": ("damage='shorter_value', digests=[digest('key|s|1')]", "{}"),
    "payload_hash": (
        "damage='flip_value_bit', digests=[digest('key|s|1')]",
        "{'verify': 'full', 'enable_crc32': True}",
    ),
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_a_load_of_what_is_damaged_is_one_line(reason: str) -> None:
    fault, options = DAMAGE[reason]
    lines = lines_of(f"""
        with Store(server.hosts, **{options}) as store:
            store.put("key", bytes(3_000_000))
            server.add_fault(action="damage", {fault})
            for _ in range(3):
                assert store.get_into("key", bytearray(3_000_000)) is None
    """)
    assert len(lines) == 1, lines
    assert f"was not loaded ({reason})" in lines[0]
    assert "storing it again heals" in lines[0]


def test_other_serdes_are_told_with_both_names() -> None:
    lines = lines_of("""
        with Store(server.hosts, serde={"type": "fp8", "dtype": "bfloat16"}) as writer:
            writer.put("key", bytes(4096))
        with Store(server.hosts) as reader:
            for _ in range(3):
                assert reader.get_into("key", bytearray(4096)) is None
    """)
    assert len(lines) == 1, lines
    assert "was not loaded (other_serde)" in lines[0]
    assert "fp8" in lines[0]
    assert "none" in lines[0]
    assert "the same serde" in lines[0]


def test_a_node_that_goes_and_comes_is_two_lines() -> None:
    lines = lines_of(
        """
        import time
        with Store(server.hosts, tend_interval_ms=50) as store:
            store.put("key", b"x")
            server.stop_node(0)
            for _ in range(5):
                attempt(store.get, "key")
            server.start_node(0)
            deadline = time.monotonic() + 20
            while store.stats()["nodes"][0]["suspect"]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            time.sleep(0.1)  # the line is on its way
        """,
        "WARNING node",
        "INFO node",
    )
    assert len(lines) == 2, lines
    assert "failed: " in lines[0]
    assert "loads turn to its replicas" in lines[0]
    assert lines[1].endswith("answers again")


def test_a_serde_that_refuses_is_one_line() -> None:
    lines = lines_of("""
        import os, select
        from lmcache_aerospike.serde import AsyncSerdeProcessor
        processor = AsyncSerdeProcessor.from_config({"type": "checksum"})
        for _ in range(3):
            task = processor.submit_deserialize([bytearray(64)], [bytearray(8)])
            select.select([processor.get_deserialize_event_fd()], [], [], 20)
            os.eventfd_read(processor.get_deserialize_event_fd())
            assert processor.query_deserialize_result(task) is False
        processor.close()
        assert _native.totals()["serde_failures"] == {"serialize": 0, "deserialize": 3}
    """)
    assert len(lines) == 1, lines
    assert "an object was not loaded" in lines[0]
    assert "the same serde, parameters and keys" in lines[0]


def test_a_serde_in_python_that_raises_is_one_line() -> None:
    lines = lines_of("""
        import os, select
        from lmcache_aerospike.serde import AsyncSerdeProcessor

        class Broken:
            def estimate_serialized_size(self, layout):
                return 8
            def serialize(self, src, dst, key=None):
                raise ValueError("no such head")
            deserialize = serialize

        processor = AsyncSerdeProcessor(Broken(), Broken())
        for _ in range(3):
            task = processor.submit_serialize([bytearray(8)], [bytearray(8)])
            select.select([processor.get_serialize_event_fd()], [], [], 20)
            os.eventfd_read(processor.get_serialize_event_fd())
            assert processor.query_serialize_result(task) is False
        processor.close()
    """)
    assert len(lines) == 1, lines
    assert "no such head" in lines[0]
