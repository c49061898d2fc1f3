"""The tiles of products on GPUs, and how long they take there."""

from __future__ import annotations

from .model import Rates
from .tiles import Tiles


def _hopper(block_m: int, block_n: int) -> Tiles:
    """As many stages as fit into 227 KB of shared memory, up to 16: the loads of a chip with few blocks are on their way
    together. One warpgroup for 64 rows, two for more."""
    stages = min(16, (227 * 1024 - 1024) // ((block_m + block_n) * 128))
    return Tiles(block_m, block_n, 128, stages, 128 if block_m == 64 else 256, 8)


#: By architecture (or kind) and class; a CPU's others are in tiles.py. "large" was measured (docs/performance/cuda.md: the
#: tile of sm_90a and that of mma.sync); "small" is a rule: the smallest tile with all warps at work. The others of
#: sm_90a are the ones that were the best for a shape of a sweep (cuda.md, "Products of any shape").
TILES = {
    ("sm_90a", "large"): Tiles(128, 256, 128, 4, 256, 16),
    ("sm_90a", "staying"): Tiles(128, 256, 128, 3, 256, 8),  # and a tile of the result beside them
    ("sm_90a", "staying8"): Tiles(128, 256, 128, 4, 256, 16),  # of bytes
    ("sm_90a", "256x192"): _hopper(256, 192),
    ("sm_90a", "256x168"): _hopper(256, 168),
    ("sm_90a", "256x160"): _hopper(256, 160),
    ("sm_90a", "128x192"): _hopper(128, 192),
    ("sm_90a", "128x160"): _hopper(128, 160),
    ("sm_90a", "128x128"): _hopper(128, 128),
    ("sm_90a", "128x80"): _hopper(128, 80),
    ("sm_90a", "64x128"): _hopper(64, 128),
    ("sm_90a", "64x80"): _hopper(64, 80),
    ("sm_90a", "small"): _hopper(64, 64),
    ("sm_90a", "64x32"): _hopper(64, 32),
    ("sm_90a", "tiny"): Tiles(16, 32, 128, 4, 128, 0),
    # Where each thread multiplies alone: float32 that is not rounded to tf32.
    ("sm_90a", "alone 128x256"): Tiles(128, 256, 128, 4, 256, 8),
    ("sm_90a", "alone 64x256"): Tiles(64, 256, 128, 4, 256, 8),
    ("sm_90a", "alone 128x128"): Tiles(128, 128, 128, 3, 128, 8),
    ("sm_90a", "alone 128x64"): Tiles(128, 64, 128, 4, 128, 8),
    ("sm_90a", "alone 64x64"): Tiles(64, 64, 128, 4, 128, 8),
    ("sm_90a", "alone 32x128"): Tiles(32, 128, 128, 4, 128, 8),
    ("cuda", "large"): Tiles(128, 128, 64, 3, 128, 8),
    ("cuda", "small"): Tiles(64, 64, 64, 3, 128, 0),
    ("hip", "large"): Tiles(128, 128, 64, 2, 256, 8),
    ("hip", "small"): Tiles(64, 64, 64, 2, 256, 0),
    ("cuda", "thin"): Tiles(16, 128, 128, 4, 128, 0),
    ("hip", "thin"): Tiles(16, 128, 64, 2, 256, 0),
    # One scale along n for each block, and two tiles of sums.
    ("sm_90a", "blocks"): Tiles(128, 128, 128, 4, 256, 8),
    ("cuda", "blocks"): Tiles(64, 128, 128, 2, 128, 8),
    ("hip", "blocks"): Tiles(64, 128, 128, 2, 256, 8),
    ("cpu", "blocks"): Tiles(64, 128, 128, 0, 128, 0),
}
#: What a tile takes on a chip: of sm_90a measured on an H200 in a sweep of 26 shapes, 16-bit elements (docs/performance/
#: cuda.md, "Products of any shape"); of the others rules from data sheets (A100: 108 multiprocessors, 312 TFLOP/s, 5 TB/s
#: of L2; MI300X: 304, 1307, 33): a step takes as long as its products, or its bytes.
RATES = {
    ("sm_90a", "large"): Rates(0.60, 8.0, 132, 3e6),
    ("sm_90a", "256x192"): Rates(0.95, 8.5, 132, 3e6),
    ("sm_90a", "256x168"): Rates(0.91, 8.5, 132, 3e6),
    ("sm_90a", "256x160"): Rates(0.81, 8.5, 132, 3e6),
    ("sm_90a", "128x192"): Rates(0.47, 8.0, 132, 3e6),
    ("sm_90a", "128x160"): Rates(0.42, 7.5, 132, 3e6),
    ("sm_90a", "128x128"): Rates(0.354, 7.0, 132, 3e6),
    ("sm_90a", "128x80"): Rates(0.27, 5.5, 132, 3e6),
    ("sm_90a", "64x128"): Rates(0.203, 5.2, 132, 3e6),
    ("sm_90a", "64x80"): Rates(0.185, 5.3, 132, 3e6),
    ("sm_90a", "small"): Rates(0.175, 5.0, 132, 3e6),
    ("sm_90a", "64x32"): Rates(0.125, 4.5, 132, 1.3e6),
    ("cuda", "large"): Rates(0.36, 5.0, 108),
    ("cuda", "small"): Rates(0.18, 5.0, 108),
    ("cuda", "thin"): Rates(0.40, 5.0, 108),
    ("hip", "large"): Rates(0.25, 5.0, 304),
    ("hip", "small"): Rates(0.08, 5.0, 304),
    ("hip", "thin"): Rates(0.09, 5.0, 304),
}
#: Of sm_90a where each thread multiplies alone, by (a transposed, b transposed), measured on an H100 as kernels: eight shapes
#: by eleven tiles (docs/performance/cuda.md, "Each thread alone"). Of small tiles two share a multiprocessor; a third brings
#: little.
ALONE: dict[tuple[bool, bool], dict[str, Rates]] = {
    (False, False): {
        "alone 128x256": Rates(5.30, 7.5, 132, 3e6),
        "alone 128x128": Rates(2.94, 7.0, 132, 3e6),
        "alone 64x64": Rates(1.63, 5.0, 264, 3e6),
    },
    (False, True): {
        "alone 128x256": Rates(5.72, 8.0, 132, 3e6),
        "alone 64x256": Rates(2.80, 5.0, 132, 3e6),
        "alone 128x128": Rates(3.06, 5.0, 132, 3e6),
        "alone 64x64": Rates(1.61, 5.0, 264, 3e6),
    },
    (True, False): {
        "alone 128x256": Rates(5.48, 7.7, 132, 3e6),
        "alone 128x64": Rates(2.85, 5.0, 264, 3e6),
        "alone 32x128": Rates(1.53, 4.0, 264, 3e6),
    },
}
ALONE[True, True] = ALONE[True, False]
