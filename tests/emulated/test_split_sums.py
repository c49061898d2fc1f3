"""Few tiles with long sums: blocks of a cluster that compute parts of a tile's sum give what one block gives, the checker needs
each of the barriers between them, and the report says why a sum stays whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tvm import tirx as tir

import tilelang
import tilelang.language as T
from tile_compiler.inspect import run_passes
from tile_compiler.rewrite import is_call, map_kernels, remake_loop
from tile_compiler.simt import split_sums
from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.errors import BarrierMismatch, SharedMemoryRace
from tile_compiler.simt.materialize_threads import materialize_threads
from tile_compiler.simt.operators.nests import run
from tile_compiler.simt.pipeline import CUDA as PASSES
from tile_compiler.targets.cuda import plugin
from tilelang.ir import tile_ir
from tilelang.target import parse

CUDA = "cuda -arch=sm_90a"
m_dynamic = T.dynamic("m")


def blocks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Sums are shared by so many blocks, whatever is gained."""
    monkeypatch.setattr(split_sums, "SIZES", {size: 16})
    monkeypatch.setattr(split_sums, "EXCHANGE_SECONDS", -1.0)


def product(m: Any, n: int, k: Any, step: Callable[..., None] = lambda *_: None, start: float = 0) -> Any:
    """C = max(A B + bias, 0) by tiles of 64 x 64 x 32; `step` comes behind each product."""

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        Bias: T.Tensor((n,), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.fill(c, start)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, i * 32], a)
                T.copy(B[i * 32, bx * 64], b)
                T.gemm(a, b, c)
                step(c, C)
            for i, j in T.Parallel(64, 64):
                c[i, j] = T.max(c[i, j] + Bias[bx * 64 + j], 0)
            T.copy(c, C[by * 64, bx * 64])

    return main


def said(kernel: Any) -> str:
    return "\n".join(note["text"] for note in kernel.report()["notes"])


def test_parts_of_unequal_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """9 steps by two blocks, and sizes that no tile divides: right in every order of asynchronous work, equal bits each time."""
    blocks(monkeypatch, 2)
    m, n, k = 72, 60, 280
    kernel = tilelang.compile(product(m, n, k), target=CUDA, execution="emulate")
    a, b, bias = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.randn(n)
    found = []
    for mode, seed in (("early", 0), ("late", 1), ("late", 2)):
        monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
        monkeypatch.setenv("TILELANG_EMULATE_SEED", str(seed))
        c = torch.full((m, n), torch.nan)
        kernel(a, b, bias, c)
        found.append(c)
    expected = (a.double() @ b.double() + bias.double()).relu()
    assert (found[0].double() - expected).abs().max() <= 1e-3
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    report = kernel.report()
    assert report["kernels"][0]["grid"] == ["2", "2"]
    assert not report["assumed"]
    assert "2 blocks of a cluster share the 9 steps of each of 2 tiles, the first adds c in order" in said(kernel)
    assert "one of 32 more brings tiles" in said(kernel)  # a producer warp, as in one block


