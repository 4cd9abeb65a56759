# SPDX-License-Identifier: Apache-2.0
"""vLLM with LMCache and our connector: what one engine stored, the next one finds.

Off unless RUN_VLLM=1: it needs vLLM, the weights of a model, and for all but tiny models a GPU.

    RUN_VLLM=1 VLLM_MODEL=... AEROKV_SERVER=host:port python -m pytest tests/vllm -s

VLLM_MODEL        a model with a context of 4,096 tokens or more; Qwen/Qwen2.5-0.5B-Instruct if not
                  given
VLLM_DEVICE_ARGS  more arguments of `vllm serve`, such as "--dtype float16 --enforce-eager"
AEROKV_SERVER     a server; a development server is started if not given

The engine is started twice, with prefix caching off and LMCache's CPU memory small, so that the
second one can only have the prompt's KV from Aerospike. Its first token must come in at most
VLLM_TTFT_RATIO (0.8) of the time that the first engine needed, after both have been warmed up with
another prompt, and the connector's own counters must show loads that hit.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

MODEL = os.environ.get("VLLM_MODEL", "Qwen/Qwen2.5-0.5B-Instruct")
START_SECONDS_MAX = 900.0
RATIO_MAX = float(os.environ.get("VLLM_TTFT_RATIO", "0.8"))
WORDS = 2600  # about as many tokens, or more

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        os.environ.get("RUN_VLLM") != "1",
        reason="NOT RUN: vLLM end to end; set RUN_VLLM=1 where vLLM and a model are",
    ),
]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def configuration(folder: Path, hosts: str, api_port: int) -> Path:
    """LMCache's configuration; JSON is YAML."""
    prefix = "remote_storage_plugin.aerospike"
    path = folder / "lmcache.yaml"
    path.write_text(
        json.dumps(
            {
                "chunk_size": 256,
                "local_cpu": True,
                "max_local_cpu_size": 1.0,
                "remote_serde": "naive",
                "remote_storage_plugins": ["aerospike"],
                "internal_api_server_enabled": True,
                "internal_api_server_port_start": api_port,
                "extra_config": {
                    f"{prefix}.module_path": "lmcache_aerospike.adapter",
                    f"{prefix}.class_name": "AerospikeConnectorAdapter",
                    f"{prefix}.hosts": hosts,
                    f"{prefix}.set_name": f"vllm_{os.getpid()}",
                    f"{prefix}.default_ttl_seconds": 3600,
                },
            }
        )
    )
    return path


class Engine:
    """A running `vllm serve`."""

    def __init__(self, port: int, api_port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._metrics = f"http://127.0.0.1:{api_port + 1}/metrics"  # of worker 0

    def await_start(self, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            assert process.poll() is None, log.read_text()[-5000:]
            assert time.monotonic() < deadline, log.read_text()[-5000:]
            try:
                with urllib.request.urlopen(f"{self._url}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(1)

    def first_token_seconds(self, prompt: str) -> float:
        """Until the only token that is asked for has come."""
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        request = urllib.request.Request(
            f"{self._url}/v1/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        started = time.monotonic()
        with urllib.request.urlopen(request, timeout=600) as answer:
            json.load(answer)
        return time.monotonic() - started

    def counter(self, op: str, result: str) -> float:
        """Of the connector in worker 0."""
        with urllib.request.urlopen(self._metrics, timeout=10) as answer:
            text = answer.read().decode()
        start = f'aerospike_op_total{{op="{op}",result="{result}"}} '
        lines = [line for line in text.splitlines() if line.startswith(start)]
        assert lines, "the connector's metrics are not at LMCache's API server"
        return float(lines[0].removeprefix(start))


@contextmanager
def engine(folder: Path, hosts: str) -> Iterator[Engine]:
    vllm = shutil.which("vllm")
    assert vllm is not None, "RUN_VLLM=1, but there is no command vllm"
    port, api_port = free_port(), free_port()
    transfer = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
    command = [
        *(vllm, "serve", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", "4096", "--no-enable-prefix-caching"),
        *("--kv-transfer-config", json.dumps(transfer)),
        *shlex.split(os.environ.get("VLLM_DEVICE_ARGS", "")),
    ]
    environment = {
        **os.environ,
        "LMCACHE_CONFIG_FILE": str(configuration(folder, hosts, api_port)),
        "LMCACHE_TRACK_USAGE": "false",
        "PYTHONHASHSEED": "0",  # else each process hashes the same tokens to other keys
    }
    log = folder / f"vllm-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    made = Engine(port, api_port)
    try:
        made.await_start(process, log)
        yield made
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_second_engine_finds_what_the_first_one_stored(
    tmp_path: Path, server_factory: Callable[..., Any]
) -> None:
    hosts = os.environ.get("AEROKV_SERVER") or server_factory().hosts
    prompt = " ".join(f"word{i * 7919 % 10007}" for i in range(WORDS // 3))
    warm_up = " ".join(f"other{i * 104729 % 10007}" for i in range(WORDS // 3))

    with engine(tmp_path, hosts) as first:
        first.first_token_seconds(warm_up)
        without = first.first_token_seconds(prompt)
        deadline = time.monotonic() + 60
        while first.counter("put", "ok") == 0:
            assert time.monotonic() < deadline, "nothing was stored"
            time.sleep(0.2)
        stored = -1.0
        while (now := first.counter("put", "ok")) != stored:  # until the stores have ended
            stored = now
            time.sleep(2)

    with engine(tmp_path, hosts) as second:
        second.first_token_seconds("a prompt that nobody has seen, only to warm up " * 20)
        with_cache = second.first_token_seconds(prompt)
        hits = second.counter("get", "hit")

    print(f"\nfirst token: {without:.3f} s without, {with_cache:.3f} s with; {hits:.0f} chunks hit")
    assert hits > 0
    assert with_cache <= RATIO_MAX * without
