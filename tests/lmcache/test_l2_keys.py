# SPDX-License-Identifier: Apache-2.0
"""Names of objects: the same as those of LMCache's native adapters, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lmcache.v1.distributed.api import ObjectKey
from lmcache_driver import object_key, wire_key

from lmcache_aerospike._l2_keys import key_of, text_of

KEYS = st.builds(
    ObjectKey,
    chunk_hash=st.binary(max_size=40),
    model_name=st.text(max_size=40).filter(lambda t: "@" not in t),
    kv_rank=st.integers(0, (1 << 40) - 1),
    object_group_id=st.integers(0, 1 << 20),
    cache_salt=st.text(max_size=40).filter(lambda t: not set("@/\\\0") & set(t)),
)


@given(KEYS)
def test_a_key_has_the_name_that_lmcache_gives_it_and_comes_back(key):
    assert text_of(key) == wire_key(key)
    assert key_of(text_of(key)) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a plain name",
        "vllm@model@1@0@abcdef@bfloat16",  # a key of the other mode
        "model@0x000001@0@ab",
        "model@+0000001@0@ab",
        "model@00000001@00@ab",
        "model@00000001@0@ab ",
        "model@00000001@0@a b",
        "model@00000001@0@AB",
        "model@00000001@0@abc",
        "model@00000001@-1@ab",
        "model@00000001@0@ab@",
        "model@00000001@0@ab@a/b",
        "model@00000001@0@ab@" + "s" * 129,
    ],
)
def test_other_names_are_no_keys(text):
    assert key_of(text) is None


def test_a_name_is_as_short_as_its_key():
    assert text_of(object_key(1)) == f"meta-llama/Llama-3.1-8B@01000100@0@{'00000001' * 8}"
