#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes vectors.txt: heads of checksum frames, with sums made by python-xxhash.

One line for each frame: the chunk hash, the bytes of the payload, the first 17 bytes of the frame.
Byte i of a payload is bits 13 to 20 of i * 2654435761.
"""

from __future__ import annotations

from pathlib import Path

import xxhash

HASH = bytes(range(0xA0, 0xC0))
LENGTHS = [
    *range(18),
    *(32, 33, 64, 65, 96, 97, 127, 128, 129, 160, 239, 240, 241, 255, 256, 257),
    *(511, 512, 513, 1023, 1024, 1025, 1087, 1088, 1089, 2047, 2048, 2049),
    *(65536, 131072, 131073, 262144, 1000003, 4194303, 4194304, 4194305, 4195329, 5000011),
]


def payload(size: int) -> bytes:
    """The bytes of a payload of `size` bytes."""
    return bytes((i * 2654435761 >> 13) & 0xFF for i in range(size))


def head(chunk_hash: bytes, content: bytes) -> bytes:
    """Version, fingerprint and sum."""
    return b"\x01" + chunk_hash[:8].ljust(8, b"\0") + xxhash.xxh3_64(content).digest()


def main() -> None:
    """Writes the file beside this script."""
    cases = [(HASH, size) for size in LENGTHS]
    cases += [(HASH[:size], 100) for size in (0, 1, 7, 8, 9)]
    longest = payload(max(LENGTHS))
    lines = [
        f"{chunk_hash.hex() or '-'} {size} {head(chunk_hash, longest[:size]).hex()}\n"
        for chunk_hash, size in cases
    ]
    (Path(__file__).parent / "vectors.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
