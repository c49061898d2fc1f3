"""Which products are multiplied by panels, and with which kernels."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ops.kernel import KernelSpec, Target

#: Rows of A and steps along k of a block: 256 KB, which with two panels of B leave half of a second cache of 1 MB to C.
#: Measured on a Sapphire Rapids: 256 x 256 and 256 x 512 best, 128 and 512 rows and 128 steps behind (cpu.md).
BLOCK_M, BLOCK_K = 256, 256
#: Columns of a panel, by whether the CPU has tile registers: those of the product's register tile (`register_tile` of
#: targets/cpu/gemm.py of the compiler), so that what a kernel reads of a panel lies together.
PANEL = {True: 64, False: 32}
#: Bytes of panels at once: they lie in the third cache, and malloc keeps as much for the next call.
AT_ONCE = 16 * 2**20
#: Of the steps along k at most this much may be zeros.
PADDING = 1.15
#: Panels that a block has at least, where there are so many: it copies its piece of A for them.
PANELS = 4


def pays(target: Target, dtype: str, m: int, n: int, k: int) -> bool:
    """Whether a product on a CPU fills blocks and steps."""
    steps = -(-k // BLOCK_K)
    return target.kind == "cpu" and dtype == "float32" and min(m, n) >= BLOCK_M and steps * BLOCK_K <= PADDING * k


def kernels(target: Target, transpose_a: bool, transpose_b: bool) -> dict[str, KernelSpec]:
    """`pack` and `multiply`."""
    width = PANEL["amx" in target.arch]
    return {
        "pack": KernelSpec.of("gemm_panels", "pack", transpose_b=transpose_b, block_n=width, block_k=BLOCK_K),
        "multiply": KernelSpec.of(
            "gemm_panels", "multiply", transpose_a=transpose_a, block_m=BLOCK_M, block_n=width, block_k=BLOCK_K
        ),
    }


def numbers(target: Target, n: int, k: int, batch: int = 1) -> dict[str, int]:
    """Of a call: columns and rows of a panel, panels, steps along k, and steps and matrices that are packed at once."""
    width = PANEL["amx" in target.arch]
    panels, steps = -(-n // width), -(-k // BLOCK_K)
    at_once = max(1, AT_ONCE // (panels * width * BLOCK_K * 4))
    matrices = min(batch, max(1, at_once // steps))
    found = {"width": width, "depth": BLOCK_K, "panels": panels, "steps": steps}
    return {**found, "at_once": min(steps, at_once), "matrices": matrices}


def panels_of_a_block(m: int, panels: int, threads: int, batch: int = 1) -> int:
    """So many that there are two blocks for each thread, where there are panels enough."""
    groups = min(-(-panels // PANELS), -(-2 * threads // (batch * -(-m // BLOCK_M))))
    return -(-panels // groups)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """By b, by a transposed b and of a transposed a, on CPUs."""
    if target.kind == "cpu":
        for transpose_a, transpose_b in ((False, False), (False, True), (True, False)):
            yield from kernels(target, transpose_a, transpose_b).values()
