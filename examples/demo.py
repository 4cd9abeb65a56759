#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LMCache stores real KV chunks in our development server and loads them back.

The same as ``lmcache-aerospike demo``, with the recorded chunks of ``examples/data``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lmcache_aerospike.cli import main

DATA = Path(__file__).parent / "data" / "minilm_l6_kv_chunks.safetensors"

if __name__ == "__main__":
    sys.argv[1:1] = ["demo", "--data", str(DATA)]
    main()
