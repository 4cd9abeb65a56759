# SPDX-License-Identifier: Apache-2.0
"""The surface of the package: stubs, errors, log lines."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import lmcache_aerospike
from lmcache_aerospike import _native, errors

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "lmcache_aerospike"
RAISED = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, errors.AerospikeConnectorError)
]


def stub_names() -> dict[str, set[str]]:
    out: dict[str, set[str]] = {"": set()}
    for part in PACKAGE.glob("_native*.pyi"):
        for node in ast.parse(part.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                out[""].add(node.name)
            elif isinstance(node, ast.ClassDef):
                out[node.name] = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
    return out


def test_the_stub_is_complete() -> None:
    stub = stub_names()
    classes = {n for n, v in vars(_native).items() if isinstance(v, type)}
    assert {"Connector", "Store", "DevServer", "SerdeProcessor"} <= classes <= set(stub)
    for name in classes:
        real = {n for n in vars(getattr(_native, name)) if not n.startswith("_")}
        assert real == {n for n in stub[name] if not n.startswith("_")}
    functions = {n for n, v in vars(_native).items() if callable(v) and not isinstance(v, type)}
    assert {n for n in functions if not n.startswith("_")} == stub[""]


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert lmcache_aerospike.__version__ == _native.__version__


@pytest.mark.parametrize("error", RAISED)
def test_errors_carry_their_status(error: type[errors.AerospikeConnectorError]) -> None:
    made = error("what: observed, expected", code="x", server_result=9, in_doubt=True)
    assert str(made) == "what: observed, expected"
    again = pickle.loads(pickle.dumps(made))
    for instance in (made, again):
        assert (instance.code, instance.server_result, instance.in_doubt) == ("x", 9, True)
    assert error("x").code == error.default_code


def test_from_status() -> None:
    make = errors.from_status
    assert type(make("denied", "x", 22)) is errors.AerospikeTTLConfigError
    assert type(make("denied", "x", 20)) is errors.AerospikeDeniedError
    assert type(make("too_big", "x")) is errors.AerospikeRecordTooBigError
    assert type(make("too_big", "x", opening=True)) is errors.AerospikeServerLimitError
    assert type(make("invalid", "x", opening=True)) is errors.AerospikeConfigError
    assert type(make("no such code", "x")) is errors.AerospikeConnectorError


LOG = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
from lmcache_aerospike import Store, _native
server = _native.DevServer()
hosts = server.hosts
store = Store(hosts)
if sys.argv[1:]:
    import os
    child = os.fork()
    if child == 0:
        fresh = Store(hosts, set_name="child")
        fresh.close()
        sys.exit(0)  # not _exit: what the child logged is flushed
    assert os.waitpid(child, 0)[1] == 0
store.close()
"""


@pytest.mark.parametrize("arguments", [[], ["fork"]])
def test_log_lines_reach_logging(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOG, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if "record limit 1048576 bytes" in line]
    assert len(lines) == 1 + len(arguments)
    assert lines[0].startswith("INFO lmcache_aerospike namespace lmcache: ")
