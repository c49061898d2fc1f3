"""What ptxas makes of products by warpgroups: nothing serialized, nothing spilled, descriptors by uniform additions."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilelang.language as T
from tile_compiler.cfamily.dialect import CUDA as DIALECT
from tile_compiler.cfamily.launches import kernel_launches
from tile_compiler.cfamily.printer import print_source
from tile_compiler.inspect import run_passes
from tile_compiler.signature import signature_of
from tile_compiler.simt.arch import arch_of
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.pipeline import CUDA
from tile_compiler.targets.cuda.plugin import headers
from tile_runtime_cuda.build import build

SERIALIZED = re.compile(r"C75\d\d|[Ss]erializ")  # what ptxas says where wgmma do not run beside each other


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


def compiled(source: str) -> tuple[bytes, str]:
    """(cubin, what ptxas says), without spills and stack."""
    built = build(source, arch="sm_90a", headers=headers())
    for used in built.resources.values():
        assert used["spills"] == used["stack"] == 0
    return built.data, built.log


def between_products(listing: str) -> list[str]:
    """The instructions from the first matrix instruction to the last."""
    names = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)", listing, flags=re.M)
    places = [n for n, name in enumerate(names) if "GMMA" in name]
    return names[places[0] : places[-1] + 1]


@pytest.mark.parametrize("trans", [(False, False), (True, True)], ids=["nn", "tt"])
@pytest.mark.parametrize("stages", [0, 3])
@pytest.mark.parametrize(("tile", "threads"), [((128, 256, 64), 256), ((128, 128, 32), 128)])
def test_products_run_beside_each_other(tile: Any, threads: int, trans: Any, stages: int, listing: Any) -> None:
    cubin, log = compiled(text(gemm(*tile, threads, trans, stages)))
    assert not SERIALIZED.search(log)
    body = between_products(listing(cubin, "-c"))
    products = [n for n in body if "GMMA" in n]
    if not stages:  # the loop is unrolled, and its copies stand between
        return
    assert len(products) == tile[2] // 16 * (tile[0] * 128 // threads // 64)
    # The descriptor of A and that of B: an addition to the low word and a constant high word each.
    assert len(body) <= 6 * len(products)
    assert not any(n.startswith(("R2UR", "SHFL", "IMAD", "MOV")) for n in body)


def test_the_log_tells_of_products_that_cannot() -> None:
    source = text(gemm(128, 128, 64, 256, (False, False), 0))
    broken = source.replace("  tl::wgmma_commit();", "  C_l[0] *= 2.0f;\n tl::wgmma_commit();".replace("C_l", "c"))
    assert broken != source
    assert SERIALIZED.search(build(broken, arch="sm_90a", headers=headers()).log)
