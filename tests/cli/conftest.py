# SPDX-License-Identifier: Apache-2.0
"""A cluster for all tests of commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import Command, Server


@pytest.fixture(scope="session")
def cluster(server_factory: Callable[..., Server]) -> str:
    """The hosts of a cluster of three nodes for all tests of commands."""
    return server_factory("--nodes", "3").hosts


@pytest.fixture
def command(tmp_path: Path, cluster: str) -> Command:
    return Command(tmp_path, cluster)
