# SPDX-License-Identifier: Apache-2.0
"""The golden frames are still what the second implementations make of the format pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "serde"


@pytest.mark.parametrize("folder", ["int8", "chain"])
def test_golden_frames_equal_the_second_implementation(folder: str) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("xxhash")
    command = [sys.executable, str(GOLDEN / folder / "make.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
