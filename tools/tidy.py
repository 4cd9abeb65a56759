#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house that no other linter knows; docs/internals/style.md explains them.

Prints one line per finding, ``path:line: what was seen, what is wanted``, and exits 1 if there is
one. Needs nothing but Python and git.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# What each layer may include besides itself and the public headers.
LAYERS: dict[str, frozenset[str]] = {
    "base": frozenset(),
    "wire": frozenset({"base"}),
    "codec": frozenset({"base"}),
    "client": frozenset({"base", "wire"}),
    "store": frozenset({"base", "wire", "client"}),
    "connector": frozenset({"base", "wire", "client", "store", "serde"}),
    "serde": frozenset({"base", "codec"}),
    "devserver": frozenset({"base", "wire"}),
    "bindings": frozenset(
        {"base", "wire", "codec", "client", "store", "connector", "serde", "devserver"}
    ),
}

CODE = {".cc", ".h", ".py", ".pyi", ".cmake", ".sh"}
SPDX = CODE | {".toml", ".yml", ".yaml"}
SPDX_NAMES = {"CMakeLists.txt", "Makefile", ".clang-tidy", ".editorconfig"}

# Spelled in pieces, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(wo" + r"rk/|tm" + r"p/[A-Za-z]|ro" + r"ot/|opt/venv)")
LIBRARY_BANS = [
    (re.compile(r"\bthrow\b"), "throw outside src/bindings: return a Status"),
    (re.compile(r"\b(printf|fprintf|puts|fputs|putchar)\s*\("), "printing: use base/log.h"),
    (re.compile(r"\bstd::(cout|cerr|clog)\b"), "printing: use base/log.h"),
]
CPP_BANS = [(re.compile(r"\busing namespace std\s*;"), "using namespace std: name what is used")]
NOLINT = re.compile(r"// NOLINT(END\([\w.,* -]+\)$|(NEXTLINE|BEGIN)?\([\w.,* -]+\): \S)")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
CPP_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>\w*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'',
    re.DOTALL,
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


