# SPDX-License-Identifier: Apache-2.0
"""Tells LMCache of the serdes, whichever of the two is imported first."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import logging
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

logger = logging.getLogger("lmcache_aerospike")

_REGISTRY: Final = "lmcache.v1.distributed.serde"


def register_serdes() -> None:
    """Sees to it that LMCache knows the serdes, so that a plain JSON configuration can name them.

    For modules that LMCache loads. It has imported its own registry before it makes an adapter, and
    then this registers at once. Elsewhere it waits for that import instead of causing it: LMCache
    and torch take seconds to import, and who uses the connector alone needs neither.
    """
    if _REGISTRY in sys.modules:
        _import_serdes()
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def _import_serdes() -> None:
    try:
        importlib.import_module("lmcache_aerospike.lmcache_serde")
    except Exception:
        # Whatever it is, adapters work without serdes; their owner has to learn why there are none.
        logger.warning("LMCache cannot use the serdes aerospike_*", exc_info=True)


class _Watch(importlib.abc.MetaPathFinder):
    """Waits for the import of LMCache's registry, once; finds nothing else."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the interface
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader)
        return spec


class _Then(importlib.abc.Loader):
    """Loads a module as its own loader does, then registers."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _import_serdes()
