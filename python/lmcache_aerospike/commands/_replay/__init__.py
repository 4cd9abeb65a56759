# SPDX-License-Identifier: Apache-2.0
"""Replays request traces against a cluster, and predicts what a cache would do with them."""