class Finding(NamedTuple):
    """One broken rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class Source:
    """A tracked file: its path relative to the root, its text, and the tree that it lies in."""

    def __init__(self, root: Path, path: str) -> None:
        self.root = root
        self.path = path
        self.suffix = Path(path).suffix
        self.name = Path(path).name
        self.data = (root / path).read_bytes()
        self.text = self.data.decode("utf-8", errors="replace")
        self.lines = self.text.splitlines()

    @property
    def is_cpp(self) -> bool:
        """Whether this is a C++ source or header."""
        return self.suffix in {".cc", ".h"}

    @property
    def is_library(self) -> bool:
        """Whether this is part of the engine; tests, programs and the Python border aside."""
        return (
            self.is_cpp
            and self.path.startswith(("src/", "include/"))
            and not self.path.startswith("src/bindings/")
            and not self.name.endswith(
                ("_test.cc", "_testing.cc", "_testing.h", "_fuzz.cc", "main.cc")
            )
        )

    def code(self) -> str:
        """The C++ text with comments and literals blanked, lines kept."""
        return CPP_NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), self.text)

    def find(self, line: int, message: str) -> Finding:
        """A finding in this file."""
        return Finding(self.path, line, message)


Check = Callable[[Source], Iterator[Finding]]


def check_form(source: Source) -> Iterator[Finding]:
    """Licence line, length, ASCII, unfinished work, paths of one machine."""
    licensed = any("SPDX-License-Identifier: Apache-2.0" in line for line in source.lines[:2])
    if (source.suffix in SPDX or source.name in SPDX_NAMES) and not licensed:
        yield source.find(1, "no SPDX line: SPDX-License-Identifier: Apache-2.0 comes first")
    for number, line in enumerate(source.lines, 1):
        if MACHINE_PATH.search(line):
            yield source.find(number, "path of one machine: name it relative to the project")
        if source.suffix in CODE and not line.isascii():
            yield source.find(number, "not ASCII: escape it")
        if source.suffix in CODE and (found := UNFINISHED.search(line)):
            yield source.find(number, f"{found.group()}: finish it, or open an issue")
    if source.suffix in CODE and len(source.lines) > FILE_LINES_MAX:
        yield source.find(1, f"{len(source.lines)} lines: split it, {FILE_LINES_MAX} at most")


def check_layers(source: Source) -> Iterator[Finding]:
    """Includes go downward only."""
    parts = source.path.split("/")
    if not source.is_cpp or parts[0] not in {"src", "include"}:
        return
    layer = parts[1] if parts[0] == "src" else "include"
    if layer not in LAYERS and layer != "include":
        yield source.find(1, f"unknown layer {layer}: add it to LAYERS in tools/tidy.py")
        return
    for number, line in enumerate(source.lines, 1):
        if found := INCLUDE.match(line):
            used = found.group(1).split("/")[0]
            allowed = LAYERS.get(layer, frozenset()) | {layer, "aerokv"}
            if used in LAYERS and used not in allowed:
                yield source.find(number, f"{layer} includes {used}: only downward")


def check_bans(source: Source) -> Iterator[Finding]:
    """Words that code does not contain, and lint exemptions without a reason."""
    if not source.is_cpp:
        return
    bans = CPP_BANS + (LIBRARY_BANS if source.is_library else [])
    for number, line in enumerate(source.code().splitlines(), 1):
        for pattern, message in bans:
            if pattern.search(line):
                yield source.find(number, message)
    for number, line in enumerate(source.lines, 1):
        if "NOLINT" in line and not NOLINT.search(line):
            yield source.find(number, "NOLINT without check or reason: NOLINT(check): reason")


def cpp_functions(code: str) -> Iterator[tuple[int, int]]:
    """Yields (first line, line count) of each function, relying on the enforced format.

    clang-format indents bodies by two and closes them in the column of their first line; namespaces
    are not indented. A line that opens a brace after ``)`` starts a function or a member function.
    """
    start: dict[int, int] = {}
    previous = 0
    for number, line in enumerate(code.splitlines(), 1):
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if stripped.startswith("}") and indent in start:
            yield start[indent], number - start.pop(indent) + 1
        if stripped and not stripped.startswith(("}", ")", ":", "#")) and indent <= previous:
            start.pop(indent, None)
        opens = re.match(r"(TEST|TYPED)\w*\(|[\w:<>,*&~\[\] ]+\(", stripped)
        keyword = re.match(r"(if|for|while|switch|return|namespace|struct|class|enum)\b", stripped)
        if opens and not keyword and indent <= 2 and not stripped.endswith((";", "}")):
            start[indent] = number
        previous = indent


def check_functions(source: Source) -> Iterator[Finding]:
    """Functions fit on a screen."""
    spans: list[tuple[int, int]] = []
    if source.is_cpp:
        spans = list(cpp_functions(source.code()))
    elif source.suffix == ".py":
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                spans.append((node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1))
    for line, count in spans:
        if count > FUNCTION_LINES_MAX:
            yield source.find(line, f"function of {count} lines: {FUNCTION_LINES_MAX} at most")


def check_built(source: Source) -> Iterator[Finding]:
    """Every C++ file is named by the nearest CMakeLists.txt above it."""
    if source.suffix != ".cc":
        return
    directory = (source.root / source.path).parent
    while not (directory / "CMakeLists.txt").exists():
        if directory == source.root:
            yield source.find(1, "no CMakeLists.txt above it")
            return
        directory = directory.parent
    relative = (source.root / source.path).relative_to(directory).as_posix()
    listed = (directory / "CMakeLists.txt").read_text()
    named = rf"(?<![\w/.-]){re.escape(relative)}(?![\w.-])|_fuzz\({re.escape(relative[:-8])}\b"
    if not re.search(named, listed):
        yield source.find(1, f"not built: {relative} is not in {directory.name}/CMakeLists.txt")


def prose(source: Source) -> Iterator[tuple[int, str]]:
    """The lines of a page outside code fences, numbered."""
    fenced = False
    for number, line in enumerate(source.lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(page: Source) -> set[str]:
    """The link targets that a page's headings make."""
    found = set()
    for _, line in prose(page):
        if heading := re.match(r"#+ +(.*?)(?: *\{ *#([\w-]+) *\})? *$", line):
            slug = re.sub(r"[^\w\s-]", "", heading.group(1)).strip().lower()
            found.add(heading.group(2) or re.sub(r"[\s-]+", "-", slug))
    return found


def check_pages(source: Source) -> Iterator[Finding]:
    """One title first, and no dead relative link."""
    if source.suffix != ".md":
        return
    titles = [number for number, line in prose(source) if line.startswith("# ")]
    if len(titles) != 1:
        yield source.find(1, f"{len(titles)} titles: a page has one")
    for number, line in prose(source):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            page = (source.root / source.path).parent / path if path else source.root / source.path
            if not page.exists():
                yield source.find(number, f"dead link {target}")
            elif anchor and page.suffix == ".md":
                relative = page.resolve().relative_to(source.root.resolve()).as_posix()
                if anchor not in anchors(Source(source.root, relative)):
                    yield source.find(number, f"dead anchor {target}")


CHECKS: list[Check] = [
    check_form,
    check_layers,
    check_bans,
    check_functions,
    check_built,
    check_pages,
]


def tracked_files(root: Path) -> list[str]:
    """Paths that git tracks or would track, those that exist and are text."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = sorted(set(filter(None, listing.split("\0"))))
    return [
        path
        for path in paths
        if (root / path).is_file() and b"\0" not in (root / path).read_bytes()[:4096]
    ]


def findings(root: Path, paths: list[str]) -> list[Finding]:
    """Everything that the checks find in `paths`, in their order."""
    sources = [Source(root, path) for path in paths]
    return [found for source in sources for check in CHECKS for found in check(source)]


def main() -> int:
    """Checks the tree that this file lies in; 0 if nothing was found."""
    root = Path(__file__).resolve().parent.parent
    paths = tracked_files(root)
    found = findings(root, paths)
    for finding in found:
        print(finding)
    print(f"tidy: {len(paths)} files, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
