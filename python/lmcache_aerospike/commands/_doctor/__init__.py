# SPDX-License-Identifier: Apache-2.0
"""The checks of ``doctor``."""
