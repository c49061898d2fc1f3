"""The best-known chip of each architecture of AMD.

Sources: AMD's datasheets of the MI250X (half of it: a kernel runs on one of its two dies) and the MI300X
(https://www.amd.com/en/products/accelerators/instinct.html), dense figures, peak engine clocks.
"""

from __future__ import annotations

from tile_compiler.targets.chip import Chip

_T = 1e12
CHIPS = {
    "gfx90a": Chip("MI250X, one die", 110, 1.7e9, 1.6e12, 23.9 * _T, {"f16": 191.5 * _T, "s8": 191.5 * _T}),
    "gfx942": Chip(
        "MI300X",
        304,
        2.1e9,
        5.3e12,
        163.4 * _T,
        {"f16": 1307 * _T, "s8": 2615 * _T, "e4m3": 2615 * _T, "xf32": 654 * _T},
    ),
}
