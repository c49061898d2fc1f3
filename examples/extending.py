"""A tile operator and a reduction of one's own: the Walsh-Hadamard transform of rows, and log-sum-exp.

X, Y: (M, N) float32, Y = X @ H with H[i, j] = (-1)^popcount(i & j), N a power of two; L: (M,), the log-sum-exp of each
row of Y / sqrt(N). Reference: numpy, float64. The transform spreads outliers over a row, before it is quantized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from checking import main, relative_error, run
from tvm import tirx

import tile_compiler.extension as compiler
import tilelang
import tilelang.language as T
from tilelang import extension
from tilelang.errors import InvalidArgument
from tilelang.ir import tile_ir
from tilelang.layout import Fragment

# -- a reduction: what it means, and how two partial results become one -------------------------------------------


def logaddexp(dtype: str, result: str) -> compiler.Combine:
    """log(exp(a) + exp(b)) without overflow; the identity is log(0)."""
    identity = tirx.const(float("-inf"), dtype)

    def step(a: Any, b: Any) -> Any:
        top = tirx.max(a, b)
        total = top + tirx.log(tirx.exp(a - top) + tirx.exp(b - top))
        return tirx.Select(top == identity, identity, total)  # -inf - -inf is no number

    return compiler.Combine(dtype, identity, step)


extension.register_reduction("logsumexp", lambda tile: np.logaddexp.reduce(tile, axis=0))
compiler.register_reduction("logsumexp", logaddexp)

# -- a tile operator: its node and meaning ------------------------------------------------------------------------


@extension.register_operator
@dataclass(frozen=True)
class Hadamard(extension.TileOp):
    """`tl.hadamard(x)`: every row of x, (rows, columns) with a power of two of columns, times the Hadamard matrix."""

    NAME: ClassVar[str] = "tl.hadamard"
    OPERANDS: ClassVar[tuple[str, ...]] = ("x",)

    x: Any

    def reads(self) -> list[Any]:
        return [self.x]

    def writes(self) -> list[Any]:
        return [self.x]

    def meaning(self, machine: extension.Machine) -> None:
        tile = machine.load(self.x)
        machine.store(self.x, tile.astype(np.float64) @ hadamard_matrix(tile.shape[1]))


def hadamard_matrix(n: int) -> np.ndarray[Any, Any]:
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def hadamard(x: Any) -> None:
    """`hadamard(tile)` in a kernel, as `T.copy` and its kin are called."""
    op = Hadamard(extension.region(x, "hadamard"))
    columns = shape_of(op)[1]
    if columns & (columns - 1):
        raise InvalidArgument(
            f"hadamard: {op.x.source.name} has {columns} columns",
            expected="a power of two",
            repair="pad the rows with zeros",
        )
    extension.emit(op, "hadamard")


# -- how it is done on the CPU ------------------------------------------------------------------------------------


def on_cpu(op: Hadamard, site: compiler.Site) -> Any:
    """log2(columns) rounds; in each, pairs (a, b) at a distance become (a + b, a - b)."""
    rows, columns = shape_of(op)
    buffer = op.x.source
    rounds = []
    for distance in powers_of_two(columns):

        def pair(place: list[Any], distance: int = distance) -> Any:
            row, number = place
            first = tirx.floordiv(number, distance) * (2 * distance) + tirx.floormod(number, distance)
            low, high = (compiler.at(op.x, {0: row, 1: first + offset}) for offset in (0, distance))
            return butterfly(buffer, low, high, compiler.element_type(op.x))

        rounds.append(site.nest([rows, columns // 2], "ij", pair))
    return tile_ir.sequence(rounds)


def butterfly(buffer: Any, low: list[Any], high: list[Any], dtype: str) -> Any:
    """(a, b) -> (a + b, a - b)"""
    a, b = tirx.Var("a", dtype), tirx.Var("b", dtype)
    return tile_ir.sequence(
        [
            tirx.Bind(a, tirx.BufferLoad(buffer, low)),
            tirx.Bind(b, tirx.BufferLoad(buffer, high)),
            tirx.BufferStore(buffer, a + b, low),
            tirx.BufferStore(buffer, a - b, high),
        ]
    )


# -- how it is done on a GPU --------------------------------------------------------------------------------------


def stage(op: Hadamard, to: compiler.Expansion) -> Any:
    """Rows lie in registers: other operands go through a fragment."""
    if compiler.whole_fragment(op.x):
        return op.to_stmt(to.span)
    tile = tile_ir.whole(to.temporary([r.extent for r in op.x.region], compiler.element_type(op.x), "rows"))
    return tile_ir.sequence(
        [compiler.move(op.x, tile, to), Hadamard(tile).to_stmt(to.span), compiler.move(tile, op.x, to)]
    )


@dataclass
class RowsOfLanes(compiler.Rule):
    """strict: a row is held by neighbouring lanes of one warp, each with a run of neighbours in its registers."""

    x: compiler.Unknown
    threads: int

    def unknowns(self) -> tuple[compiler.Unknown, ...]:
        return (self.x,)

    def propose(self, level: compiler.Level, known: Any) -> Any:
        if level == compiler.Level.STRICT and self.x not in known:
            yield self.x, rows_of_lanes(self.x.shape, self.threads)

    def fault(self, known: Any) -> tuple[compiler.Unknown, str] | None:
        wanted = rows_of_lanes(self.x.shape, self.threads)
        return None if known[self.x].fragment == wanted.fragment else (self.x, f"{wanted.describe()}")


def lanes_of(columns: int, threads: int) -> int:
    """How many lanes share a row: at most a warp, and a divisor of the threads."""
    return max(n for n in (1, 2, 4, 8, 16, 32) if n <= columns and threads % n == 0)


def rows_of_lanes(shape: tuple[int, ...], threads: int) -> compiler.Distribution:
    rows, columns = shape
    lanes = lanes_of(columns, threads)
    run, at_once = columns // lanes, threads // lanes
    fragment = Fragment(shape, forward_fn=lambda i, j: (i % at_once * lanes + j // run, i // at_once * run + j % run))
    return compiler.of_fragment(fragment, threads)


def on_gpu(op: Hadamard, low: compiler.Lowering) -> Any:
    """Small distances inside a thread's registers, larger ones by shuffles between lanes; no shared memory."""
    rows, columns = shape_of(op)
    x, dtype = low.registers(op.x.source), compiler.element_type(op.x)
    lanes = lanes_of(columns, low.threads)
    run, steps = columns // lanes, -(-rows // (low.threads // lanes))

    def row(step: Any) -> Any:
        first = step * run
        inside = [
            butterfly(x, [first + k], [first + k + distance], dtype)
            for distance in powers_of_two(run)
            for k in range(run)
            if not k & distance
        ]
        return tile_ir.sequence([*inside, *(across(first, mask) for mask in powers_of_two(lanes))])

    def across(first: Any, mask: int) -> Any:
        def one(k: Any) -> Any:
            mine = compiler.load(x, first + k)
            other = compiler.call("tl::shfl_xor", mine, compiler.int32(mask), dtype=dtype)
            upper = tirx.bitwise_and(low.tx, compiler.int32(mask)) != 0
            return compiler.store(x, other + tirx.Select(upper, tirx.const(0, dtype) - mine, mine), first + k)

        return compiler.unrolled("k", run, one)

    return compiler.unrolled("step", steps, row)


