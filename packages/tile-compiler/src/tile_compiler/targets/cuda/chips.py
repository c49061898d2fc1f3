"""The best-known chip of each architecture of NVIDIA.

Sources: NVIDIA's datasheets of the T4, A100 80GB SXM, A40, L40S and H200 SXM (https://www.nvidia.com/en-us/data-center/),
dense figures; clocks are those that the figures imply (for the H200: 989 TFLOPS at 4096 operations a clock on each
multiprocessor).
"""

from __future__ import annotations

from tile_compiler.targets.chip import Chip

_T = 1e12
_H200 = Chip(
    "H200 SXM", 132, 1.83e9, 4.8e12, 66.9 * _T, {"f16": 989 * _T, "tf32": 495 * _T, "s8": 1979 * _T, "e4m3": 1979 * _T}
)
CHIPS = {
    "sm_75": Chip("T4", 40, 1.59e9, 320e9, 8.1 * _T, {"f16": 65 * _T, "s8": 130 * _T, "s4": 260 * _T}),
    "sm_80": Chip(
        "A100 SXM 80GB",
        108,
        1.41e9,
        2.039e12,
        19.5 * _T,
        {"f16": 312 * _T, "tf32": 156 * _T, "s8": 624 * _T, "s4": 1248 * _T},
    ),
    "sm_86": Chip(
        "A40", 84, 1.74e9, 696e9, 37.4 * _T, {"f16": 149.7 * _T, "tf32": 74.8 * _T, "s8": 299.3 * _T, "s4": 598.7 * _T}
    ),
    "sm_89": Chip(
        "L40S",
        142,
        2.52e9,
        864e9,
        91.6 * _T,
        {"f16": 362 * _T, "tf32": 183 * _T, "s8": 733 * _T, "e4m3": 733 * _T, "s4": 1466 * _T},
    ),
    "sm_90": _H200,
    "sm_90a": _H200,
}
