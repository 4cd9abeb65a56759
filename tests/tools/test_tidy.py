# SPDX-License-Identifier: Apache-2.0
"""The house rules find what they shall, and nothing else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_tidy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tidy", ROOT / "tools" / "tidy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tidy"] = module
    spec.loader.exec_module(module)
    return module


tidy = load_tidy()
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
UNFINISHED = "TO" + "DO"


def messages(root: Path, path: str, text: str, listed: str = "") -> list[str]:
    """What the checks say about one file, in a tree that holds only it and its CMakeLists.txt."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (file.parent / "CMakeLists.txt").write_text(listed or f"add_library(x {file.name})\n")
    return [str(finding) for finding in tidy.findings(root, [path])]


def body(lines: int, head: str = "int count()") -> str:
    return f"{head} {{\n" + "  step();\n" * (lines - 2) + "}\n"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("src/base/a.cc", "int a;\n", "no SPDX line"),
        ("src/base/a.cc", SPDX + "// caf\u00e9\n", "not ASCII"),
        ("src/base/a.cc", SPDX + f"// {UNFINISHED}: later\n", UNFINISHED),
        ("src/base/a.cc", SPDX + "// see /wo" + "rk/main\n", "path of one machine"),
        ("src/base/a.cc", SPDX + 'auto p = "/tm' + 'p/x";\n', "path of one machine"),
        ("src/base/a.cc", SPDX + "int a;\n" * 600, "601 lines"),
        ("src/base/a.cc", SPDX + '#include "wire/message.h"\n', "base includes wire"),
        ("src/wire/a.cc", SPDX + '#include "client/node.h"\n', "wire includes client"),
        ("src/devserver/a.cc", SPDX + '#include "client/node.h"\n', "devserver includes client"),
        ("include/aerokv/a.h", SPDX + '#include "base/fd.h"\n', "include includes base"),
        ("src/helpers/a.cc", SPDX, "unknown layer helpers"),
        ("src/base/a.cc", SPDX + "void f() { throw 1; }\n", "throw outside"),
        ("src/base/a.cc", SPDX + 'void f() { printf("x"); }\n', "printing"),
        ("src/base/a.cc", SPDX + "void f() { std::cerr << 1; }\n", "printing"),
        ("tests/unit/a.cc", SPDX + "using namespace std;\n", "using namespace std"),
        ("src/base/a.cc", SPDX + "int a;  // NOLINT\n", "NOLINT without"),
        ("src/base/a.cc", SPDX + "int a;  // NOLINT(cert-err58-cpp)\n", "NOLINT without"),
        ("src/base/a.cc", SPDX + body(71), "function of 71 lines"),
        ("src/base/a.cc", SPDX + body(71, "TEST(Suite, Name)"), "function of 71 lines"),
        (
            "src/base/a.cc",
            SPDX + body(70, "int count(int a,\n          int b)"),
            "function of 71 lines",
        ),
        (
            "tools/a.py",
            "# SPDX-License-Identifier: Apache-2.0\ndef f():\n" + "    g()\n" * 70,
            "71",
        ),
        ("docs/a.md", "# One\n\n# Two\n", "2 titles"),
        ("docs/a.md", "text\n", "0 titles"),
        ("docs/a.md", "# A\n\n[b](missing.md)\n", "dead link missing.md"),
        ("docs/a.md", "# A\n\n[b](#nowhere)\n", "dead anchor #nowhere"),
    ],
)
def test_finds(tmp_path: Path, path: str, text: str, expected: str) -> None:
    found = messages(tmp_path, path, text)
    assert len(found) == 1, found
    assert expected in found[0]
    assert found[0].startswith(f"{path}:")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/base/a.cc", SPDX + body(70)),
        ("src/base/a.cc", SPDX + body(40) + body(40)),
        (
            "src/base/a.cc",
            SPDX + "class A {\n public:\n" + "  int a() { return 1; }\n" * 80 + "};\n",
        ),
        ("src/base/a.cc", SPDX + "constexpr int kRows[] = {\n" + "    1,\n" * 90 + "};\n"),
        ("src/base/a.cc", SPDX + '// throw, printf("x")\nconst char* kText = "throw std::cout";\n'),
        ("src/base/a.cc", SPDX + "void f() { std::snprintf(b, 1, s); }\n"),
        ("src/base/a.cc", SPDX + "int a;  // NOLINT(cert-err58-cpp): made before main\n"),
        ("src/base/a.cc", SPDX + "using namespace std::chrono_literals;\n"),
        ("src/bindings/a.cc", SPDX + '#include "connector/connector.h"\nvoid f() { throw 1; }\n'),
        ("src/store/a.cc", SPDX + '#include "wire/message.h"\n#include "aerokv/status.h"\n'),
        ("src/base/a_test.cc", SPDX + 'void f() { printf("x"); }\n'),
        (
            "docs/a.md",
            "# A title, with `code`\n\n[self](#a-title-with-code)\n\n```\n# no title\n```\n",
        ),
    ],
)
def test_accepts(tmp_path: Path, path: str, text: str) -> None:
    assert messages(tmp_path, path, text) == []


def test_unbuilt_source_is_found(tmp_path: Path) -> None:
    found = messages(tmp_path, "src/base/a.cc", SPDX, listed="add_library(x aa.cc a.cc.in)\n")
    assert found == ["src/base/a.cc:1: not built: a.cc is not in base/CMakeLists.txt"]


def test_every_layer_in_the_tree_is_known() -> None:
    layers = {path.name for path in (ROOT / "src").iterdir() if any(path.iterdir())}
    assert layers <= set(tidy.LAYERS)


def test_exit_code_and_summary(capsys: pytest.CaptureFixture[str]) -> None:
    code = tidy.main()
    *found, summary = capsys.readouterr().out.splitlines()
    assert summary.startswith("tidy: ")
    assert summary.endswith(f" {len(found)} findings")
    assert code == (1 if found else 0)
