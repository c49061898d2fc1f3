"""Variants of a kernel, chosen by guards at the launch: whole tiles, whole rows, and whatever a call may bring.

The generated CUDA text runs in the emulator, which finds misaligned vectors and accesses outside of a tensor; results
are compared with float64.
"""

from __future__ import annotations

import mmap
import os
import re
from typing import Any

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tile_runtime.artifact import Artifact
from tile_runtime.expression import evaluate
from tile_runtime.manifest import Manifest
from tilelang.kernel import build
from tilelang.options import PassConfigKey, make_options
from tilelang.target import Target

SM_80 = "cuda -arch=sm_80"


def matmul(m: Any, n: Any, k: Any, block: tuple[int, int, int] = (32, 32, 16), threads: int = 32) -> Any:
    bm, bn, bk = block

    @T.prim_func
    def gemm(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            a, b = T.alloc_shared((bm, bk), "float16"), T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=2):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return gemm


def emulated(func: Any, **options: Any) -> Any:
    return tilelang.compile(func, target=SM_80, execution="emulate", **options)


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: torch.from_numpy(rng.uniform(-1, 1, shape).astype(np.float16))  # noqa: E731
    return draw(m, k), draw(k, n), torch.full((m, n), float("nan"))


def agrees(kernel: Any, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    kernel(a, b, c)
    np.testing.assert_allclose(c.numpy(), a.double().numpy() @ b.double().numpy(), rtol=1e-5, atol=1e-4)


def shifted(tensor: torch.Tensor, elements: int = 1) -> torch.Tensor:
    """A contiguous copy whose address is `elements` past a multiple of 64 bytes."""
    memory = torch.empty(tensor.numel() + 128, dtype=tensor.dtype)
    start = -memory.data_ptr() % 64 // tensor.element_size() + elements
    view = memory[start : start + tensor.numel()].view(tensor.shape)
    return view.copy_(tensor)


@pytest.fixture(scope="module")
def dynamic() -> Any:
    return emulated(matmul(T.dynamic("m"), T.dynamic("n"), T.dynamic("k")))


@pytest.mark.parametrize(("shape", "variants"), [((64, 32, 48), 1), ((40, 24, 40), 2), ((33, 17, 21), 3)])
def test_each_level_is_compiled_when_a_call_needs_it(dynamic: Any, shape: tuple[int, int, int], variants: int) -> None:
    agrees(dynamic, *operands(*shape))
    assert len(dynamic.manifest.variants) == variants


def test_all_levels_together_serve_every_call(dynamic: Any) -> None:
    for seed, shape in enumerate([(33, 17, 21), (64, 32, 48), (1, 8, 8), (32, 32, 16), (31, 64, 16), (64, 33, 16)]):
        agrees(dynamic, *operands(*shape, seed))
    assert len(dynamic.manifest.variants) == 3


def test_misaligned_tensors_take_the_general_variant() -> None:
    kernel = emulated(matmul(32, 32, 32))
    agrees(kernel, *operands(32, 32, 32))
    assert len(kernel.manifest.variants) == 1
    a, b, c = operands(32, 32, 32, seed=1)
    agrees(kernel, shifted(a), shifted(b, 3), shifted(c))
    assert [v.guard is None for v in kernel.manifest.variants] == [False, True]
    agrees(kernel, *operands(32, 32, 32, seed=2))


def added(lane_bytes: int, count: int) -> Any:
    dtype = {2: "float16", 4: "float32"}[lane_bytes]
    add = {2: T.atomic_addx2, 4: T.atomic_addx4}[count]

    @T.prim_func
    def added(A: T.Tensor((64 * count,), dtype), S: T.Tensor((64 * count,), dtype)):
        with T.Kernel(3, threads=64):
            for i in T.Parallel(64):
                add(S[i * count], A[i * count])

    return added


@pytest.mark.parametrize(
    ("target", "lane_bytes", "count"),
    [("cuda -arch=sm_80", 2, 2), ("cuda -arch=sm_90a", 4, 4), ("hip -mcpu=gfx90a", 2, 2), ("hip -mcpu=gfx942", 2, 2)],
)
def test_atomics_on_several_neighbours_need_their_alignment(target: str, lane_bytes: int, count: int) -> None:
    """An address that is aligned to one element takes single additions; every order gives the same integers."""
    kernel = tilelang.compile(added(lane_bytes, count), target=target, execution="emulate")
    values = np.random.default_rng(0).integers(-9, 10, 64 * count)
    a = torch.from_numpy(values.astype(f"f{lane_bytes}"))
    for number, place in enumerate([torch.zeros_like, lambda x: shifted(torch.zeros_like(x))], 1):
        s = place(a)
        kernel(a, s)
        np.testing.assert_array_equal(s.double().numpy(), 3.0 * values)
        assert len(kernel.manifest.variants) == number
    assert [v.guard is None for v in kernel.manifest.variants] == [False, True]
    assert f"tl::atomic_add_x{count}(" in kernel.get_kernel_source()


def test_prepare_fixes_the_variant_and_still_refuses_nothing() -> None:
    kernel = emulated(matmul(32, 32, 32))
    a, b, c = operands(32, 32, 32)
    misaligned = shifted(a)
    call = kernel.prepare(misaligned, b, c)  # compiles what this call needs
    assert len(kernel.manifest.variants) == 2
    for first in (misaligned, a):
        call(first, b, c)
        np.testing.assert_allclose(c.numpy(), a.double().numpy() @ b.double().numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("pitch", [48, 41])
def test_odd_strides(pitch: int) -> None:
    """Rows of a wider matrix: 16-byte pieces only where the pitch is a multiple of 8 elements."""
    m, n, row = T.dynamic("m"), T.dynamic("n"), T.dynamic("row")

    @T.prim_func
    def double(A: T.StridedTensor((m, n), (row, 1), "float16"), B: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(m, 16), T.ceildiv(n, 32), threads=32) as (bx, by):
            tile = T.alloc_shared((16, 32), "float16")
            T.copy(A[bx * 16, by * 32], tile)
            for i, j in T.Parallel(16, 32):
                B[bx * 16 + i, by * 32 + j] = tile[i, j] * T.float16(2)

    memory = torch.from_numpy(np.random.default_rng(3).uniform(-1, 1, (21, pitch)).astype(np.float16))
    a = memory[:, :40]
    b = torch.full((21, 40), float("nan"), dtype=torch.float16)
    emulated(double)(a, b)
    assert torch.equal(b, a + a)


def test_an_exported_kernel_holds_every_variant(tmp_path: Any) -> None:
    kernel = tilelang.compile(matmul(T.dynamic("m"), T.dynamic("n"), T.dynamic("k")), target=SM_80)
    assert len(kernel.manifest.variants) == 1
    kernel.export(tmp_path / "gemm.tile")
    assert len(kernel.manifest.variants) == 1  # the kernel itself stays as it was
    from tile_runtime import registry
    from tile_runtime.artifact import Artifact

    artifact = Artifact.load(tmp_path / "gemm.tile")
    assert [v.guard is None for v in artifact.manifest.variants] == [False, False, True]
    everywhere = registry.device("cpu").emulate(artifact)
    for shape in [(64, 32, 48), (40, 24, 40), (33, 17, 21)]:
        agrees(everywhere, *operands(*shape))


def test_the_report_speaks_of_every_variant(tmp_path: Any) -> None:
    """Each with the calls that it serves and what it takes of the chip; those that no call has needed, on request."""
    kernel = tilelang.compile(matmul(T.dynamic("m"), T.dynamic("n"), T.dynamic("k")), target=SM_80)
    first, report = kernel.report(), kernel.report(every_variant=True)
    assert [v["calls"] for v in first["variants"]] == [report["variants"][0]["calls"]]
    served = [v["calls"] for v in report["variants"]]
    assert served[0].startswith("k % 16 == 0 and n % 32 == 0 and m % 32 == 0 and address(A) % 16 == 0")
    assert served[1].startswith("k % 8 == 0 and n % 8 == 0")
    assert served[2] is None
    figures = [variant["kernels"][0] for variant in report["variants"]]
    assert figures[0] == report["kernels"][0]
    assert figures[0]["registers"] < figures[2]["registers"]
    for used in figures:
        assert used["spills"] == 0
        assert used["shared_bytes"] == figures[0]["shared_bytes"]
        assert used["occupancy"]["blocks"] > 0
    copies = [next(o for o in used["operators"] if o["operator"] == "T.copy") for used in figures]
    assert [copy["widths"]["A"] for copy in copies] == [16, 16, 2]

    assert "other calls: compiled when one comes" in str(first)
    text = str(report)
    assert "variant 3, for all other calls:\ngemm_kernel: grid" in text
    assert "other calls" not in text.replace("for all other calls:", "")
    for used in figures:
        assert f"{used['registers']} registers, no spills" in text

    kernel.export(tmp_path / "gemm.tile")
    resources = tilelang.load(tmp_path / "gemm.tile").manifest.resources
    assert [used["registers"] for used in resources.values()] == [used["registers"] for used in figures]


def test_a_named_variant_stays_alone() -> None:
    from tile_runtime.errors import NoVariantError

    func = matmul(T.dynamic("m"), T.dynamic("n"), T.dynamic("k"))
    rows = emulated(func, pass_configs={PassConfigKey.TL_VARIANT: 1})
    agrees(rows, *operands(40, 24, 40))
    with pytest.raises(NoVariantError, match=r"gemm was not compiled for m = 33, k = 21, n = 17"):
        rows(*operands(33, 17, 21))


def test_promises_of_the_user_are_no_part_of_the_guard() -> None:
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def copy(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(m, 8), T.ceildiv(n, 32), threads=32) as (bx, by):
            T.assume(n % 32 == 0)
            T.assume(m % 8 == 0)
            tile = T.alloc_shared((8, 32), "float32")
            T.copy(A[bx * 8, by * 32], tile)
            T.copy(tile, B[bx * 8, by * 32])

    kernel = emulated(copy)
    assert "dim" not in str(kernel.manifest.variants[0].guard).replace("('*', ('dim', 'm'), ('dim', 'n'))", "")
    source = kernel.get_kernel_source()
    assert "< m" not in source
    assert "< n" not in source  # no predicate is left
    a = torch.from_numpy(np.random.default_rng(5).standard_normal((24, 64)).astype(np.float32))
    b = torch.empty_like(a)
    kernel(a, b)
    assert torch.equal(a, b)


@pytest.mark.parametrize("target", [SM_80, "hip -mcpu=gfx90a", "hip -mcpu=gfx942"])
def test_what_a_specialization_fixes_is_no_parameter(target: str) -> None:
    """The same text with sizes given: no dimension is passed, and none stands in the body."""

    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    names, texts = re.compile(r"\b[mnk]\b"), []
    for shape in ((64, 32, 48), (m, 32, 48), (m, n, k)):
        kernel = tilelang.compile(matmul(*shape, threads=64), target=target, execution="emulate")
        agrees(kernel, *operands(64, 32, 48))
        texts.append(kernel.get_kernel_source())
    fixed, open_m, anything = texts
    head = fixed[fixed.index("gemm_kernel(") : fixed.index(") {")]
    assert "int" not in head
    assert set(names.findall(fixed)) == set()
    assert set(names.findall(open_m)) == {"m"}
    assert set(names.findall(anything)) == {"m", "n", "k"}


# -- more than 2^31 elements ------------------------------------------------------------------------------------


def rows_from(m: Any, n: Any) -> Any:
    """B = A[first : first + 8]: eight rows of a matrix that may be large."""

    @T.prim_func
    def pick(A: T.Tensor((m, n), "uint8"), B: T.Tensor((8, n), "uint8"), first: T.int32):
        with T.Kernel(T.ceildiv(n, 64), threads=32) as bx:
            tile = T.alloc_shared((8, 64), "uint8")
            T.copy(A[first, bx * 64], tile)
            T.copy(tile, B[0, bx * 64])

    return pick


@pytest.mark.full
@pytest.mark.parametrize("n", [1 << 15, (1 << 15) + 16, (1 << 15) + 1], ids=["tiles", "rows", "anything"])
def test_offsets_past_32_bits(n: int) -> None:
    """2.3 GB of addresses, of which the kernel touches eight rows near the end: no more memory than these is used."""
    m = 70_000
    room = mmap.mmap(-1, m * n, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    a = np.frombuffer(room, np.uint8).reshape(m, n)
    first = m - 9
    a[first : first + 8] = np.random.default_rng(7).integers(0, 256, (8, n), np.uint8)
    b = np.zeros((8, n), np.uint8)
    kernel = emulated(rows_from(T.dynamic("m"), T.dynamic("n")))
    kernel(a, b, first)
    np.testing.assert_array_equal(b, a[first : first + 8])
    assert len(kernel.manifest.variants) > 1  # the first one counts elements in int32
    assert evaluate(kernel.manifest.variants[0].guard, {"m": m, "n": 64}, {}, {"A": 0, "B": 0})


def test_the_first_variant_counts_in_int32_and_its_guard_says_so() -> None:
    kernel = emulated(rows_from(T.dynamic("m"), T.dynamic("n")))
    guard = kernel.manifest.variants[0].guard
    assert "int64" not in kernel.get_kernel_source()
    for m, holds in [(1 << 24, 1), ((1 << 24) + 1, 0), ((1 << 31) - 1, 0)]:
        assert evaluate(guard, {"m": m, "n": 64}, {}, {"A": 0, "B": 0}) == holds
    later = emulated(rows_from(T.dynamic("m"), T.dynamic("n")), pass_configs={PassConfigKey.TL_VARIANT: 1})
    assert "(int64_t)" in later.get_kernel_source()


def test_a_built_artifact_holds_all_levels_and_their_ptx() -> None:
    options = make_options(pass_configs={"tl.embed_ptx": True})
    artifact = build(matmul(T.dynamic("m"), T.dynamic("n"), T.dynamic("k")), Target("cuda", "sm_80"), options)
    variants = artifact.manifest.variants
    assert len(variants) == 3
    assert variants[-1].guard is None
    for launch in (launch for variant in variants for launch in variant.launches):
        assert b".target sm_80" in artifact.read(launch.binary.removesuffix("cubin") + "ptx")
    small = artifact.stripped()
    assert {b.kind for b in small.manifest.binaries} == {"cubin", "ptx", "elf"}
    assert small.manifest.variants == variants


def test_a_stripped_artifact_tells_nothing_of_the_machine_that_compiled_it() -> None:
    artifact = build(matmul(T.dynamic("m"), T.dynamic("n"), T.dynamic("k")), Target("cuda", "sm_80"), make_options())
    assert any(__file__ in text for text in artifact.manifest.assumed)
    elsewhere = artifact.manifest.to_json() | {"key": "of another installation"}
    elsewhere["assumed"] = [text.replace(os.path.dirname(__file__), "/elsewhere") for text in elsewhere["assumed"]]
    small = artifact.stripped()
    assert small.to_bytes() == Artifact(Manifest.from_json(elsewhere), artifact.files).stripped().to_bytes()
    assert any(text.startswith("test_variants.py:") for text in small.manifest.assumed)
    assert os.path.dirname(__file__) not in small.manifest.to_text()


def test_ptx_for_one_architecture_alone_is_refused() -> None:
    options = make_options(pass_configs={"tl.embed_ptx": True})
    with pytest.raises(NotImplementedError, match="the PTX of sm_90a is for sm_90a alone"):
        build(matmul(64, 32, 32), Target("cuda", "sm_90a"), options)
