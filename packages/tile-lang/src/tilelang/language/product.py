"""Matrix products of tiles: `T.gemm`, and `T.wgmma_gemm` with `T.wait_wgmma` for who says himself what runs beside what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.errors import DtypeError, GemmShapeMismatch, InvalidArgument
from tilelang.frontend.buffers import Element, Region, simplify
from tilelang.frontend.buffers import show_extents as _show
from tilelang.frontend.builder import tile_operator
from tilelang.frontend.values import as_value, convert
from tilelang.ir.dtypes import DType
from tilelang.language.barriers import thread_level
from tilelang.language.tile import place
from tilelang.ops.gemm import GemmWarpPolicy


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    wg_wait: int = 0,
    mbar: Any = None,
    **hints: Any,
) -> None:
    """`T.gemm(A, B, C)`: C += op(A) @ op(B), or C = op(A) @ op(B) with `clear_accum`.

    A is (M, K), stored (K, M) with `transpose_A`; B is (K, N), stored (N, K) with `transpose_B`; C is (M, N).
    Operands lie in shared memory or fragments (C too), as buffers or regions with leading extents of 1; M, N, K
    are known at compile time. Regions of tensors are copied to tiles first, and C back; a CPU takes those of one type that
    provably lie inside as they are (B in panels: docs/performance/cpu.md). Accumulates in C's type, in float32 at least
    for floats; the order of sums is free.
    `policy` says how warps share C and is a hint. `clear_accum` may be a run-time condition of the block.

    Raises GemmShapeMismatch when the shapes do not fit.
    """
    marks = (bool(transpose_A), bool(transpose_B))
    _product("T.gemm", (A, B, C), marks, int(policy), clear_accum, k_pack=int(k_pack) if k_pack != 1 else None)


def wgmma_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
) -> None:
    """`T.wgmma_gemm(A, B, C)`: `T.gemm` by Hopper's instructions for warpgroups, and by nothing else.

    The product is started; what comes after it runs beside it until `T.wait_wgmma`, or until something needs C or
    overwrites an operand: the compiler waits there by itself. Shapes, types and sums are those of `T.gemm`. On targets
    without these instructions it is `T.gemm`.

    Raises GemmShapeMismatch when the shapes do not fit; UnsupportedOnTarget, with the reason, for a product that wgmma
    cannot do on sm_90a.
    """
    marks = (bool(transpose_A), bool(transpose_B))
    _product("T.wgmma_gemm", (A, B, C), marks, int(policy), clear_accum, by_warpgroups=True)


def wait_wgmma(num_mma: int = 0) -> None:
    """`T.wait_wgmma(n)`: wait until at most the n newest products of the warpgroup are under way.

    `T.mbarrier_arrive` waits for all products, as others may overwrite their operands next; with `T.wait_wgmma(n)` right
    before it, it leaves n under way. InvalidArgument for n outside of 0 to 7.
    """
    if isinstance(num_mma, bool) or not isinstance(num_mma, int) or not 0 <= num_mma <= 7:
        raise InvalidArgument(
            "T.wait_wgmma: impossible number of products",
            found=repr(num_mma),
            expected="a number from 0 to 7 that is known at compile time",
            repair="T.wait_wgmma(0) waits for all",
        )
    from tilelang.ops.wait_wgmma import WaitWgmma

    builder = thread_level("T.wait_wgmma")
    builder.emit(WaitWgmma(num_mma).to_stmt(builder.span()))


def warpgroup_wait(num_mma: int = 0) -> None:
    """Same as `wait_wgmma`."""
    wait_wgmma(num_mma)


def warpgroup_arrive() -> None:
    """Before a `T.wgmma_gemm`, which by itself sees what the warpgroup has written to registers: nothing remains to do."""
    thread_level("T.warpgroup_arrive")


def warpgroup_commit_batch() -> None:
    """After a `T.wgmma_gemm`, each of which is a batch of its own: nothing remains to do."""
    thread_level("T.warpgroup_commit_batch")


def warpgroup_fence_operand(buffer: Any, *_: Any, **__: Any) -> None:
    """Around a `T.wgmma_gemm`, whose registers the compiler leaves alone while it runs: nothing remains to do."""
    thread_level("T.warpgroup_fence_operand")
    place("T.warpgroup_fence_operand", buffer, "the operand")


def _product(
    name: str, operands: Sequence[Any], transposed: tuple[bool, bool], policy: int, clear_accum: Any, **more: Any
) -> None:
    """Check and emit a product; `name` is what the user wrote."""
    transpose_A, transpose_B = transposed
    builder = tile_operator(name)
    regions = []
    for label, x in zip("ABC", operands):
        region = place(name, x, label)
        if isinstance(region, Element):
            raise InvalidArgument(
                f"{name}: {label} is one element",
                found=f"{region!r}",
                expected="a buffer or a region with its extents",
                repair=f"write {region.buffer.name}[i0:i1, j0:j1]",
            )
        regions.append((label, region))
    (m_a, k_a), (k_b, n_b), (m, n) = (_matrix_shape(letter, r) for letter, r in regions)
    if transpose_A:
        m_a, k_a = k_a, m_a
    if transpose_B:
        k_b, n_b = n_b, k_b
    shown = "; ".join(f"{r.buffer.name} {_show(r.extents)}" for _, r in regions)
    marks = [w for w, on in (("transpose_A", transpose_A), ("transpose_B", transpose_B)) if on]
    shown += f" with {', '.join(marks)}" if marks else ""
    for label, x, y, names in (
        ("K", k_a, k_b, ("K_A", "K_B")),
        ("M", m_a, m, ("M_A", "M_C")),
        ("N", n_b, n, ("N_B", "N_C")),
    ):
        if x != y:
            raise GemmShapeMismatch(
                f"{name} {label} shape check failed: {names[0]} = {x}, {names[1]} = {y}",
                found=shown,
                expected="A (M, K), B (K, N), C (M, N)",
                repair="mend the tiles' shapes, or use transpose_A / transpose_B for operands stored the other way",
            )
    _check_gemm_dtypes(regions)
    from tilelang.ops.gemm import Gemm

    clear = convert(as_value(clear_accum, DType("bool")), DType("bool")).node
    a, b, c = (r.node() for _, r in regions)
    op = Gemm(a, b, c, clear, transpose_A, transpose_B, policy, **more)
    builder.emit(op.to_stmt(builder.span()))


def _matrix_shape(name: str, region: Region) -> tuple[int, int]:
    extents = region.extents
    sizes = [simplify(e) for e in extents]
    if region.stepped:
        raise InvalidArgument(f"T.gemm: {name} is a region with a step", found=f"{region!r}", repair="copy it first")
    if len(sizes) < 2 or any(not isinstance(s, int) for s in sizes[-2:]) or any(s != 1 for s in sizes[:-2]):
        raise GemmShapeMismatch(
            f"T.gemm: {name} is no matrix of a fixed size",
            found=f"{region.buffer.name} with extents {_show(extents)}",
            expected="two dimensions known at compile time (leading ones of extent 1)",
            repair="copy the operand into a tile from T.alloc_shared or T.alloc_fragment",
        )
    return sizes[-2], sizes[-1]


def _check_gemm_dtypes(regions: list[tuple[str, Region]]) -> None:
    a, b, c = (r.dtype for _, r in regions)
    for x in (a, b, c):
        if x.lanes > 1 or x.kind == "bool":
            raise DtypeError("T.gemm of vector or bool elements", found=f"{x}", expected="numbers", repair="T.view")
    if c.is_float != a.is_float or c.is_float != b.is_float:
        raise DtypeError(
            "T.gemm mixes integers and floats",
            found=f"A {a}, B {b}, C {c}",
            expected="all floating, or all integers",
            repair="convert an operand first: T.copy into a tile of the other type, or T.Parallel with T.cast",
        )
