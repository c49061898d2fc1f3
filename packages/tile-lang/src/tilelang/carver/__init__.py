"""Hints for tuning: what a device can hold, and which tiles of a product the autotuner's model thinks fastest on it.

`tilelang.autotune` with `Space` does the same for any kernel; this is for programs that make their own configurations.
"""

from tilelang.carver import arch, template
from tilelang.carver.template import Hint, MatmulTemplate

__all__ = ["Hint", "MatmulTemplate", "arch", "template"]
