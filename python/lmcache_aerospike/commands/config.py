# SPDX-License-Identifier: Apache-2.0
"""``config``: the table of options and what is in effect."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from lmcache_aerospike.commands.session import Session
from lmcache_aerospike.config import OPTIONS, Config


def config(session: Session) -> None:
    """Show every option: its value, where that came from, and what it does. No secrets."""
    effective = Config.resolve(session.given(), complete=False)
    shown = effective.shown()
    if session.json:
        session.write_json(
            {
                option.name: {
                    "value": shown[option.name],
                    "source": effective.sources[option.name],
                    "default": option.default,
                    "unit": option.unit,
                    "expected": option.expected,
                    "effect": option.effect,
                }
                for option in OPTIONS
            }
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("option", "value", "from", "effect"):
        table.add_column(title, overflow="fold", no_wrap=title == "option")
    for option in OPTIONS:
        value = shown[option.name]
        text = "" if value is None else str(value).lower() if value in (True, False) else str(value)
        source = effective.sources[option.name]
        style = "dim" if source == "default" else "bold"
        table.add_row(option.name, Text(text, style), Text(source, style), Text(option.effect))
    session.output.print(table)
