# SPDX-License-Identifier: Apache-2.0
"""A source distribution, installed into an empty environment with pip alone, works there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The system's C++ runtime, and the libraries that the package documents.
LIBRARIES = {
    "libc",
    "libm",
    "libstdc++",
    "libgcc_s",
    "libcrypto",
    "libisal",
    "libcrypt",
    "libzstd",
    "ld-linux",
}


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of a new virtual environment that holds the package and nothing else."""
    home = tmp_path_factory.mktemp("package")
    build = "from scikit_build_core.build import build_sdist; import sys; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, home / "dist")
    (archive,) = (home / "dist").glob("*.tar.gz")
    run(sys.executable, "-m", "venv", home / "venv")
    binaries = home / "venv" / "bin"
    run(
        binaries / "python", "-m", "pip", "-qq", "install", archive,
        CMAKE_BUILD_PARALLEL_LEVEL="2", PYTHONPATH="",
    )  # fmt: skip
    return binaries


@pytest.mark.timeout(600)
def test_command_is_there(environment: Path) -> None:
    help_text = run(environment / "lmcache-aerospike", "--help", PYTHONPATH="")
    for command in ("serve", "put", "get", "ls", "stat", "rm", "config"):
        assert command in help_text


@pytest.mark.timeout(600)
def test_engine_needs_no_python_package(environment: Path) -> None:
    # -S leaves site-packages out: typer and rich are for the command, not for the engine.
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from lmcache_aerospike.native_connector import AerospikeNativeConnector as connector; "
        "print(connector.__name__); "
        "print(sorted(m for m in sys.modules if m in ('typer', 'rich', 'lmcache', 'torch')))"
    )
    (site,) = environment.parent.glob("lib/python3*/site-packages")
    out = run(environment / "python", "-S", "-c", code, site, PYTHONPATH="")
    assert out.splitlines() == ["AerospikeNativeConnector", "[]"]


@pytest.mark.timeout(600)
def test_links_only_what_is_documented(environment: Path) -> None:
    (module,) = environment.parent.glob("lib/python3*/site-packages/lmcache_aerospike/_native*.so")
    listing = run("readelf", "-d", module)
    needed = set(re.findall(r"NEEDED.*\[([\w+-]+?)(?:-x86-64)?\.so", listing))
    assert needed
    assert needed <= LIBRARIES


@pytest.mark.timeout(600)
def test_version_is_that_of_the_header(environment: Path) -> None:
    header = (ROOT / "include/aerokv/version.h").read_text()
    version = re.search(r'kVersion = "([\d.]+)"', header)
    assert version is not None
    out = run(environment / "python", "-m", "pip", "show", "lmcache-aerospike", PYTHONPATH="")
    assert f"Version: {version[1]}" in out
