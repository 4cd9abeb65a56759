# SPDX-License-Identifier: Apache-2.0
"""The development server inside a process of Python, for tests."""

from __future__ import annotations

from lmcache_aerospike._native import DevServer, make_certificates

__all__ = ["DevServer", "make_certificates"]
