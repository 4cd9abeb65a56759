# SPDX-License-Identifier: Apache-2.0
"""The source distribution is complete; the wheel, made portable, works without a compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(600)

# The system's C++ runtime, and the libraries that the package documents: those go into the wheel.
SYSTEM = {"libc", "libm", "libstdc++", "libgcc_s", "ld-linux"}
BUNDLED = {"libcrypto", "libssl", "libisal", "libcrypt", "libzstd"}
WHEEL_BYTES_MAX = 8 << 20

# A server, all that a client does, and which libraries that took.
SMOKE = """
import json, re
from lmcache_aerospike import Store, _native, serde

with _native.DevServer(nodes=2) as server, Store(server.hosts) as store:
    payload = bytes(range(256)) * 16384
    store.put("object", payload)
    assert store.get("object") == payload
    assert store.exists_many(["object", "other"]) == [True, False]
    packed = bytearray(serde.LosslessSerializer().estimate_serialized_size([((1024,), "uint8")]))
    serde.LosslessSerializer().serialize(serde.Tensor(payload[:1024], (1024,), "uint8"), packed)
with _native.DevServer(users=[{"name": "kv", "password": "secret"}]) as server:
    with Store(server.hosts, username="kv", password="secret") as store:
        store.put("object", b"content")
with open("/proc/self/maps") as maps:
    print(json.dumps(sorted(set(re.findall(r"/\\S+[.]so\\S*", maps.read())))))
"""


class Installed(NamedTuple):
    """The package in a virtual environment that holds it and nothing else."""

    bin: Path
    built: Path  # the wheel as pip builds it
    repaired: Path  # the wheel that was installed


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
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    build = "from scikit_build_core.build import build_sdist; import sys; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, folder)
    (made,) = folder.glob("*.tar.gz")
    return made


def find_or_build(archive: Path, home: Path, python: Path) -> Path:
    """The wheel that `make setup` has left; without one, it is built from the sources, isolated."""
    folder = ROOT / "build" / "wheel"
    if not list(folder.glob("*.whl")):
        folder = home / "built"
        run(
            *(python, "-m", "pip", "-qq", "wheel", "--no-deps", "-w", folder, archive),
            CMAKE_BUILD_PARALLEL_LEVEL="2", PYTHONPATH="",
        )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Installed:
    home = tmp_path_factory.mktemp("package")
    run(sys.executable, "-m", "venv", home / "venv")
    binaries = home / "venv" / "bin"
    built = find_or_build(archive, home, binaries / "python")
    run(
        *(sys.executable, "-m", "auditwheel", "repair", "-w", home / "repaired", built),
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    )
    (repaired,) = (home / "repaired").glob("*.whl")
    (home / "empty").mkdir()
    run(
        *(binaries / "python", "-m", "pip", "-qq", "install", "--only-binary", ":all:", repaired),
        PATH=str(home / "empty"), PYTHONPATH="",
    )  # fmt: skip
    return Installed(binaries, built, repaired)


def test_smoke_without_a_compiler(environment: Installed, tmp_path: Path) -> None:
    done = subprocess.run(
        [environment.bin / "python", "-c", SMOKE],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (own,) = environment.bin.parent.glob("lib/python3*/site-packages/lmcache_aerospike.libs")
    loaded = {Path(text) for text in json.loads(done.stdout)}
    for name in BUNDLED:
        places = {path.parent for path in loaded if re.match(rf"{name}[-.]", path.name)}
        assert places == {own}, (name, places)


def test_wheel_is_portable_and_small(environment: Installed) -> None:
    # Debian 12 has glibc 2.36; a newer system that builds gets a higher number.
    tag = re.search(r"-manylinux_2_(\d+)_\w+\.whl$", environment.repaired.name)
    assert tag is not None, environment.repaired.name
    assert environment.repaired.stat().st_size < WHEEL_BYTES_MAX
    page = (ROOT / "docs/start.md").read_text()
    assert "manylinux_2_36" in page


def test_source_distribution_has_all_sources_and_nothing_else(archive: Path) -> None:
    # Build directories have folders named src, too, and went along: gigabytes of them.
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    tops = {name.split("/", 1)[0] for name in names if "/" in name}
    assert not tops & {"build", "dist", "tests", "bench", "docs", ".venv", "site"}
    wanted = run("git", "ls-files", "CMakeLists.txt", "cmake", "include", "python", "src").split()
    assert len(wanted) > 300
    assert [name for name in wanted if (ROOT / name).exists() and name not in names] == []


def test_command_is_there(environment: Installed) -> None:
    help_text = run(environment.bin / "lmcache-aerospike", "--help", PYTHONPATH="")
    for command in ("serve", "put", "get", "ls", "stat", "rm", "config"):
        assert command in help_text


def test_engine_needs_no_python_package(environment: Installed) -> None:
    # -S leaves site-packages out: typer and rich are for the command, not for the engine.
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from lmcache_aerospike.native_connector import AerospikeNativeConnector as connector; "
        "print(connector.__name__); "
        "print(sorted(m for m in sys.modules if m in ('typer', 'rich', 'lmcache', 'torch')))"
    )
    (site,) = environment.bin.parent.glob("lib/python3*/site-packages")
    out = run(environment.bin / "python", "-S", "-c", code, site, PYTHONPATH="")
    assert out.splitlines() == ["AerospikeNativeConnector", "[]"]


def test_links_only_what_is_documented(environment: Installed, tmp_path: Path) -> None:
    with zipfile.ZipFile(environment.built) as wheel:
        (name,) = (n for n in wheel.namelist() if re.search(r"/_native[^/]*\.so$", n))
        module = wheel.extract(name, tmp_path)
    listing = run("readelf", "-d", module)
    needed = set(re.findall(r"NEEDED.*\[([\w+-]+?)(?:-x86-64)?\.so", listing))
    assert needed
    assert needed <= SYSTEM | BUNDLED


def test_version_is_that_of_the_header(environment: Installed) -> None:
    header = (ROOT / "include/aerokv/version.h").read_text()
    version = re.search(r'kVersion = "([\d.]+)"', header)
    assert version is not None
    out = run(environment.bin / "python", "-m", "pip", "show", "lmcache-aerospike", PYTHONPATH="")
    assert f"Version: {version[1]}" in out
