# SPDX-License-Identifier: Apache-2.0
"""Every command on every page is run by a test, or its line here says why it is not."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from command import Command

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    + [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "deploy/README.md")]
)

RUN_HERE = "run by this file"
OTHER = "tests/cli/test_cli_other.py::test_the_documented_commands_work_as_written"
START = "tests/cli/test_cli_other.py::test_the_start_page_works_as_written"
REPLAY = "tests/cli/test_cli_replay.py::test_the_commands_of_the_guide"
BENCH = "tests/cli/test_cli_bench.py::test_the_command_of_the_page"
DEMO = "tests/cli/test_cli_other.py::test_demo_on_a_given_cluster_leaves_nothing_there"
PACKAGE = "tests/tools/test_package.py::test_smoke_without_a_compiler"
DEPLOY = "tests/tools/test_deploy.py::test_the_multi_process_examples_are_accepted"
SELF = "NOT RUN: it is how the tests themselves are started"
LOCAL = "NOT RUN: "


class Rule(NamedTuple):
    """Which commands of which pages (both regular expressions), and who runs them."""

    pages: str
    command: str
    by: str


OURS = "lmcache-aerospike "
RULES = [
    # The package's own command.
    Rule(
        "docs/(reference/cli|guides/operating).md", OURS + "(doctor|ls|stat|rm|fsck|plan).*", OTHER
    ),
    Rule("docs/start.md", OURS + "(put|ls|get) .*", START),
    Rule("docs/start.md", OURS + "ls", START),
    Rule("docs/(guides/replay|reference/cli).md", OURS + "replay .*", REPLAY),
    Rule("docs/reference/cli.md", OURS + "bench .*", BENCH),
    Rule("docs/(start|reference/(cpp|cli)).md", OURS + "serve .*", "tests/cli/test_cli_serve.py::"),
    Rule(".*", OURS + "demo --hosts .*", DEMO),
    Rule(".*", OURS + ".*", RUN_HERE),
    # Building and installing.
    Rule(".*", r"pip install (\.|dist/.*)", PACKAGE),
    Rule(".*", "make wheel", PACKAGE),
    Rule("docs/start.md", r"pip install '\.\[lmcache\]'", LOCAL + "`make setup` does, pinned"),
    Rule("docs/start.md", "python3 -m venv venv && .*", PACKAGE),
    Rule("docs/start.md", "sudo apt-get install .*", RUN_HERE),
    Rule("docs/reference/cpp.md", "sudo apt-get install .*", RUN_HERE),
    Rule("docs/start.md", "(export|cmp) .*", START),
    Rule("docs/reference/cpp.md", "cmake .*", RUN_HERE),
    Rule(
        "docs/reference/cpp.md",
        "build/minimal-example/minimal .*",
        "tests/examples/run_minimal.sh::",
    ),
    Rule(".*", "make demo", "tests/cli/test_cli_other.py::test_demo"),
    # LMCache.
    Rule(".*", "lmcache bench l2 .*", "tests/lmcache/test_bench_l2.py::"),
    Rule("deploy/README.md", "lmcache server .*", DEPLOY),
    Rule(".*", r"(\S+=\S+ )*vllm serve .*", LOCAL + "vLLM and a GPU; tests/vllm runs it elsewhere"),
    Rule("deploy/README.md", "RUN_VLLM=1 .*", LOCAL + "vLLM and a GPU"),
    # Servers that are not ours.
    Rule("docs/guides/operating.md", "asinfo .*", LOCAL + "a tool of the real server"),
    Rule("deploy/README.md", "docker compose .*", "tests/tools/test_deploy.py::"),
    Rule("deploy/README.md", "make -C .. test-server .*", SELF),
    # Work on the project.
    Rule(".*", r"make (setup|lint|test|bench|soak).*", SELF),
    Rule(".*", r"\.ci/run.*", SELF),
    Rule("CONTRIBUTING.md", "cmake --preset dev .*", SELF),
    Rule(
        "docs/benchmarks.md", ".venv/bin/python bench/run.py .*", "tests/bench/test_bench_run.py::"
    ),
    Rule(
        "docs/guides/failures.md",
        ".venv/bin/python bench/cluster_events.py",
        "tests/bench/test_cluster_events.py::",
    ),
]


def commands_of(text: str) -> list[str]:
    """The lines behind a prompt in a page's blocks, continued lines joined, remarks left out."""
    found = []
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^\$ ((?:[^\n\\]|\\[\s\S])*)", block, re.MULTILINE):
            joined = re.sub(r"\\\n\s*", "", line)
            found.append(re.sub(r"\s+# .*", "", joined).strip())
    return found


