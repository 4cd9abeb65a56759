# SPDX-License-Identifier: Apache-2.0
"""Log lines that a failing cluster would repeat: one for each cause now and then."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

_SECONDS: Final = 10.0
_CAUSES_MAX: Final = 64


class QuietLog:
    """Writes one line for each cause in ten seconds, and counts the others in the next one.

    Args:
        logger: Where lines go.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._lock = threading.Lock()
        self._causes: dict[str, tuple[float, int]] = {}

    def warning(self, cause: str, text: str) -> None:
        """A warning about `cause`."""
        now = time.monotonic()
        with self._lock:
            until, held_back = self._causes.get(cause, (0.0, 0))
            if now < until:
                self._causes[cause] = (until, held_back + 1)
                return
            if len(self._causes) >= _CAUSES_MAX:
                self._causes.clear()
            self._causes[cause] = (now + _SECONDS, 0)
        more = f" ({held_back} more since the last such line)" if held_back else ""
        self._logger.warning("%s%s", text, more)
