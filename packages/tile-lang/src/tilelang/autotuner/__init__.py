"""Choosing the parameters of kernels by measuring (docs/tutorial/08-autotuning.md).

`autotune` and `AutoTuner` tune here; `pack` of an autotuned function, `measure` and `merge` in several places.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelang.autotuner.class_form import AutoTuner as AutoTuner
    from tilelang.autotuner.class_form import AutotuneResult as AutotuneResult
    from tilelang.autotuner.decorator import autotune as autotune
    from tilelang.autotuner.plan import measure as measure
    from tilelang.autotuner.plan import merge as merge
    from tilelang.autotuner.space import Space as Space
    from tilelang.autotuner.tuner import set_autotune_inputs as set_autotune_inputs

# name -> module: a machine that only measures never loads what tunes
_PLACES = {
    "autotune": "decorator",
    "AutoTuner": "class_form",
    "AutotuneResult": "class_form",
    "Space": "space",
    "set_autotune_inputs": "tuner",
    "measure": "plan",
    "merge": "plan",
}

__all__ = ["AutoTuner", "AutotuneResult", "Space", "autotune", "measure", "merge", "set_autotune_inputs"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tilelang.autotuner' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tilelang.autotuner.{_PLACES[name]}"), name)
