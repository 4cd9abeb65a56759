# SPDX-License-Identifier: Apache-2.0
"""What plugs into LMCache tells it of the serdes, if it is there."""

from __future__ import annotations

import importlib
import importlib.util
import logging

logger = logging.getLogger("lmcache_aerospike")


def register_serdes() -> bool:
    """Registers the serdes with LMCache, so that a plain JSON configuration can name them.

    LMCache makes the serde of an adapter after the adapter, whose module calls this.

    Returns:
        Whether it was done. False without LMCache; also if its import fails, which is logged.
    """
    try:
        if importlib.util.find_spec("lmcache") is None:
            return False
        importlib.import_module("lmcache_aerospike.lmcache_serde")
    except Exception:  # whatever it is: the adapter works without, and its owner learns the reason
        logger.warning("LMCache cannot use the serdes aerospike_*", exc_info=True)
        return False
    return True