def shape_of(op: Hadamard) -> tuple[int, int]:
    rows, columns = (int(r.extent) for r in op.x.region)
    return rows, columns


def powers_of_two(end: int) -> list[int]:
    """1, 2, 4, ... below `end`."""
    return [1 << n for n in range(end.bit_length() - 1)]


compiler.register_operator(
    Hadamard,
    cpu=on_cpu,
    gpu=compiler.Twin(
        expand=stage,
        rule=lambda op, site: RowsOfLanes("hadamard", site.span, site.unknown(op.x.source), site.threads),
        lower=on_gpu,
        title=lambda op: "hadamard",
    ),
)

# -- a kernel that uses both --------------------------------------------------------------------------------------


def transform(M, N, block_M, threads, dtype="float32"):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype), L: T.Tensor((M,), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            rows = T.alloc_fragment((block_M, N), dtype)
            total = T.alloc_fragment((block_M,), dtype)
            T.copy(X[bm * block_M, 0], rows)
            hadamard(rows)
            T.copy(rows, Y[bm * block_M, 0])
            for i, j in T.Parallel(block_M, N):
                rows[i, j] *= 1 / N**0.5
            T.reduce(rows, total, "logsumexp", dim=1)
            T.copy(total, L[bm * block_M])

    return main


DTYPE = "float32"
CASES = [
    {"M": 32, "N": 128, "block_M": 16, "threads": 128},
    {"M": 10, "N": 64, "block_M": 3, "threads": 96},
    {"M": 7, "N": 8, "block_M": 5, "threads": 64},
]


def check(target="cpu", execution="device", *, M, N, block_M, threads):
    X = np.random.default_rng(0).standard_normal((M, N)).astype(np.float32)
    kernel = tilelang.compile(transform(M, N, block_M, threads), out_idx=[1, 2], target=target, execution=execution)
    Y, L = run(kernel, X)
    exact = X.astype(np.float64) @ hadamard_matrix(N)
    return max(relative_error(Y, exact), relative_error(L, np.log(np.exp(exact / N**0.5).sum(axis=1))))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
