# SPDX-License-Identifier: Apache-2.0
"""``python -m lmcache_aerospike`` is the command ``lmcache-aerospike``."""

from lmcache_aerospike.cli import main

main()