COMMANDS = [
    (page.relative_to(ROOT).as_posix(), line)
    for page in PAGES
    for line in commands_of(page.read_text())
]


def rule_of(page: str, line: str) -> Rule | None:
    return next(
        (r for r in RULES if re.fullmatch(r.pages, page) and re.fullmatch(r.command, line)), None
    )


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{p}: {c[:50]}" for p, c in COMMANDS])
def test_somebody_runs_it(page: str, line: str) -> None:
    rule = rule_of(page, line)
    assert rule is not None, f"{page}: no test runs: {line}"
    if rule.by.startswith("tests/"):
        file, _, name = rule.by.partition("::")
        assert not name or f"def {name}(" in (ROOT / file).read_text(), rule.by
        assert (ROOT / file).exists(), rule.by
    if line.startswith("make "):
        target = next(w for w in line.split()[1:] if not w.startswith(("-", ".")))
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def test_no_rule_is_left_over() -> None:
    used = {rule_of(page, line) for page, line in COMMANDS}
    assert [rule for rule in RULES if rule not in used] == []


def test_blocks_are_found() -> None:
    text = "```console\n$ one \\\n    two   # remark\noutput\n$ three\n```\n\n```\n$ four\n```\n"
    assert commands_of(text) == ["one two", "three", "four"]


HERE = [(page, line) for page, line in COMMANDS if (r := rule_of(page, line)) and r.by == RUN_HERE]
OWN = sorted({line.removeprefix(OURS) for _, line in HERE if line.startswith(OURS)})


@pytest.mark.timeout(200)
@pytest.mark.parametrize("line", OWN)
def test_own_command(command: Command, line: str) -> None:
    for page in ("README.md", "lmcache.yaml"):
        (command.folder / page).write_text("text\n")
    arguments = shlex.split(re.sub(r"[0-9.]+:3000(,[0-9.]+:3000)*", command.hosts, line))
    result = command(*arguments)
    assert result.code == 0, (line, result.errors)


def test_debian_packages_are_those_of_the_build() -> None:
    """The pages name what tools/debian.sh installs."""
    script = (ROOT / "tools/debian.sh").read_text()
    needed = set(re.search(r'^build="([^"]*)"', script, re.MULTILINE)[1].split())
    lines = [line for _, line in HERE if line.startswith("sudo apt-get")]
    assert lines
    by_pip = {"cmake", "ninja-build"}
    python = {"python3-dev", "python3-venv"}
    for line in lines:
        named = set(line.removeprefix("sudo apt-get install ").split())
        assert named <= needed
        assert needed - named <= by_pip | python, line


@pytest.mark.timeout(120)
def test_cmake_lines_configure(tmp_path: Path) -> None:
    """The example as a project of its own; its build is part of the C++ tests."""
    lines = [line for page, line in HERE if line.startswith("cmake ")]
    assert [line.split()[1] for line in lines] == ["-S", "--build"]
    words = shlex.split(lines[0].replace("build/minimal-example", f"{tmp_path}/build"))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listing = subprocess.run(
        ["cmake", "--build", f"{tmp_path}/build", "--target", "help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "minimal" in listing
