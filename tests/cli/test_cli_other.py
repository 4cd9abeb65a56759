# SPDX-License-Identifier: Apache-2.0
"""config, demo, help; and that the documentation names every command and option."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command import Command
from typer.testing import CliRunner

import lmcache_aerospike
from lmcache_aerospike.cli import app
from lmcache_aerospike.config import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [info.name for info in app.registered_commands if info.name] + ["serve"]


def test_config_shows_values_and_where_they_came_from(command: Command) -> None:
    shown = command(
        "config", "--json", "--set", "mine", "-O", "verify=full",
        LMCACHE_AEROSPIKE_USERNAME="kv", LMCACHE_AEROSPIKE_PASSWORD="hush-hush",
    )  # fmt: skip
    assert shown.code == 0
    assert "hush" not in shown.text + shown.errors
    table = shown.json
    assert list(table) == [option.name for option in OPTIONS]
    assert (table["set_name"]["value"], table["set_name"]["source"]) == ("mine", "given")
    assert table["username"]["source"] == "LMCACHE_AEROSPIKE_USERNAME"
    assert table["password"]["value"] == "********"
    assert (table["replica"]["value"], table["replica"]["source"]) == ("sequence", "default")
    text = command("config", LMCACHE_AEROSPIKE_USERNAME="kv", LMCACHE_AEROSPIKE_PASSWORD="hush")
    assert "hush" not in text.text
    assert all(option.name in text.text for option in OPTIONS)


def test_config_needs_no_hosts_but_refuses_bad_values(command: Command) -> None:
    assert command("config", hosts="").code == 0
    assert command("config", "-O", "num_io_threads=0", hosts="").code == 2


def help_of(name: str) -> str:
    result = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return result.output


def test_version_and_help(command: Command) -> None:
    assert command("--version").text == lmcache_aerospike.__version__ + "\n"
    text = command("--help").text
    assert all(name in text for name in COMMANDS)
    for name in COMMANDS:
        assert "Usage" in help_of(name)


def test_the_reference_page_names_every_command_and_option() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    for name in COMMANDS:
        assert f"## {name}" in page, name


def test_the_start_page_works_as_written(command: Command) -> None:
    page = (ROOT / "docs/start.md").read_text().split("## By hand", 1)[1].split("```", 2)[1]
    (command.folder / "README.md").write_bytes((ROOT / "README.md").read_bytes())
    lines = re.findall(r"^\$ lmcache-aerospike (put|ls|get)(.*)$", page, re.MULTILINE)
    assert [name for name, _ in lines] == ["put", "ls", "get"]
    for name, rest in lines:
        assert command(name, *rest.split()).code == 0
    copy = (command.folder / "copy.md").read_bytes()
    assert copy == (command.folder / "README.md").read_bytes()


@pytest.mark.lmcache
@pytest.mark.timeout(200)
@pytest.mark.parametrize("nodes", ["1", "3"])
def test_demo(command: Command, nodes: str) -> None:
    pytest.importorskip("lmcache")
    data = str(ROOT / "examples" / "data" / "minilm_l6_kv_chunks.safetensors")
    result = command("demo", "--data", data, "--chunks", "6", "--nodes", nodes, "--json", hosts="")
    assert result.code == 0, result.errors
    report = result.json
    assert (report["chunks"], report["verified"]) == (6, 6)
    assert [step["count"] for step in report["steps"]] == [6] * 4


@pytest.mark.lmcache
@pytest.mark.timeout(200)
def test_demo_on_a_given_cluster_leaves_nothing_there(command: Command) -> None:
    pytest.importorskip("lmcache")
    result = command("demo", "--chunks", "2")
    assert result.code == 0, result.errors
    assert "2 of 2 chunks came back with every byte as it was." in result.text
    assert command("ls", "--set", "demo", "--json").json == []
    bad = command("demo", "--data", str(ROOT / "README.md"))
    assert bad.code == 2
    assert "--data" in bad.errors


def test_demo_without_lmcache(command: Command) -> None:
    (command.folder / "lmcache.py").write_text("raise ImportError('No module named lmcache')")
    result = command("demo", PYTHONPATH=f"{command.folder}:{_path()}")
    assert result.code == 2
    assert "pip install 'lmcache-aerospike[lmcache]'" in result.errors
    assert result.errors.count("\n") == 1


def _path() -> str:
    return str(Path(lmcache_aerospike.__file__).parents[1])


PAGES = ("reference/cli.md", "guides/operating.md")
DOCUMENTED = ("doctor", "ls", "stat", "rm", "fsck", "plan")


@pytest.mark.parametrize("page", PAGES)
def test_the_documented_commands_work_as_written(command: Command, page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    names = "|".join(DOCUMENTED)
    lines = re.findall(rf"^\$ lmcache-aerospike ((?:{names})(?: .*)?)$", text, re.MULTILINE)
    assert len(lines) > 5
    where = ("--set", page.split("/")[1])
    assert command("put", "-", "--key", "README.md", *where, stdin=b"x").code == 0
    for line in lines:
        arguments = shlex.split(line)
        own = () if arguments[0] == "plan" else where
        result = command(*arguments, *own)
        assert result.code == 0, (line, result.errors)


def test_every_option_is_documented() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    for name in DOCUMENTED:
        section = page.split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]
        options = set(re.findall(r"(--[a-z-]+)", help_of(name).split("Options", 1)[1]))
        common = re.findall(r"`(--[a-z-]+)", page.split("## serve", 1)[0])
        unsaid = options - set(common) - {"--help", "--option", "--no-write", "--write"}
        for option in unsaid - {"--namespace"}:
            assert option in section, (name, option)
