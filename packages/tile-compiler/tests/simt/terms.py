"""What a kernel computes as expressions in its inputs: all threads in lockstep, floating-point operations unknown.

A number is the fingerprint of the expression that it stands for: an input's is random, an operation's is a hash of the
operation and of its operands' fingerprints (of sums, products and extrema in any order of the two). Nothing is known of
arithmetic: zero times x is not zero. Two kernels whose outputs have the same fingerprints therefore compute the same
expressions, hence the same numbers from any inputs; equality by chance has probability 2^-bits of the element type for
each element and each set of random inputs. Loops, indices and integers are what they are, comparisons of numbers are
random but consistent decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import threads

from tile_compiler.instructions import MatrixMultiply
from tilelang.interpreter import numerics
from tilelang.interpreter.expressions import dtype_of_node
from tilelang.ir.dtypes import DType, dtype_of

Codes = np.ndarray[Any, Any]  # uint64

_COMMUTATIVE = ("Add", "Mul", "Min", "Max")


#: A call that gives its first argument and counts, for threads of which the second is true, how often it is false.
WATCH = "tl::watch"


def outputs(func: Any, arguments: Sequence[Codes]) -> tuple[list[Codes], list[int]]:
    """The arguments after a lowered function has run on their fingerprints, and [evaluations, false ones] of WATCH."""
    work, counts = [a.copy() for a in arguments], [0, 0]
    threads.run(func, work, type("Counting", (Terms,), {"counts": counts}))
    return work, counts


def random_inputs(arguments: Sequence[Codes], seed: int) -> list[Codes]:
    """Arguments of the same types: random bits for floats, the given integers."""
    rng = np.random.default_rng(seed)
    return [
        np.frombuffer(rng.bytes(a.nbytes), a.dtype).reshape(a.shape).copy() if numerics.is_float(a) else a.copy()
        for a in arguments
    ]


def same(a: Sequence[Codes], b: Sequence[Codes]) -> bool:
    """Whether all bits are equal."""
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def _mix(code: Codes, salt: int) -> Codes:
    """A permutation of 64-bit numbers that scatters them (the finalizer of SplitMix64), one for each salt."""
    x = code + np.uint64(salt * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _salt(name: str) -> int:
    return int.from_bytes(name.encode()[:8].ljust(8, b"\1"), "little") ^ len(name)


def _codes(values: Codes) -> Codes:
    return np.ascontiguousarray(values).view(np.dtype(f"uint{8 * values.dtype.itemsize}")).astype(np.uint64)


def _fingerprint(name: str, operands: Sequence[Codes]) -> Codes:
    codes = [_codes(v) for v in operands]
    if name in _COMMUTATIVE:
        mixed = sum(_mix(c, 1) for c in codes)
    else:
        mixed = sum(_mix(_mix(c, 1), 2 + i) for i, c in enumerate(codes))
    return _mix(np.asarray(mixed), _salt(name))


def _as_dtype(codes: Codes, dtype: DType) -> Codes:
    """The fingerprints in the bits of a type."""
    target = dtype.as_numpy()
    if dtype.kind == "bool":
        return np.asarray(codes >> np.uint64(63) != 0)
    return np.ascontiguousarray(codes >> np.uint64(64 - dtype.bits)).astype(f"uint{8 * target.itemsize}").view(target)


class Terms(threads.Threads):
    """One block; what concerns integers, memory and the threads is that of the ordinary machine."""

    counts: list[int]

    def _header(self, name: str, args: Sequence[Any]) -> Any:
        if name != WATCH:
            return super()._header(name, args)
        value, asked = self.value(args[0]), self.value(args[1]) & self.lanes.mask
        self.counts[0] += int(asked.sum())
        self.counts[1] += int((asked & ~value).sum())
        return value

    def _gather(self, buffer: Any, indices: Sequence[Codes], lanes: Codes) -> Codes:
        """A register that nobody has written may be read: what it holds is in no expression of the correct kernel."""
        if buffer.owner is self.lanes:
            return buffer.gather(lanes if buffer.storage.copies > 1 else 0, indices)
        return super()._gather(buffer, indices, lanes)

    def _operate(self, name: str, a: Codes, b: Codes, dtype: DType) -> Codes:
        if not dtype.is_float:
            return super()._operate(name, a, b, dtype)
        return _as_dtype(_fingerprint(name, [a, b]), dtype.scalar)

    def _compare(self, node: Any) -> Codes:
        a, b = self.value(node.a), self.value(node.b)
        name = type(node).__name__
        return _as_dtype(_fingerprint(name, [a, b]), dtype_of("bool")) if _float(a, b) else numerics.compare(name, a, b)

    def _cast(self, node: Any) -> Codes:
        value, dtype = self.value(node.value), dtype_of_node(node).scalar
        if not dtype.is_float and not _float(value):
            return numerics.convert(value, dtype)
        return _as_dtype(_fingerprint(f"to {dtype}", [value]), dtype)

    def _call(self, node: Any) -> Codes:
        name = str(getattr(node.op, "name", node.op)).split(".")[-1]
        if name in numerics.FLOAT_FUNCTIONS or name in numerics.FLOAT_TESTS:
            return _as_dtype(_fingerprint(name, [self.value(a) for a in node.args]), dtype_of_node(node).scalar)
        return super()._call(node)

    def atomic(self, buffer: Any, indices: Sequence[Codes], op: str, value: Codes) -> Codes:
        assert not buffer.dtype.is_float, "what atomics on floats give depends on their order, and is no expression"
        return super().atomic(buffer, indices, op, value)

    def _product(self, mma: MatrixMultiply, c: Codes, a: Codes, b: Codes) -> Codes:
        """c + a b of fingerprints, modulo 2^64, which knows each pair of factors and their sum, whatever its order."""
        if not dtype_of(mma.c).is_float:
            return super()._product(mma, c, a, b)
        left, right = _mix(_codes(a), 3) | np.uint64(1), _mix(_codes(b), 4) | np.uint64(1)
        products = _mix(left[:, :, None] * right[None, :, :], 5).sum(axis=1)
        return _as_dtype(_mix(_mix(_codes(c), 6) + products, 7), dtype_of(mma.c))


def _float(*values: Codes) -> bool:
    return any(numerics.is_float(v) for v in values)
