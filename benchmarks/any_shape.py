"""Operators beside torch's on random shapes, one thread of a CPU: what a table of usual ones does not see.

    python benchmarks/any_shape.py [--seconds 120] [--seed 0] [--only matmul --only "softmax, gradients"]

Shapes are spread evenly over their logarithms, every second one a multiple of 8 or 32, from a single element to what one
thread does in some milliseconds; float32 and bfloat16. Each result is compared with torch's in float64, each case timed in
turns, and those that are slower timed again: printed are cases slower than torch in both, then for each operator how many there
were, how many take a microsecond more than torch's, and the median of torch's time over ours.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from operators import host_time, keep_freed_memory

import tile_ops

#: Most multiplications of a product, and elements of a norm.
WORK, ELEMENTS = 3e8, 2e6
#: Of torch's speed: what is timed again, and printed.
SLOWER, PRINTED = 0.93, 0.95
#: Of the largest number: what rounding leaves between ours and those of float64.
APART = {torch.float32: 2e-3, torch.bfloat16: 6e-2}
functional = torch.nn.functional
Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Case:
    """`ours` and `theirs` of `operands`, or their gradients."""

    operator: str
    shape: str
    operands: tuple[torch.Tensor, ...]
    ours: Function
    theirs: Function
    gradients: bool

    def calls(self) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Raises AssertionError where ours is not what torch computes in float64."""
        exact = tuple(x.detach().double().requires_grad_(self.gradients) for x in self.operands)
        expected = self.theirs(*exact)
        if not self.gradients:
            self._agree(self.ours(*self.operands), expected)
            return lambda: self.ours(*self.operands), lambda: self.theirs(*self.operands)
        slopes = torch.randn(expected.shape).to(self.operands[0].dtype)

        def differentiating(result: torch.Tensor) -> Callable[[], Any]:
            return lambda: torch.autograd.grad(result, self.operands, slopes, retain_graph=True)

        ours, theirs = differentiating(self.ours(*self.operands)), differentiating(self.theirs(*self.operands))
        for found, one in zip(ours(), torch.autograd.grad(expected, exact, slopes.double())):
            self._agree(found, one)
        return ours, theirs

    def _agree(self, found: torch.Tensor, expected: torch.Tensor) -> None:
        apart, largest = (found - expected).abs().max().item(), expected.abs().max().item()
        assert apart <= APART[found.dtype] * max(1.0, largest), f"{self.operator} {self.shape}: {apart} apart"


