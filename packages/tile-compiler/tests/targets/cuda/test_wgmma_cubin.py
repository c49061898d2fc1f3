"""What ptxas makes of products by warpgroups: nothing serialized, nothing spilled, descriptors by uniform additions."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilelang
import tilelang.language as T
from tile_compiler.cfamily.dialect import CUDA as DIALECT
from tile_compiler.cfamily.launches import kernel_launches
from tile_compiler.cfamily.printer import print_source
from tile_compiler.compile import lower
from tile_compiler.errors import SlowDeviceCode
from tile_compiler.inspect import run_passes
from tile_compiler.signature import signature_of
from tile_compiler.simt.arch import arch_of
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.debug_tables import DEBUG
from tile_compiler.simt.device_text import device_text
from tile_compiler.simt.pipeline import CUDA
from tile_compiler.targets.cuda.arch import cuda_arch
from tile_compiler.targets.cuda.plugin import CudaTarget, headers, spills_for_company
from tile_compiler.targets.cuda.slow_code import warn_of_slow_code
from tile_runtime_cuda.build import build
from tile_runtime_cuda.notes import Note
from tilelang.target import parse


def gemm(m: int, n: int, k: int, threads: int, trans: tuple[bool, bool], stages: int, dtype: str = "float16") -> Any:
    size = 1024
    shape_a, shape_b = ((k, m) if trans[0] else (m, k)), ((n, k) if trans[1] else (k, n))

    @T.prim_func
    def product(
        A: T.Tensor((size, size), dtype), B: T.Tensor((size, size), dtype), C: T.Tensor((size, size), "float32")
    ):
        with T.Kernel(T.ceildiv(size, n), T.ceildiv(size, m), threads=threads) as (bx, by):
            a = T.alloc_shared(shape_a, dtype)
            b = T.alloc_shared(shape_b, dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for step in T.Pipelined(size // k, num_stages=stages):
                if trans[0]:
                    T.copy(A[step * k, by * m], a)
                else:
                    T.copy(A[by * m, step * k], a)
                if trans[1]:
                    T.copy(B[bx * n, step * k], b)
                else:
                    T.copy(B[step * k, bx * n], b)
                T.gemm(a, b, c, transpose_A=trans[0], transpose_B=trans[1])
            T.copy(c, C[by * m, bx * n])

    return product


def text(func: Any) -> str:
    final, _ = run_passes(func, CUDA, SimtContext(arch=arch_of("sm_90a")))
    return print_source([launch.kernel for launch in kernel_launches(final, signature_of(func, final))], DIALECT)


def compiled(source: str) -> bytes:
    """The cubin, of which ptxas has nothing to say: no spills, no stack, nothing serialized."""
    built = build(source, arch="sm_90a", headers=headers())
    for used in built.resources.values():
        assert used["spills"] == used["stack"] == 0
    assert built.notes == ()
    return built.data


def between_products(listing: str) -> list[str]:
    """The instructions from the first matrix instruction to the last."""
    names = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)", listing, flags=re.M)
    places = [n for n, name in enumerate(names) if "GMMA" in name]
    return names[places[0] : places[-1] + 1]


@pytest.mark.parametrize("trans", [(False, False), (True, True)], ids=["nn", "tt"])
@pytest.mark.parametrize("stages", [0, 3])
@pytest.mark.parametrize(("tile", "threads"), [((128, 256, 64), 256), ((128, 128, 32), 128)])
def test_products_run_beside_each_other(tile: Any, threads: int, trans: Any, stages: int, listing: Any) -> None:
    body = between_products(listing(compiled(text(gemm(*tile, threads, trans, stages))), "-c"))
    products = [n for n in body if "GMMA" in n]
    if not stages:  # the loop is unrolled, and its copies stand between
        return
    assert len(products) == tile[2] // 16 * (tile[0] * 128 // threads // 64)
    # The descriptor of A and that of B: an addition to the low word and a constant high word each.
    assert len(body) <= 6 * len(products)
    assert not any(n.startswith(("R2UR", "SHFL", "IMAD", "MOV")) for n in body)


@T.prim_func
def persistent(
    A: T.Tensor((4096, 2048), "float16"), B: T.Tensor((2048, 4096), "float16"), C: T.Tensor((4096, 4096), "float16")
):
    with T.Kernel(132, threads=256) as block:
        a = T.alloc_shared((128, 64), "float16")
        b = T.alloc_shared((64, 256), "float16")
        c = T.alloc_fragment((128, 256), "float32")
        for by, bx in T.Persistent([32, 16], wave_size=132, index=block):
            T.clear(c)
            for k in T.Pipelined(32, num_stages=4):
                T.copy(A[by * 128, k * 64], a)
                T.copy(B[k * 64, bx * 256], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, bx * 256])


def test_blocks_that_stay_load_the_next_tile_while_they_store(listing: Any) -> None:
    """Nothing that a producer waits for hangs on the stores: its loop over tiles has loads alone."""
    source = text(persistent)
    consumers, producer = source.split("tl::register_limit_decrease")
    assert "for (int wave" in consumers
    assert "C[" in consumers
    assert "for (int wave" in producer
    assert "C[" not in producer
    assert set(re.findall(r"tl::(\w+)", producer)) == {"mbarrier_wait", "mbarrier_arrive_expect_tx", "tma_load"}
    body = between_products(listing(compiled(source), "-c"))
    assert not any(n.startswith(("R2UR", "SHFL", "IMAD", "MOV")) for n in body)


@T.prim_func
def gradients(
    K: T.Tensor((128, 128), "float16"),
    V: T.Tensor((128, 128), "float16"),
    Q: T.Tensor((1024, 128), "float16"),
    dO: T.Tensor((1024, 128), "float16"),
    dK: T.Tensor((128, 128), "float32"),
    dV: T.Tensor((128, 128), "float32"),
):
    with T.Kernel(1, threads=256):
        k, v = (T.alloc_shared((128, 128), "float16") for _ in range(2))
        q, do = (T.alloc_shared((64, 128), "float16") for _ in range(2))
        scores, slopes = (T.alloc_fragment((128, 64), "float32") for _ in range(2))
        weights, rounded = (T.alloc_fragment((128, 64), "float16") for _ in range(2))
        of_keys, of_values = (T.alloc_fragment((128, 128), "float32") for _ in range(2))
        T.copy(K, k)
        T.copy(V, v)
        T.clear(of_keys)
        T.clear(of_values)
        for step in T.Pipelined(16, num_stages=2):
            T.copy(Q[step * 64, 0], q)
            T.gemm(k, q, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            T.copy(dO[step * 64, 0], do)
            T.gemm(v, do, slopes, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            for i, j in T.Parallel(128, 64):
                scores[i, j] = T.exp2(scores[i, j])
            T.copy(scores, weights)
            T.gemm(weights, do, of_values, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(128, 64):
                slopes[i, j] *= scores[i, j]
            T.copy(slopes, rounded)
            T.gemm(rounded, q, of_keys, policy=T.GemmWarpPolicy.FullRow)
        T.copy(of_keys, dK)
        T.copy(of_values, dV)


def test_products_that_are_waited_for_an_iteration_later_are_not_serialized() -> None:
    """224 registers of tiles in each thread. With the wait under a condition ptxas gave up (C7512)."""
    source = text(gradients)
    loop = source.split("for (int step = 0")[1]
    assert loop.index("wgmma_wait<1>") < loop.index("if (step > 0)") < loop.index("wgmma_wait<0>")
    compiled(source)


def test_the_log_tells_of_products_that_cannot() -> None:
    """The note has the line of the text that the loop's first statement is on."""
    source = text(gemm(128, 128, 64, 256, (False, False), 0))
    broken = source.replace("  tl::wgmma_commit();", "  C_l[0] *= 2.0f;\n tl::wgmma_commit();".replace("C_l", "c"))
    assert broken != source
    (note,) = build(broken, arch="sm_90a", headers=headers()).notes
    assert (note.code, note.symbol) == ("C7515", "product_kernel")
    assert "serialized" in note.text
    assert "in line" not in note.text
    lines = broken.splitlines()
    assert next(n for n, line in enumerate(lines, 1) if "for (int step" in line) <= note.line <= len(lines)


