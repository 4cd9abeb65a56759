# SPDX-License-Identifier: Apache-2.0
"""The commands of ``lmcache-aerospike``, one module each."""
