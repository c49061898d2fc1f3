"""Kernels in the disk cache: found again by another process, made anew when something they depend on changes."""

import pytest

# The state of our own sources is part of every key. It is held fixed here, so that these tests may run while
# somebody edits them.
PRELUDE = """
import tilelang.fingerprint
tilelang.fingerprint.toolchain = lambda: "these sources"
"""
LAZY = """
import sys
import numpy as np
import tilelang, tilelang.language as T

FACTOR = {factor}

def helper(x):
    return x * FACTOR

@tilelang.jit(out_idx=[-1], target="cpu")
def scale(n):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 8), threads=8) as bx:
            for i in T.Parallel(8):
                B[bx * 8 + i] = helper(A[bx * 8 + i])
    return main

if scale.origin({n}) == "compile" and {ask}:
    print("to be compiled")
else:
    print(scale({n})(np.ones({n}, np.float32)).sum(), "traced" if "tvm" in sys.modules else "found")
"""
EAGER = """
import sys
import numpy as np
import tilelang, tilelang.language as T

@tilelang.jit(target="cpu")
def scale(A, factor={factor}):
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    B = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, 8), threads=8) as bx:
        for i in T.Parallel(8):
            B[bx * 8 + i] = A[bx * 8 + i] * factor
    return B

print(scale(np.ones({n}, np.float32)).sum(), "traced" if "tvm" in sys.modules else "found")
"""


@pytest.fixture
def run(program):
    return lambda text, **environment: program(PRELUDE + text, **environment)


def test_warm_process_finds_a_lazy_kernel_without_tvm(run):
    assert run(LAZY.format(factor=2, n=10, ask=False)) == "20.0 traced"
    text = LAZY.format(factor=2, n=10, ask=True)
    assert run("# moved down\n\n" + text) == "20.0 found"
    # To ask takes no compiler: what is not found is not made, which takes seconds.
    assert run(LAZY.format(factor=3, n=10, ask=True)) == "to be compiled"
    assert run(text.replace("return x * FACTOR", "return x * FACTOR + 1")) == "to be compiled"


@pytest.mark.full
def test_warm_process_finds_an_eager_kernel_without_tvm(run):
    text = EAGER.format(factor=2, n=10)
    assert run(text) == "20.0 traced"
    assert run(text) == "20.0 found"
    assert run(EAGER.format(factor=2.5, n=10)) == "25.0 traced"


@pytest.mark.full
def test_cache_can_be_switched_off(run):
    text = LAZY.format(factor=2, n=10, ask=False)
    assert run(text) == "20.0 traced"
    assert run(text, TILELANG_DISABLE_CACHE="1") == "20.0 traced"


@pytest.mark.full
def test_damaged_cache_is_made_anew(run, tmp_path):
    text = EAGER.format(factor=2, n=10)
    assert run(text) == "20.0 traced"
    files = [f for f in (tmp_path / "cache").rglob("*.tile") if b"scale" in f.read_bytes()]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-100])
    assert run(text) == "20.0 traced"
    assert run(text) == "20.0 found"


EXPORT = """
import sys
import numpy as np
import tilelang, tilelang.language as T

@T.prim_func
def double(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=8):
        for i in T.Parallel(8):
            B[i] = A[i] * 2

kernel = tilelang.compile(double, out_idx=1, target="cpu")
kernel(np.ones(8, np.float32))  # also puts the thread pool, which TVM's LLVM builds once, into the cache
kernel.export("double.tile")
"""
LOAD = """
import sys
import numpy as np
import tilelang

print(tilelang.load("double.tile")(np.ones(8, np.float32)).sum(), "tvm" in sys.modules, "tile_compiler" in sys.modules)
"""


def test_exported_kernel_is_loaded_without_tvm_and_compiler(program):
    program(EXPORT)
    assert program(LOAD, "load.py") == "16.0 False False"


def test_import_loads_neither_tvm_nor_torch_nor_a_compiler(program):
    text = (
        "import sys, tilelang, tilelang.language as T\n"
        "@tilelang.jit\ndef f(n):\n    pass\n"
        "T.dynamic('m'), T.float16, T.ceildiv(3, 2), tilelang.PassConfigKey.TL_SIMPLIFY\n"
        "print([m for m in ('tvm', 'torch', 'tile_compiler', 'tile_runtime_cpu') if m in sys.modules])\n"
    )
    assert program(text) == "[]"
