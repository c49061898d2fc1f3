"""An instruction that a user declares and registers: `T.gemm` prefers it, its device code stands above the kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from test_gemm import product

from tile_compiler.cfamily.dialect import CUDA as DIALECT
from tile_compiler.cfamily.launches import kernel_launches
from tile_compiler.cfamily.printer import print_source
from tile_compiler.instructions import MatrixMultiply, declared, register, registry
from tile_compiler.signature import signature_of
from tilelang import fingerprint, interpreter
from tilelang.layout import Fragment

emulator = pytest.importorskip("tile_runtime_cpu.emulator")

BASE = next(d for d in declared() if d.name == "tl::mma_m16n8k16_f32_f16")
HEADER = """
__device__ inline void double_mma(void* c, const void* a, const void* b) {
  tl::mma_m16n8k16_f32_f16(c, a, b);
  tl::mma_m16n8k16_f32_f16(c, (const tl::half_t*)a + 8, (const tl::half_t*)b + 4);
}
"""


def doubled() -> MatrixMultiply:
    """Two `m16n8k16`, one after the other along k, as one instruction."""
    a, b = BASE.a_fragment, BASE.b_fragment
    return dataclasses.replace(
        BASE,
        name="double_mma",
        text="two of " + BASE.text,
        k=32,
        a_fragment=Fragment((16, 32), lambda i, k: (a.thread(i, k % 16), a.index(i, k % 16) + k // 16 * 8)),
        b_fragment=Fragment((32, 8), lambda k, j: (b.thread(k % 16, j), b.index(k % 16, j) + k // 16 * 4)),
        header=HEADER,
    )


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> MatrixMultiply:
    monkeypatch.setattr(registry, "_added", [])
    monkeypatch.setattr(fingerprint, "_extensions", [])
    return register(doubled())


@pytest.mark.parametrize("scopes", ["ss", "rs"])
@pytest.mark.parametrize("trans", [(False, False), (True, True)], ids=["nn", "tt"])
def test_gemm_uses_it(rng: Any, lower: Any, registered: Any, scopes: str, trans: tuple[bool, bool]) -> None:
    func = product((32, 48, 64), ("float16", "float16", "float32"), 64, trans, scopes)
    trace, ctx = lower(func)
    assert "gemm: double_mma, 1 x 2 warps" in "\n".join(text for _, text in ctx.report.notes)
    final = trace.steps[-1].after
    (launch,) = kernel_launches(final, signature_of(func, final))
    source = print_source([launch.kernel], DIALECT, ctx.sources)
    assert source.index("void double_mma") < source.index("__global__")
    a = rng.standard_normal((64, 32) if trans[0] else (32, 64)).astype("float16")
    b = rng.standard_normal((48, 64) if trans[1] else (64, 48)).astype("float16")
    args = [a, b, np.zeros((32, 48), "float32")]
    want = [x.copy() for x in args]
    interpreter.run(func, want)
    module = emulator.compile(source)
    module.launch(launch.kernel.symbol, (1, 1, 1), (64, 1, 1), launch.shared_bytes, args).check()
    np.testing.assert_allclose(args[2], want[2], rtol=1e-4, atol=1e-4)


def test_a_tile_that_does_not_fit_gets_ours(lower: Any, registered: Any) -> None:
    _, ctx = lower(product((32, 48, 16), ("float16", "float16", "float32"), 64))
    assert "gemm: mma_m16n8k16_f32_f16, 1 x 2 warps" in "\n".join(text for _, text in ctx.report.notes)


def test_names_are_unique_and_kernels_of_other_compilers_are_not_found_again(registered: Any) -> None:
    with_it = fingerprint.toolchain()
    assert register(doubled()) == registered
    assert fingerprint.toolchain() == with_it
    with pytest.raises(ValueError, match="already an instruction double_mma"):
        register(dataclasses.replace(doubled(), header=HEADER + "// another"))
    with pytest.raises(ValueError, match="already an instruction tl::mma"):
        register(dataclasses.replace(doubled(), name=BASE.name))
    fingerprint._extensions.clear()
    assert fingerprint.toolchain() != with_it
