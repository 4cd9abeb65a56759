#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden vectors of the chain frame: a second implementation of its header.

It was written from docs/formats/chain.md. The vectors of version 1 are frozen: run it with --check.
The inner frames are those of ../int8 and LMCache's checksum frame.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import xxhash

HERE = Path(__file__).resolve().parent
FINGERPRINT = bytes(range(1, 9))  # the first eight bytes of the chunk hash 01 02 ... 09


def checksum(payload: bytes) -> bytes:
    """LMCache's frame: version, fingerprint, XXH3-64 in big-endian, payload."""
    return b"\x01" + FINGERPRINT + xxhash.xxh3_64_digest(payload) + payload


def chain(outputs: list[bytes]) -> bytes:
    """The header, then the last output."""
    header = struct.pack("<4sBBH", b"AKCH", 1, len(outputs), 0)
    return header + b"".join(struct.pack("<Q", len(one)) for one in outputs) + outputs[-1]


def main() -> None:
    """Writes or compares the files."""
    source = (HERE.parent / "int8" / "kv.source").read_bytes()
    frame = (HERE.parent / "int8" / "kv.frame").read_bytes()
    once = checksum(source)
    twice = checksum(once)
    files = {
        "checksum": chain([once]),
        "int8_checksum": chain([frame, checksum(frame)]),
        "checksum_checksum_checksum": chain([once, twice, checksum(twice)]),
    }
    for name, content in files.items():
        path = HERE / f"{name}.frame"
        if "--check" in sys.argv[1:]:
            assert path.read_bytes() == content, path
        else:
            path.write_bytes(content)


if __name__ == "__main__":
    main()