class Shapes:
    """Random cases."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        torch.manual_seed(seed)

    def size(self, least: int, most: int) -> int:
        found = int(math.exp(self.random.uniform(math.log(least), math.log(most))))
        return self.random.choice([found, found, max(least, found // 8 * 8), max(least, found // 32 * 32)])

    def case(self, operator: str) -> Case:
        name, _, gradients = operator.partition(", ")
        while True:
            dtype = self.random.choice([torch.float32, torch.float32, torch.bfloat16])
            shape, work, sizes, ours, theirs = getattr(self, name)()
            if work <= 1:
                break
        operands = tuple(torch.randn(size).to(dtype).requires_grad_(bool(gradients)) for size in sizes)
        return Case(f"{operator} {str(dtype).removeprefix('torch.')}", shape, operands, ours, theirs, bool(gradients))

    def matmul(self) -> Any:
        m, n, k = self.size(1, 1024), self.size(1, 2048), self.size(1, 2048)
        return f"{m}x{n}x{k}", m * n * k / WORK, ((m, k), (k, n)), tile_ops.matmul, torch.matmul

    def linear(self) -> Any:
        m, n, k = self.size(1, 1024), self.size(1, 2048), self.size(1, 2048)
        sizes = ((m, k), (n, k), (n,))
        return f"{m}x{n}x{k}", m * n * k / WORK, sizes, _linear, functional.linear

    def batched(self) -> Any:
        count, m, n, k = self.size(2, 64), *(self.size(1, 256) for _ in range(3))
        sizes = ((count, m, k), (count, k, n))
        return f"{count} of {m}x{n}x{k}", count * m * n * k / WORK, sizes, tile_ops.matmul, torch.matmul

    def softmax(self) -> Any:
        m, n = self._rows()
        return f"{m}x{n}", 0, ((m, n),), tile_ops.softmax, lambda x: functional.softmax(x, -1)

    def layer_norm(self) -> Any:
        m, n = self._rows()
        sizes = ((m, n), (n,), (n,))
        return f"{m}x{n}", 0, sizes, tile_ops.layer_norm, lambda x, w, b: functional.layer_norm(x, (n,), w, b)

    def rms_norm(self) -> Any:
        m, n = self._rows()
        return f"{m}x{n}", 0, ((m, n), (n,)), tile_ops.rms_norm, lambda x, w: functional.rms_norm(x, (n,), w, 1e-6)

    def _rows(self) -> tuple[int, int]:
        n = self.size(2, 8192)
        return self.size(1, max(2, int(ELEMENTS / n))), n

    def attention(self) -> Any:
        batch, tokens, keys, heads = self.size(1, 4), self.size(1, 512), self.size(1, 512), self.size(1, 8)
        dim, causal = self.random.choice([32, 64, 96, 128]), self.random.random() < 0.5
        keys = tokens if causal else keys  # torch aligns masks of other shapes differently

        def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return tile_ops.flash_attention(q, k, v, causal=causal)

        def theirs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            turned = (x.transpose(1, 2) for x in (q, k, v))
            return functional.scaled_dot_product_attention(*turned, is_causal=causal).transpose(1, 2)

        shape = f"b{batch} {tokens} by {keys} h{heads} d{dim}{' causal' if causal else ''}"
        sizes = ((batch, tokens, heads, dim), *[(batch, keys, heads, dim)] * 2)
        return shape, batch * heads * tokens * keys * dim / WORK, sizes, ours, theirs


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return tile_ops.matmul(x, weight.T, bias=bias)


NAMES = ("matmul", "linear", "batched", "softmax", "layer_norm", "rms_norm", "attention")
OPERATORS = (*NAMES, *(f"{name}, gradients" for name in NAMES))


def microseconds(calls: tuple[Callable[[], Any], Callable[[], Any]], rounds: int = 14) -> tuple[float, float]:
    """Medians of ours and torch's, in turns."""
    for call in calls:
        host_time(call, calls=6, rounds=1)
    often = max(1, min(20, int(40 / max(host_time(calls[1], calls=1, rounds=1), 0.1))))
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, times in zip(calls, taken):
            call()
            times.append(host_time(call, calls=often, rounds=1))
    return statistics.median(taken[0]), statistics.median(taken[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=OPERATORS)
    given = parser.parse_args()
    os.environ["TILELANG_NUM_THREADS"] = "1"  # before the first launch
    torch.set_num_threads(1)
    keep_freed_memory()
    shapes, end = Shapes(given.seed), time.monotonic() + given.seconds
    ratios: dict[str, list[float]] = {}
    slow: dict[str, list[float]] = {}
    while time.monotonic() < end:
        case = shapes.case(shapes.random.choice(given.only or OPERATORS))
        calls = case.calls()
        ours, theirs = microseconds(calls)
        if theirs < SLOWER * ours:
            again = microseconds(calls)
            ours, theirs = max((ours, theirs), again, key=lambda pair: pair[1] / pair[0])
        ratios.setdefault(case.operator, []).append(theirs / ours)
        if theirs < PRINTED * ours:
            slow.setdefault(case.operator, []).append(ours - theirs)
            print(f"{case.operator} {case.shape}: {ours:.1f} us, torch {theirs:.1f} ({theirs / ours:.2f})", flush=True)
    for operator, found in sorted(ratios.items()):
        behind = slow.get(operator, [])
        by_more = sum(apart >= 1 for apart in behind)
        print(
            f"{operator}: {len(found)} cases, {len(behind)} slower, {by_more} of them by 1 us and more; "
            f"median {statistics.median(found):.2f}"
        )


if __name__ == "__main__":
    main()
