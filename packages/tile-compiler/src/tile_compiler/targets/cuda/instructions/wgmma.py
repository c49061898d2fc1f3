"""`wgmma.mma_async`: the tensor cores of sm_90a, one warpgroup at a time, operands in shared memory.

Source: PTX ISA 8.7, section 9.7.15 "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", whose figures
"WGMMA .m64nNk16 register fragment layout ..." give the fragments, and table "wgmma.mma_async shapes" the widths
(https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions).

| accumulator | a x b | k | n | majors |
| --- | --- | --- | --- | --- |
| f32, f16 | f16 x f16 | 16 | 8, 16, ... 256 | both |
| f32 | bf16 x bf16 | 16 | 8, 16, ... 256 | both |
| f32 | tf32 x tf32 | 8 | 8, 16, ... 256 | k |
| f32, f16 | e4m3, e5m2 in any pair | 32 | 8, 16, ... 256 | k |
| s32 | s8, u8 in any pair | 32 | 8, 16, 24, 32, 48, ... 256 | k |
"""

from __future__ import annotations

from tile_compiler.instructions.matrix_multiply import sum_of_products
from tile_compiler.instructions.warpgroup_multiply import WarpgroupMultiply
from tile_compiler.targets.cuda.instructions.mma import TYPES, truncated

SOURCE = "PTX ISA 8.7, 9.7.15 wgmma.mma_async"
WIDTHS = tuple(range(8, 257, 8))
INTEGER_WIDTHS = (8, 16, 24, *range(32, 257, 16))


def _wgmma(k: int, acc: str, a: str, b: str) -> WarpgroupMultiply:
    return WarpgroupMultiply(
        f"tl::wgmma_m64k{k}_{acc}_{a}" + ("" if a == b else f"_{b}"),
        f"wgmma.mma_async.sync.aligned.m64nNk{k}.{acc}.{a}.{b}",
        k,
        TYPES[a],
        TYPES[b],
        TYPES[acc],
        INTEGER_WIDTHS if acc == "s32" else WIDTHS,
        k == 16,
        ("sm_90a",),
        SOURCE,
        truncated if a == "tf32" else sum_of_products,
    )


WGMMA = (
    _wgmma(16, "f32", "f16", "f16"),
    _wgmma(16, "f16", "f16", "f16"),
    _wgmma(16, "f32", "bf16", "bf16"),
    _wgmma(8, "f32", "tf32", "tf32"),
    *(_wgmma(32, acc, a, b) for acc in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *(_wgmma(32, "s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
)