@T.prim_func
def spilling(A: T.Tensor((256, 256), "float32"), C: T.Tensor((256, 256), "float32")):
    """512 elements in each of 128 threads, all of which are needed twice."""
    with T.Kernel(1, threads=128):
        c = T.alloc_fragment((256, 256), "float32")
        most = T.alloc_fragment((256,), "float32")
        T.copy(A, c)
        T.reduce_max(c, most, dim=1)
        for i, j in T.Parallel(256, 256):
            c[i, j] = c[i, j] / most[i]
        T.copy(c, C)


def test_spills_are_a_warning_with_the_kernels_line() -> None:
    with pytest.warns(SlowDeviceCode, match=r"\[TL210\] spilling_kernel: ptxas spills \d+ bytes of registers") as found:
        kernel = tilelang.compile(spilling, target="cuda -arch=sm_90a")
    (warning,) = found
    lines = Path(__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "T.Kernel(1, threads=128)" in text)
    assert f"{Path(__file__).name}:{line}" in str(warning.message)
    assert "smaller tiles" in str(warning.message)
    (note,) = [n for n in kernel.report()["notes"] if "spills" in n["text"] and "ptxas" in n["text"]]
    assert note["at"].endswith(f"{Path(__file__).name}:{line}")


@pytest.mark.parametrize(
    ("crowded", "roomy"),
    [({"spills": 80, "stack": 0}, {}), ({"spills": 0, "stack": 8}, {}), ({"spills": 0, "stack": 16}, {"stack": 16})],
    ids=["spilled registers", "registers saved for a call", "an array with indices of run time"],
)
def test_registers_are_not_spilled_for_more_blocks_at_once(
    monkeypatch: pytest.MonkeyPatch, crowded: dict[str, int], roomy: dict[str, int]
) -> None:
    """A kernel whose threads could have the registers is compiled for one block on a multiprocessor, if that ends it."""
    sources: list[str] = []

    def build(source: str, arch: Any, ctx: Any) -> Any:
        sources.append(source)
        first = "__launch_bounds__(256)" in source
        none = {"spills": 0, "stack": 0, "shared": 0}
        used = {**none, "registers": 72, **crowded} if first else {**none, "registers": 107, **roomy}
        return SimpleNamespace(
            resources={"product_kernel": used}, notes=[], data=b"", log="", min_driver=None, compiler="none"
        )

    monkeypatch.setattr(CudaTarget, "_cubin", staticmethod(build))
    module = lower(gemm(128, 128, 64, 256, (False, False), 0), parse("cuda -arch=sm_80"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", SlowDeviceCode)
        built = module.built()
    first, second = sources
    assert first.replace("__launch_bounds__(256)", "__launch_bounds__(256, 1)") == second
    assert built.texts["cuda"] == (first if roomy else second)
    assert module.context.report.kernels[0]["registers"] == (72 if roomy else 107)
    assert bool(roomy) == any("keeps 16 bytes of local arrays" in str(w.message) for w in said)
    kept = "spilled 80 bytes" if crowded["spills"] else f"kept {crowded['stack']} bytes in memory"
    assert any(f"compiled again, as ptxas {kept}" in text for _, text in module.context.report.notes)


@pytest.mark.parametrize(
    ("registers", "min_blocks"), [(255, None), (72, 1)], ids=["no registers left", "asked for one block"]
)
def test_other_spills_stay_as_they_are(registers: int, min_blocks: int | None) -> None:
    launch: Any = SimpleNamespace(kernel=SimpleNamespace(num_threads=128, min_blocks=min_blocks))
    assert not spills_for_company(launch, {"registers": registers, "spills": 80}, cuda_arch("sm_80"))


@pytest.mark.parametrize("prints", [False, True])
def test_the_arguments_of_a_print_are_no_local_arrays(prints: bool) -> None:
    @T.prim_func
    def copy(A: T.Tensor((128,), "float32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((128,), "float32")
            T.copy(A, a)
            if prints:
                T.print(a, msg="all of it")
            T.copy(a, C)

    module = lower(copy, parse("cuda -arch=sm_80"))
    launches = kernel_launches(module.func, module.signature)
    cubin = SimpleNamespace(resources={"copy_kernel": {"spills": 0, "stack": 16}}, notes=[])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_slow_code(module.func, launches, cubin, b'{"files": [], "lines": []}', module.context)
    assert ["keeps 16 bytes of local arrays" in str(w.message) for w in found] == ([] if prints else [True])


def test_a_note_is_a_warning_with_the_statements_line() -> None:
    """Lines of the text become the user's by the artifact's own table."""
    func = gemm(128, 128, 64, 256, (False, False), 0)
    final, _ = run_passes(func, CUDA, ctx := SimtContext(arch=arch_of("sm_90a")))
    launches = kernel_launches(final, signature_of(func, final))
    source, members = device_text(final, launches, DIALECT, ctx, "kernel.cu", None)
    debug = next(data for name, _, data in members if name == DEBUG)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "tl::wgmma_m64" in text)
    cubin = SimpleNamespace(resources={}, notes=[Note("C7510", "products are serialized", "product_kernel", line)])
    with pytest.warns(SlowDeviceCode) as found:
        warn_of_slow_code(final, launches, cubin, debug, ctx)
    user = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "T.gemm(a, b, c" in text)
    assert f"ptxas (C7510): products are serialized\n  --> {__file__}:{user}\n" in str(found[0].message)
