#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes vectors.txt: frames that LMCache 0.5.6 wrote with its own aesgcm serde.

One line for each frame: aes_bits, the master key, the salt in UTF-8, the plaintext, the frame, in
hexadecimal; - is nothing. IVs are random: every run gives other frames.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lmcache.v1.distributed.serde.aesgcm import _HDR_LEN, _TAG_LEN, AesGcmSerializer
from lmcache.v1.distributed.serde.key_provider import HkdfKeyProvider

INFO = b"lmcache-l2-aesgcm-v1"
MASTERS = [bytes(range(32)), b"a pass phrase with a line feed\n", b"k", bytes(range(200))]
SALTS = ["", "tenant-a", "tenant-b", "M\u00fcller \u4e2d\u6587", "s" * 128]
SIZES = [0, 1, 15, 16, 17, 31, 32, 33, 100, 256, 1000]


def frame(bits: int, master: bytes, salt: str, plain: bytes) -> bytes:
    """What LMCache's serializer writes for `plain`."""
    serializer = AesGcmSerializer(HkdfKeyProvider(master, bits // 8, INFO))
    target = bytearray(_HDR_LEN + len(plain) + _TAG_LEN)
    source: Any = SimpleNamespace(byte_array=memoryview(plain))
    sink: Any = SimpleNamespace(byte_array=memoryview(target))
    key: Any = SimpleNamespace(cache_salt=salt)
    serializer.serialize(source, sink, key)
    return bytes(target)


def main() -> None:
    """Writes the file beside this script."""
    cases = [(bits, MASTERS[0], "tenant-a", size) for bits in (128, 256) for size in SIZES]
    cases += [
        (bits, master, salt, 24) for bits in (128, 256) for master in MASTERS for salt in SALTS
    ]
    lines = []
    for bits, master, salt, size in cases:
        plain = bytes((7 * i + size) % 256 for i in range(size))
        written = frame(bits, master, salt, plain)
        texts = (master.hex(), salt.encode().hex(), plain.hex(), written.hex())
        lines.append(f"{bits} " + " ".join(text or "-" for text in texts) + "\n")
    (Path(__file__).parent / "vectors.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
