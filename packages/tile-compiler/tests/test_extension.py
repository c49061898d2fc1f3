"""Operators and reductions of users: what registration checks, and how theirs live with the compiler's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tvm import tirx

import tilelang
import tilelang.language as T
from tile_compiler import extension as compiler
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.simt.operators import registry
from tile_compiler.tileops import LOWERINGS, combine
from tilelang import extension, fingerprint, ops
from tilelang.layout import Fragment
from tilelang.ops import reduce as reductions

CUDA = "cuda -arch=sm_80"
EXECUTIONS = [("cpu", "interpret"), ("cpu", "device"), (CUDA, "emulate")]


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone after it."""
    tables: tuple[dict[Any, Any], ...] = (ops.OPERATORS, registry.TWINS, LOWERINGS, combine.ADDED, reductions.ADDED)
    kept = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, kept):
        table.clear()
        table.update(content)


@dataclass(frozen=True)
class Negate(extension.TileOp):
    """x = -x, on columns that lie in one thread each."""

    NAME: ClassVar[str] = "tl.test_negate"
    OPERANDS: ClassVar[tuple[str, ...]] = ("x",)

    x: Any

    def reads(self) -> list[Any]:
        return [self.x]

    def writes(self) -> list[Any]:
        return [self.x]

    def meaning(self, machine: extension.Machine) -> None:
        machine.store(self.x, -machine.load(self.x))


def negate(x: Any) -> None:
    extension.emit(Negate(extension.region(x)))


def columns(shape: tuple[int, ...], threads: int) -> compiler.Distribution:
    return compiler.of_fragment(
        Fragment(shape, forward_fn=lambda i, j: (j % threads, j // threads * shape[0] + i)), threads
    )


class Columns(compiler.Rule):
    def __init__(self, span: Any, x: compiler.Unknown, threads: int) -> None:
        super().__init__("negate", span)
        self.x, self.threads = x, threads

    def propose(self, level: compiler.Level, known: Any) -> Any:
        if level == compiler.Level.STRICT and self.x not in known:
            yield self.x, columns(self.x.shape, self.threads)

    def fault(self, known: Any) -> tuple[compiler.Unknown, str] | None:
        wanted = columns(self.x.shape, self.threads).fragment
        return None if known[self.x].fragment == wanted else (self.x, "whole columns in a thread")


def lower_negate(op: Negate, low: compiler.Lowering) -> Any:
    x = low.registers(op.x.source)
    zero = tirx.const(0, compiler.element_type(op.x))
    return compiler.unrolled("r", int(x.ty.shape[0]), lambda r: compiler.store(x, zero - compiler.load(x, r), r))


def register_negate(**halves: Any) -> None:
    extension.register_operator(Negate)
    compiler.register_operator(Negate, **halves)


GPU = compiler.Twin(
    rule=lambda op, site: Columns(site.span, site.unknown(op.x.source), site.threads),
    lower=lower_negate,
    title=lambda op: "negate",
)


def test_an_operator_with_a_layout_of_its_own_after_a_product(capsys: Any) -> None:
    """The product writes its accumulators as the instruction does; the compiler copies them where negate wants them."""
    register_negate(gpu=GPU)

    @T.prim_func
    def product(A: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            negate(c)
            T.copy(c, C)

    A = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float16)
    for target, execution in (("cpu", "interpret"), (CUDA, "emulate")):
        C = np.zeros((32, 32), np.float32)
        kernel = tilelang.compile(product, target=target, execution=execution)
        kernel(A, C)
        np.testing.assert_allclose(C, -(A.astype(np.float64) @ A.astype(np.float64)), 1e-3, 1e-3)
    assert "// negate" in kernel.get_kernel_source()


def test_a_target_without_a_half_refuses_with_the_users_line() -> None:
    register_negate(gpu=GPU)

    @T.prim_func
    def main(A: T.Tensor((8, 32), "float32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_fragment((8, 32), "float32")
            T.copy(A, a)
            negate(a)
            T.copy(a, A)

    with pytest.raises(UnsupportedOnTarget, match="no lowering of tl.test_negate") as caught:
        tilelang.compile(main, target="cpu")
    assert "test_extension.py" in str(caught.value)


@pytest.mark.parametrize(("M", "N", "dim"), [(16, 64, 1), (13, 45, 0), (5, 7, 1)])
@pytest.mark.parametrize("clear", [True, False])
def test_a_reduction_by_name_is_exact_about_old_content(M: int, N: int, dim: int, clear: bool) -> None:
    """Products modulo 251: every partial result, old content included, must enter exactly once."""
    extension.register_reduction("modular", lambda tile: _modular(tile))
    compiler.register_reduction(
        "modular", lambda dtype, result: compiler.Combine(dtype, tirx.const(1, dtype), lambda a, b: a * b % 251)
    )
    size = (M, N)[1 - dim]

    @T.prim_func
    def main(A: T.Tensor((M, N), "int32"), S: T.Tensor((size,), "int32")):
        with T.Kernel(1, threads=96):
            a = T.alloc_fragment((M, N), "int32")
            s = T.alloc_fragment((size,), "int32")
            T.copy(A, a)
            T.copy(S, s)
            T.reduce(a, s, "modular", dim=dim, clear=clear)
            T.copy(s, S)

    rng = np.random.default_rng(1)
    A, S = rng.integers(1, 251, (M, N)).astype(np.int32), rng.integers(1, 251, size).astype(np.int32)
    rows = np.moveaxis(A, dim, 0).astype(np.int64)
    want = _modular(rows if clear else np.concatenate([rows, S[None]]))
    for target, execution in EXECUTIONS:
        got = S.copy()
        tilelang.compile(main, target=target, execution=execution)(A, got)
        np.testing.assert_array_equal(got, want, err_msg=f"{target} {execution}")


def _modular(tile: Any) -> Any:
    total = np.ones(tile.shape[1:], np.int64)
    for row in tile:
        total = total * row % 251
    return total


def test_names_of_the_language_are_taken() -> None:
    with pytest.raises(ValueError, match="'product' is a reduction of the language"):
        extension.register_reduction("product", lambda tile: tile)

    class Copy(extension.TileOp):
        NAME = "tl.copy"

    with pytest.raises(ValueError, match="tl.copy is the operator tilelang.ops.copy.Copy"):
        extension.register_operator(Copy)

    class Nameless(extension.TileOp):
        NAME = "nameless"

    with pytest.raises(ValueError, match="begin with 'tl.'"):
        extension.register_operator(Nameless)


def test_kernels_depend_on_the_file_that_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "my_reductions.py"
    file.write_text("def fold(tile):\n    return tile.sum(axis=0)\n")
    import my_reductions  # type: ignore[import-not-found]

    before = fingerprint.toolchain()
    extension.register_reduction("mine", my_reductions.fold)
    registered = fingerprint.toolchain()
    file.write_text("def fold(tile):\n    return tile.max(axis=0)\n")
    changed = fingerprint.toolchain()
    fingerprint._extension_files.discard(str(file))
    assert len({before, registered, changed}) == 3