def test_two_sums_of_integers_by_four_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """C = (A B) * (A D), to the bit; the blocks add shares of both, and bring each other the tile that all of them need."""
    blocks(monkeypatch, 4)

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "int8"),
        B: T.Tensor((64, 512), "int8"),
        D: T.Tensor((64, 512), "int8"),
        S: T.Tensor((64, 64), "int8"),
        C: T.Tensor((64, 64), "int32"),
    ):
        with T.Kernel(1, threads=128):
            scale = T.alloc_shared((64, 64), "int8")
            a = T.alloc_shared((64, 32), "int8")
            b = T.alloc_shared((64, 32), "int8")
            d = T.alloc_shared((64, 32), "int8")
            gate = T.alloc_fragment((64, 64), "int32")
            c = T.alloc_fragment((64, 64), "int32")
            T.copy(S, scale)
            T.clear(c)
            T.clear(gate)
            for i in T.Pipelined(16, num_stages=2):
                T.copy(A[0, i * 32], a)
                T.copy(B[0, i * 32], b)
                T.copy(D[0, i * 32], d)
                T.gemm(a, b, c, transpose_B=True)
                T.gemm(a, d, gate, transpose_B=True)
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] * gate[i, j] + scale[i, j]
            T.copy(c, C)

    kernel = tilelang.compile(main, target=CUDA, execution="emulate")
    a, b, d = (torch.randint(-3, 4, (64, 512)).to(torch.int8) for _ in range(3))
    s, c = torch.randint(-128, 127, (64, 64)).to(torch.int8), torch.zeros(64, 64, dtype=torch.int32)
    kernel(a, b, d, s, c)
    assert torch.equal(c, (a.int() @ b.int().T) * (a.int() @ d.int().T) + s.int())
    assert not kernel.report()["assumed"]
    assert "the first adds c, gate in order" in said(kernel)


def context(**options: Any) -> Any:
    return plugin.TARGET.context(parse(CUDA), options)


def split(func: Any, **options: Any) -> tuple[tile_ir.Kernel, str]:
    """The kernel behind the pass, and what it says."""
    ctx = context(**options)
    (kernel,) = tile_ir.kernels(split_sums.split_sums(materialize_threads(func, ctx), ctx))
    return kernel, "\n".join(text for _, text in ctx.report.notes)


def test_the_program_in_parts() -> None:
    """1 tile of 512 steps: the model takes the most blocks, of which each has 64 steps that begin at its rank's."""
    kernel, text = split(product(64, 64, 32 * 512))
    assert "us with 1," in text
    (block, count), (_, rows) = kernel.grid
    assert (int(count), int(rows)) == (8, 1)
    hint, bx, rank, first, *rest = tile_ir.statements(kernel.body)
    assert "cluster_dims" in str(hint)
    assert "[8, 1]" in str(hint)
    assert [str(s.value) for s in (bx, rank, first)] == ["block // 8", "block % 8", "rank * 64"]
    place = next(n for n, s in enumerate(rest) if isinstance(s, tir.For))
    assert int(rest[place].extent) == 64
    assert "A[by * 64:by * 64 + 64, (first + i) * 32:(first + i) * 32 + 32]" in str(rest[place].body)
    added, end = rest[place + 1 :]
    assert 'T.Call("tl.cluster_sum", [c[0:64, 0:64], rank], attrs={"blocks": 8}' in str(added)
    assert isinstance(end, tir.IfThenElse)
    assert str(end.condition) == "rank == 0"


