"""SIMT IR built by hand: what lowering will produce, small enough to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir
from tvm import tirx as tir
from tvm.tirx import AllocBuffer, Bind, BufferStore, Evaluate, For, ForKind, IfThenElse, Ramp, SeqStmt

from tile_compiler.cfamily.printer import KernelInput
from tilelang.ir import tile_ir

UNROLLED = ForKind.UNROLLED
Load = tir.BufferLoad


tile_ir_walk = tile_ir.walk


def number(value: int) -> Any:
    return tir.const(value, "int32")


def var(name: str, dtype: str = "int32") -> Any:
    return tir.Var(name, dtype)


def buffer(name: str, shape: Any, dtype: str = "float32", scope: str = "global", strides: Any = None) -> Any:
    return tir.decl_buffer(shape, dtype, name=name, scope=scope, strides=strides, layout=None)


def local(name: str, size: int, dtype: str = "float32") -> Any:
    return buffer(name, (size,), dtype, "local")


def row(base: Any, lanes: int) -> Any:
    return Ramp(base, number(1), lanes)


def call(name: str, *args: Any, dtype: str = "void") -> Any:
    return tir.call_extern(dtype, name, *args)


def do(name: str, *args: Any) -> Any:
    return Evaluate(call(name, *args))


def at(buf: Any, *indices: Any) -> Any:
    """The address of an element."""
    return tir.address_of(Load(buf, list(indices)))


def loop(extent: Any, body: Callable[[Any], Any], name: str = "i", kind: Any = ForKind.SERIAL, low: Any = 0) -> Any:
    v = var(name)
    return For(v, low, extent, kind, body(v))


def origin(text: str, body: Any) -> Any:
    return tir.AttrStmt(number(0), "tl.origin", ir.StringImm(text), body)


def shared(buf: Any, offset: int) -> Any:
    return AllocBuffer(buf, {"tl.offset": offset})


def kernel(body: Any, params: Any = (), scalars: Any = (), **more: Any) -> KernelInput:
    """A KernelInput of 128 threads; `more` are further fields of it."""
    given: dict[str, Any] = {"symbol": "test_kernel", "grid": (), "threads": ((var("tx"), number(128)),), **more}
    return KernelInput(params=tuple(params), scalars=tuple(scalars), body=body, **given)


def vector_add(n: Any, dtype: str = "float32", lanes: int = 4) -> KernelInput:
    """C[i] = A[i] + B[i], `lanes` at a time."""
    a, b, c = (buffer(name, (n,), dtype) for name in "ABC")
    bx, tx = var("bx"), var("tx")
    i = var("i")
    place = [row(i, lanes)]
    body = SeqStmt(
        [
            Bind(i, (bx * 128 + tx) * lanes),
            IfThenElse(i < n, BufferStore(c, Load(a, place) + Load(b, place), place), None),
        ]
    )
    scalars = () if isinstance(n, int) else (n,)
    blocks = tir.floordiv(n + 128 * lanes - 1, number(128 * lanes))
    return KernelInput(
        "add_kernel",
        (a, b, c),
        scalars,
        ((bx, blocks),),
        ((tx, number(128)),),
        body,
        nothing_negative=frozenset(scalars),
    )


def gemm(k: int = 4096, n: int = 4096, stages: int = 3) -> tuple[KernelInput, int]:
    """C = A @ B (f16, sums in f32), tiles of 128 x 128 x 32 with cp.async, ldmatrix and mma; and its shared bytes."""
    bm, bn, bk = 128, 128, 32
    m = var("M")
    a, b, c = buffer("A", (m, k), "float16"), buffer("B", (k, n), "float16"), buffer("C", (m, n), "float16")
    a_shared = buffer("A_shared", (stages * bm * bk,), "float16", "shared.dyn")
    b_shared = buffer("B_shared", (stages * bk * bn,), "float16", "shared.dyn")
    acc, a_frag, b_frag = local("C_local", 128), local("A_local", 32, "float16"), local("B_local", 32, "float16")
    bx, by, tx, wm, wn = var("bx"), var("by"), var("tx"), var("warp_m"), var("warp_n")

    def a_place(stage: Any, r: Any, col: Any) -> Any:
        chunk = tir.floordiv(col, 8) ^ tir.floormod(tir.floordiv(r, 2), 4)
        return stage * (bm * bk) + r * bk + chunk * 8 + tir.floormod(col, 8)

    def b_place(stage: Any, r: Any, col: Any) -> Any:
        chunk = tir.floordiv(col, 8) ^ tir.floormod(r, 8)
        return stage * (bk * bn) + r * bn + chunk * 8 + tir.floormod(col, 8)

    def copies(ko: Any, stage: Any) -> Any:
        def copy_a(q: Any) -> Any:
            t = q * 128 + tx
            r, col = tir.floordiv(t, 4), tir.floormod(t, 4) * 8
            valid = by * bm + r < m
            return do(
                "tl::cp_async<16>", at(a_shared, a_place(stage, r, col)), at(a, by * bm + r, ko * bk + col), valid
            )

        def copy_b(q: Any) -> Any:
            t = q * 128 + tx
            r, col = tir.floordiv(t, 16), tir.floormod(t, 16) * 8
            place = at(b_shared, b_place(stage, r, col))
            return do("tl::cp_async<16>", place, at(b, ko * bk + r, bx * bn + col), tir.const(True, "bool"))

        return SeqStmt(
            [
                origin("T.copy(A[by * 128, ko * 32], A_shared)  # line 12", loop(4, copy_a, "i", UNROLLED)),
                origin("T.copy(B[ko * 32, bx * 128], B_shared)  # line 13", loop(4, copy_b, "i", UNROLLED)),
                do("tl::cp_async_commit"),
            ]
        )

    def products(stage: Any) -> Any:
        lane_row, lane_col = tir.floormod(tx, 16), tir.floordiv(tir.floormod(tx, 32), 16) * 8

        def step(kk: Any) -> Any:
            def a_load(i: Any) -> Any:
                place = a_place(stage, wm * 64 + i * 16 + lane_row, kk * 16 + lane_col)
                return do("tl::ldmatrix_x4", at(a_frag, i * 8), at(a_shared, place))

            def b_load(j: Any) -> Any:
                place = b_place(stage, kk * 16 + lane_row, wn * 64 + j * 16 + lane_col)
                return do("tl::ldmatrix_x4_trans", at(b_frag, j * 8), at(b_shared, place))

            def multiply(i: Any) -> Any:
                def one(j: Any) -> Any:
                    return do(
                        "tl::mma_m16n8k16_f32_f16", at(acc, (i * 8 + j) * 4), at(a_frag, i * 8), at(b_frag, j * 4)
                    )

                return loop(8, one, "j", UNROLLED)

            return SeqStmt(
                [loop(4, a_load, "i", UNROLLED), loop(4, b_load, "j", UNROLLED), loop(4, multiply, "i", UNROLLED)]
            )

        return origin("T.gemm(A_shared, B_shared, C_local)  # line 14", loop(2, step, "kk", UNROLLED))

    def body(ko: Any) -> Any:
        ahead = ko + (stages - 1)
        load = IfThenElse(ahead < k // bk, copies(ahead, tir.floormod(ahead, stages)), do("tl::cp_async_commit"))
        wait = do(f"tl::cp_async_wait<{stages - 2}>")
        return SeqStmt([wait, do("tl::sync_threads"), load, products(tir.floormod(ko, stages))])

    def epilogue(i: Any) -> Any:
        def columns(j: Any) -> Any:
            def halves(h: Any) -> Any:
                r = by * bm + wm * 64 + i * 16 + h * 8 + tir.floordiv(tir.floormod(tx, 32), 4)
                col = bx * bn + wn * 64 + j * 8 + tir.floormod(tx, 4) * 2
                value = tir.Cast("float16x2", Load(acc, [row((i * 8 + j) * 4 + h * 2, 2)]))
                return IfThenElse(r < m, BufferStore(c, value, [r, row(col, 2)]), None)

            return loop(2, halves, "h", UNROLLED)

        return loop(8, columns, "j", UNROLLED)

    statements = [
        shared(a_shared, 0),
        shared(b_shared, stages * bm * bk * 2),
        *(AllocBuffer(x) for x in (acc, a_frag, b_frag)),
        Bind(wm, tir.floordiv(tx, 64)),
        Bind(wn, tir.floormod(tir.floordiv(tx, 32), 2)),
        origin(
            "T.clear(C_local)  # line 10",
            loop(128, lambda i: BufferStore(acc, tir.FloatImm("float32", 0.0), [i]), "i", UNROLLED),
        ),
        *(copies(number(s), number(s)) for s in range(stages - 1)),
        loop(k // bk, body, "ko"),
        origin("T.copy(C_local, C[by * 128, bx * 128])  # line 15", loop(4, epilogue, "i", UNROLLED)),
    ]
    made = KernelInput(
        "gemm_kernel",
        (a, b, c),
        (m,),
        ((bx, number(n // bn)), (by, tir.floordiv(m + bm - 1, number(bm)))),
        ((tx, number(128)),),
        SeqStmt(statements),
        nothing_negative=frozenset((m,)),
    )
    return made, stages * (bm * bk + bk * bn) * 2
