#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of options into docs/reference/config.md; needs the installed package."""

from __future__ import annotations

from pathlib import Path

from lmcache_aerospike.commands.config import markdown_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "config.md"
START = "| option |"


def main() -> None:
    """Replaces the table, wherever it stands."""
    lines = PAGE.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith(START))
    last = next(
        (i for i, line in enumerate(lines) if i > first and not line.startswith("|")), len(lines)
    )
    PAGE.write_text("".join(lines[:first]) + markdown_table() + "".join(lines[last:]))


if __name__ == "__main__":
    main()
