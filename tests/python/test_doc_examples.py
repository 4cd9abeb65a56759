# SPDX-License-Identifier: Apache-2.0
"""The Python blocks of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmcache_aerospike import _native

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/reference/python.md", "docs/guides/serde.md"]
BLOCKS = [
    (page, code)
    for page in PAGES
    for code in re.findall(
        r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )
]


@pytest.mark.parametrize(
    ("page", "code"), BLOCKS, ids=[f"{p}-{i}" for i, (p, _) in enumerate(BLOCKS)]
)
def test_block_runs(server: _native.DevServer, page: str, code: str) -> None:
    code = re.sub(r'"[0-9.]+:3000"', repr(server.hosts), code)
    names: dict[str, object] = {}
    exec(compile(code, page, "exec"), names)
    if "found" in names:
        assert (names["data"], names["size"]) == (b"content", 7)
        assert names["found"] == [True, False]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) == 8
