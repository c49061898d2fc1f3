"""Products as templates: the tiles that the autotuner's model puts first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilelang.carver.arch import TileDevice, auto_infer_current_arch
from tilelang.carver.roller.rasterization import NoRasterization, Rasterization2DRow
from tilelang.errors import InvalidArgument
from tilelang.ir.dtypes import DType, dtype_of

if TYPE_CHECKING:
    from tilelang.ir.tile_work import TileWork

SIDES = (32, 64, 128, 256)
ROW_BYTES = (64, 128)  # of a step along K: what a swizzle covers
STAGES = (2, 3, 4)
THREADS = (128, 256)
PANEL = 10  # rows of tiles that use one another's columns in L2


@dataclass(frozen=True)
class Hint:
    """One way to tile a product.

    `block`: rows and columns of C in a block. `warp`: in a warp. `rstep`: (K of one step,). `pipeline_stage`: versions of
    a step's tiles. `rasterization_plan`: the class NoRasterization, or a Rasterization2DRow. `seconds`: the model's guess,
    which orders and promises nothing. `threads` of a block.
    """

    block: tuple[int, int]
    warp: tuple[int, int]
    rstep: tuple[int]
    pipeline_stage: int
    rasterization_plan: Any
    seconds: float
    threads: int


@dataclass(frozen=True)
class MatmulTemplate:
    """C (M, N) = A (M, K) @ B (K, N), B stored (N, K) with `trans_B`, A stored (K, M) with `trans_A`."""

    M: int
    N: int
    K: int
    in_dtype: Any = "float16"
    out_dtype: Any = "float16"
    accum_dtype: Any = "float32"
    trans_A: bool = False
    trans_B: bool = True
    arch: TileDevice | None = None

    def with_arch(self, arch: TileDevice) -> MatmulTemplate:
        """The template for a device (`tilelang.carver.arch.CUDA()`)."""
        return replace(self, arch=arch)

    def recommend_hints(self, topk: int = 10) -> list[Hint]:
        """The `topk` ways that the model thinks fastest, the first one first; pure arithmetic, nothing is compiled.

        InvalidArgument for sizes that are none, and for types that the device does not multiply in tiles.
        """
        self._check()
        found = sorted(self._candidates(), key=lambda hint: hint.seconds)
        if not found:
            raise InvalidArgument(
                "no tiles for this product",
                found=f"{self.M} x {self.N} x {self.K} of {self.in_dtype} on {self._device().target}",
                expected="a type that the device's matrix unit takes: " + ", ".join(self._device().machine.tensor),
                repair="T.copy converts tiles on their way",
            )
        return found[:topk]

    def equivalent_function(self) -> Any:
        """The product as a `T.prim_func`, by the first hint."""
        return self.function(self.recommend_hints(1)[0])

    def function(self, hint: Hint) -> Any:
        """The product as a `T.prim_func`, by a hint."""
        import tilelang.language as T

        (block_m, block_n), (block_k,) = hint.block, hint.rstep
        a_shape = (self.K, self.M) if self.trans_A else (self.M, self.K)
        b_shape = (self.N, self.K) if self.trans_B else (self.K, self.N)
        in_dtype, out_dtype, accum_dtype = map(dtype_of, (self.in_dtype, self.out_dtype, self.accum_dtype))
        panel = hint.rasterization_plan
        width = panel.panel_width if isinstance(panel, Rasterization2DRow) else 1
        trans_a, trans_b = self.trans_A, self.trans_B
        a_tile = (block_k, block_m) if trans_a else (block_m, block_k)
        b_tile = (block_n, block_k) if trans_b else (block_k, block_n)
        rows, columns, steps = math.ceil(self.M / block_m), math.ceil(self.N / block_n), math.ceil(self.K / block_k)

        @T.prim_func
        def matmul(
            A: T.Tensor(a_shape, in_dtype),  # type: ignore[valid-type]
            B: T.Tensor(b_shape, in_dtype),  # type: ignore[valid-type]
            C: T.Tensor((self.M, self.N), out_dtype),  # type: ignore[valid-type]
        ) -> None:
            with T.Kernel(columns, rows, threads=hint.threads) as (bx, by):
                A_shared = T.alloc_shared(a_tile, in_dtype)
                B_shared = T.alloc_shared(b_tile, in_dtype)
                C_local = T.alloc_fragment((block_m, block_n), accum_dtype)
                T.use_swizzle(width, enable=width > 1)
                T.clear(C_local)
                for k in T.Pipelined(steps, num_stages=hint.pipeline_stage):
                    if trans_a:
                        T.copy(A[k * block_k, by * block_m], A_shared)
                    else:
                        T.copy(A[by * block_m, k * block_k], A_shared)
                    if trans_b:
                        T.copy(B[bx * block_n, k * block_k], B_shared)
                    else:
                        T.copy(B[k * block_k, bx * block_n], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_A=trans_a, transpose_B=trans_b)
                T.copy(C_local, C[by * block_m, bx * block_n])

        return matmul

    # -- candidates -------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        sizes = (self.M, self.N, self.K)
        if not all(isinstance(s, int) and s > 0 for s in sizes):
            raise InvalidArgument(
                "MatmulTemplate has impossible sizes",
                found=f"M, N, K = {sizes}",
                expected="positive integers",
                repair="MatmulTemplate(M=1024, N=1024, K=1024)",
            )

    def _device(self) -> TileDevice:
        return self.arch or auto_infer_current_arch()

    def _candidates(self) -> Iterator[Hint]:
        from tilelang.autotuner.model import estimate, impossible

        machine, bits = self._device().machine, dtype_of(self.in_dtype).bits
        depths = [row * 8 // bits for row in ROW_BYTES]
        for block_m, block_n, depth, stages, threads in itertools.product(SIDES, SIDES, depths, STAGES, THREADS):
            warp = _warp_tile(block_m, block_n, threads // self._device().warp_size, machine.group > 64)
            if warp is None:
                continue
            work = self.work((block_m, block_n), depth, stages, threads)
            guess = None if impossible(work, machine) else estimate(work, machine)
            if guess is not None:
                rows = math.ceil(self.M / block_m)
                panel = Rasterization2DRow(PANEL) if rows > PANEL else NoRasterization
                yield Hint((block_m, block_n), warp, (depth,), stages, panel, guess.seconds, threads)

    def work(self, block: tuple[int, int], depth: int, stages: int, threads: int) -> TileWork:
        """What such a kernel asks for: what `tile_work` reads off the traced function."""
        from tilelang.ir.tile_work import LaunchWork, Product, Tile, TileWork

        (m, n), types = block, [dtype_of(t) for t in (self.in_dtype, self.out_dtype, self.accum_dtype)]
        operand, result, sums = (t.bits for t in types)
        steps = math.ceil(self.K / depth)
        blocks = math.ceil(self.M / m) * math.ceil(self.N / n)
        names = ("A_shared", "B_shared", "C_local")
        launch = LaunchWork(
            blocks,
            threads,
            tiles={
                names[0]: Tile(names[0], "shared", operand, m * depth, stages),
                names[1]: Tile(names[1], "shared", operand, n * depth, stages),
                names[2]: Tile(names[2], "fragment", sums, m * n),
            },
            products=[Product(m, n, depth, steps, _name(types[0]), operand, names)],
            together=[names[:2]],
            steps=steps,
            stages=stages,
            read_bytes=steps * (m + n) * depth * operand // 8,
            written_bytes=m * n * result // 8,
        )
        moved = self.K * (self.M + self.N) * operand // 8 + self.M * self.N * result // 8
        return TileWork((launch,), moved)


def _name(dtype: DType) -> str:
    return str(dtype.storage)


def _warp_tile(block_m: int, block_n: int, warps: int, in_groups: bool) -> tuple[int, int] | None:
    """Rows and columns of a warp when warps share a block as square as they can; None where there is too little for all.

    `in_groups`: four warps lie above each other, as the instructions of Hopper's warpgroups want it.
    """
    shapes = [(r, warps // r) for r in range(4 if in_groups else 1, warps + 1) if warps % r == 0]
    fits = [(r, c) for r, c in shapes if block_m % (16 * r) == 0 and block_n % (8 * c) == 0]
    if not fits:
        return None
    rows, columns = min(fits, key=lambda s: abs(block_m // s[0] - block_n // s[1]))
    return block_m // rows, block_n // columns
