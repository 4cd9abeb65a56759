# SPDX-License-Identifier: Apache-2.0
"""Makes the modules of bench/ importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
