# SPDX-License-Identifier: Apache-2.0
"""Pages that quote a program, or name versions, say the same as the tree."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from lmcache_aerospike._l2_config import L2Options
from lmcache_aerospike.config import AerospikeConfig, Config

ROOT = Path(__file__).resolve().parents[2]


def block(page: str, language: str) -> str:
    text = (ROOT / page).read_text()
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return code


def test_the_cpp_page_has_the_program_that_the_tests_run() -> None:
    page = "docs/reference/cpp.md"
    assert block(page, "cpp") == (ROOT / "examples/cpp/minimal.cc").read_text()
    assert block(page, "cmake") == (ROOT / "examples/cpp/CMakeLists.txt").read_text()


def test_the_cpp_page_names_every_public_header() -> None:
    page = (ROOT / "docs/reference/cpp.md").read_text()
    for header in (ROOT / "include").rglob("*.h"):
        assert f"`{header.relative_to(ROOT / 'include')}`" in page, header


def test_the_compatibility_page_names_what_is_pinned() -> None:
    page = (ROOT / "docs/reference/compatibility.md").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    for name in ("lmcache", "torch", "aerospike"):
        version = re.search(rf'"{name}==([\d.]+)"', project)
        assert version is not None
        assert version[1] in page, (name, version[1])
    extra = re.search(r'"lmcache(>=[^"]+)"', project)
    assert extra is not None
    assert f"`{extra[1]}`" in page
    pinned = set(re.findall(r"\| LMCache \| (\S+) from PyPI", page))
    assert pinned == set(re.findall(r'"lmcache==([\d.]+)"', project))


def test_the_troubleshooting_page_names_every_miss() -> None:
    header = (ROOT / "include/aerokv/store.h").read_text()
    body = header.split("enum class MissReason", 1)[1].split("{", 1)[1].split("}", 1)[0]
    reasons = re.findall(r"^\s*(\w+),", body, re.MULTILINE)
    page = (ROOT / "docs/guides/troubleshooting.md").read_text()
    assert len(reasons) == 10
    assert [name for name in reasons if f"`{name}`" not in page] == []


def test_the_surfaces_that_pages_name_exist() -> None:
    """Module and class of each configuration on the pages."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    found = set()
    for page in pages:
        text = page.read_text()
        pair = r'module_path"?: "?([\w.]+)"?,?\s+[\w. "]*class_name"?: "?(\w+)'
        found |= set(re.findall(pair, text))
    assert len(found) == 4, found
    for module, name in found:
        source = (ROOT / "python" / (module.replace(".", "/") + ".py")).read_text()
        assert re.search(rf"^class {name}\b|import .*\b{name}\b|\b{name} =", source, re.MULTILINE)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples(language: str, mark: str) -> list[tuple[str, str]]:
    return [
        (page.relative_to(ROOT).as_posix(), text)
        for page in PAGES
        for text in re.findall(
            rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
        )
        if mark in text
    ]


@pytest.mark.parametrize(("page", "text"), examples("json", "adapter_params"))
def test_options_of_an_adapter_are_accepted(page: str, text: str, tmp_path: Path) -> None:
    adapter = json.loads(text)
    params = adapter["adapter_params"]
    if "password_file" in params:  # is read at once; the page's lies on another machine
        password = tmp_path / "password"
        password.touch(mode=0o600)
        password.write_text("secret")
        params["password_file"] = str(password)
    kind = L2Options if adapter["type"] == "plugin" else Config
    assert kind.resolve(params) is not None


@pytest.mark.parametrize(("page", "text"), examples("yaml", "remote_storage_plugins"))
def test_options_of_an_instance_are_accepted(page: str, text: str) -> None:
    settings: dict[str, Any] = yaml.safe_load(text)
    for name in settings["remote_storage_plugins"]:
        config = AerospikeConfig.from_extra_config(settings["extra_config"], name)
        assert config.hosts


def test_options_within_commands_are_accepted() -> None:
    lines = [
        line
        for page in PAGES
        for line in re.findall(r"^\$ .*--l2-adapter '\{.*$", page.read_text(), re.MULTILINE)
    ]
    assert lines
    for line in lines:
        words = shlex.split(line)
        adapter = json.loads(words[words.index("--l2-adapter") + 1])
        assert Config.resolve(adapter["adapter_params"]).values["hosts"]


def test_examples_are_found() -> None:
    assert len(examples("json", "adapter_params")) >= 8
    assert len(examples("yaml", "remote_storage_plugins")) >= 3


def test_every_page_with_python_is_run() -> None:
    runners = ("tests/python/test_doc_examples.py", "tests/python/test_metrics.py")
    run = "".join((ROOT / runner).read_text() for runner in runners)
    pages = [page for page in PAGES if "\n```python\n" in page.read_text()]
    assert len(pages) >= 4
    for page in pages:
        assert f'"{page.relative_to(ROOT).as_posix()}"' in run, f"no test runs the blocks of {page}"