def running_maximum() -> Any:
    """Attention's: each step scales what the steps before have added."""

    @T.prim_func
    def main(Q: T.Tensor((64, 64), "float16"), K: T.Tensor((4096, 64), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, 64), "float32")
            top = T.alloc_fragment((64,), "float32")
            T.copy(Q, q)
            T.clear(o)
            T.fill(top, -T.infinity("float32"))
            for i in T.Pipelined(64, num_stages=2):
                T.copy(K[i * 64, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                T.reduce_max(s, top, dim=1, clear=False)
                for x, y in T.Parallel(64, 64):
                    p[x, y] = T.exp(s[x, y] - top[x])
                T.gemm(p, k, o)
            T.copy(o, O)

    return main


def left_behind(counted: bool) -> Any:
    """The tile of the last step is stored, or how many steps there were."""

    @T.prim_func
    def main(A: T.Tensor((64, 4096), "float16"), C: T.Tensor((64, 64), "float32"), L: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            steps = T.alloc_var("int32", init=0)
            T.clear(c)
            for i in T.Pipelined(64, num_stages=2):
                T.copy(A[0, i * 64], a)
                T.gemm(a, a, c, transpose_B=True)
                if counted:
                    steps += 1
            if not counted:
                T.copy(a, L)
            for i, j in T.Parallel(64, 64):
                C[i, j] = c[i, j] * steps

    return main


LONG = 32 * 512
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "maximum": (running_maximum, "top hangs on the step before"),
    "variable": (lambda: left_behind(True), "steps hangs on the step before"),
    "last tile": (lambda: left_behind(False), "a of the last step is used behind it"),
    "start": (lambda: product(64, 64, LONG, start=1), "c does not start from 0"),
    "stores": (lambda: product(64, 64, LONG, lambda c, C: T.copy(c, C)), "C is written in each step"),
    "scaled": (
        lambda: product(64, 64, LONG, lambda c, C: T.reduce_sum(c, T.alloc_fragment((64,), "float32"), dim=1)),
        "no product of it adds to a fragment that nothing else in the loop names",
    ),
    "short": (lambda: product(64, 64, 32 * 8), "no gain of 15% predicted"),
    "many tiles": (
        lambda: product(64 * 8, 64 * 20, LONG),
        "160 tiles for 132 multiprocessors, 39% of them idle over 2 waves",
    ),
    "dynamic": (lambda: product(m_dynamic, 64, LONG), "how many tiles there are is known at the call alone"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_report_says_why_a_sum_stays_whole(name: str) -> None:
    make, text = REFUSED[name]
    kernel, found = split(make())
    assert text in found
    assert not any("cluster_sum" in str(s) for s in tile_ir.statements(kernel.body))


def test_a_switch_keeps_sums_whole() -> None:
    kernel, found = split(product(64, 64, LONG), **{"tl.disable_split_sums": True})
    assert "tl.disable_split_sums asks for it" in found
    assert int(kernel.grid[0][1]) == 1


EARLY = "a block may end while another block of its cluster still uses its shared memory"


@pytest.mark.parametrize(("size", "found"), [(2, ["c_parts", EARLY]), (8, ["c_parts", "c_parts", EARLY])])
def test_the_checker_needs_the_barriers_of_the_cluster(
    size: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are read before they are written, shares before they are added, or a block may be gone. Eight blocks are too many to
    be walked at once: pairs are."""
    func, ctx = checked(size, monkeypatch)
    for which, text in enumerate(found):
        with pytest.raises(SharedMemoryRace, match=text):
            check_synchronization(without_barrier(func, which), ctx)
    assumed = "the blocks of a cluster do to each other what those numbered 0, 1, 7 do"
    assert [text.endswith(assumed) for text in ctx.report.assumed] == ([True] if size == 8 else [])


def test_the_checker_lets_producers_end_before_a_barrier_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the loop it would wait for a producer that waits for those who stand at it."""
    func, ctx = checked(2, monkeypatch)
    with pytest.raises(BarrierMismatch):
        check_synchronization(map_kernels(func, barrier_in_loop), ctx)


def checked(size: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A product in parts as the checker sees it, which finds nothing."""
    blocks(monkeypatch, size)
    ctx = context()
    _, trace = run_passes(product(64, 64, 32 * 4 * size), PASSES, ctx)
    return next(s.after for s in trace.steps if s.name == "check_synchronization"), ctx


def without_barrier(func: Any, which: int) -> Any:
    met: list[Any] = []

    def rule(node: tir.Evaluate) -> Any:
        if is_call(node.value, "tirx.call_extern") and str(node.value.args[0].value) == "tl::cluster_sync":
            met.append(node)
            return tir.Evaluate(tir.const(0, "int32")) if len(met) - 1 == which else node
        return node

    return func.with_body(tile_ir.map_nodes(func.body, (tir.Evaluate, rule)))


def barrier_in_loop(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
    def rule(node: tir.For) -> Any:
        if node.kind != tir.ForKind.SERIAL or "tl::wgmma_m64" not in str(node):
            return node
        return remake_loop(node, body=tile_ir.sequence([run("tl::cluster_sync"), *tile_ir.statements(node.body)]))

    body = tile_ir.map_nodes(kernel.body, (tir.For, rule))
    return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)
