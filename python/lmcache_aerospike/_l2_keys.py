# SPDX-License-Identifier: Apache-2.0
"""Object keys of LMCache as text, in the form that its native adapters use, and back."""

from __future__ import annotations

from lmcache.v1.distributed.api import ObjectKey

_SEPARATOR = "@"


def text_of(key: ObjectKey) -> str:
    """The name of an object, the same that LMCache's native adapters give it."""
    text = (
        f"{key.model_name}@{key.kv_rank:08x}@{key.object_group_id:x}@{bytes(key.chunk_hash).hex()}"
    )
    return f"{text}@{key.cache_salt}" if key.cache_salt else text


def key_of(text: str) -> ObjectKey | None:
    """The key whose name is `text`; None if no key has it."""
    parts = text.split(_SEPARATOR)
    if len(parts) not in (4, 5):
        return None
    try:
        key = ObjectKey(
            chunk_hash=bytes.fromhex(parts[3]),
            model_name=parts[0],
            kv_rank=int(parts[1], 16),
            object_group_id=int(parts[2], 16),
            cache_salt=parts[4] if len(parts) == 5 else "",
        )
    except ValueError:
        return None
    # Only the one form that text_of() writes: int() takes "+1" and "0x1", fromhex() takes blanks.
    return key if text_of(key) == text else None
