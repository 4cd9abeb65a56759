# SPDX-License-Identifier: Apache-2.0
"""Runs ``lmcache`` with one argument list after the other in one process, to import it once.

Reads a JSON list of argument lists from stdin; prints a JSON list of [exit code, stdout].
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from lmcache.cli.main import main


def run(arguments: list[str]) -> tuple[int, str]:
    """The exit code and the output of one invocation."""
    output = io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(output):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    return code if isinstance(code, int) else int(code is not None), output.getvalue()


if __name__ == "__main__":
    json.dump([run(arguments) for arguments in json.load(sys.stdin)], sys.stdout)
