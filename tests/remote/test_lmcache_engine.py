# SPDX-License-Identifier: Apache-2.0
"""LMCache's engine in its in-process mode, and the configuration that the guide shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.storage_backend.connector import CreateConnector
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from programs import run_program
from remote_world import metadata_of

from lmcache_aerospike import AerospikeRemoteConnector, _native

HERE = Path(__file__).resolve().parent
GUIDE = HERE.parents[1] / "docs" / "guides" / "lmcache.md"


def test_store_lookup_retrieve_remove_and_an_outage() -> None:
    done = run_program(HERE / "engine_program.py", 240, PYTHONHASHSEED="0")
    lines = done.stdout.splitlines()
    assert "done" in lines
    assert len([line for line in lines if line.startswith("ok ")]) == 45


def yaml_blocks() -> list[str]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "remote_storage_plugins" in block]


def test_the_guide_has_configurations() -> None:
    blocks = yaml_blocks()
    assert len(blocks) == 2
    assert len(blocks[0].splitlines()) == 10


@pytest.mark.parametrize("block", yaml_blocks(), ids=range(len(yaml_blocks())))
def test_configurations_of_the_guide_work(
    server: _native.DevServer, remote_loop: Any, memory: Any, tmp_path: Path, block: str
) -> None:
    first = server.hosts.split(",")[0]
    path = tmp_path / "lmcache.yaml"
    path.write_text(re.sub(r"10\.\d+\.\d+\.\d+:3000", first, block))
    config = LMCacheEngineConfig.from_file(str(path))
    assert config.remote_storage_plugins
    metadata = metadata_of()
    cpu = LocalCPUBackend(config, metadata, dst_device="cpu", memory_allocator=memory)
    for plugin in config.remote_storage_plugins:
        made = CreateConnector(
            f"plugin://{plugin}", remote_loop, cpu, config, metadata, plugin_name=plugin
        )
        connector = made.getWrappedConnector()
        assert isinstance(connector, AerospikeRemoteConnector)
        assert connector.batched_contains([]) == 0
        remote_loop.call_soon_threadsafe(remote_loop.create_task, connector.close())
