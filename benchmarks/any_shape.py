"""Operators beside torch's on random shapes: what a table of usual ones does not see.

    python benchmarks/any_shape.py [--seconds 120] [--seed 0] [--only matmul --only "softmax, gradients"]
    python benchmarks/any_shape.py --device cuda [--cases 300] [--jobs 15]

Shapes are spread evenly over their logarithms, every second one a multiple of 8 or 32, from a single element to what one
thread of a CPU, or a GPU, does in some milliseconds; in types that are usual there. Each result is compared with torch's in
float64, each case timed in turns, and those that are slower timed again: printed are cases slower than torch in both, then for
each operator how many there were, how many take a microsecond more than torch's, and the median of torch's time over ours.

On a GPU the time is that of its kernels, its L2 cache overwritten before each call; `--jobs` processes compile beforehand.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from operators import AHEAD, host_time, keep_freed_memory

import tile_ops


@dataclass(frozen=True)
class Limits:
    """Most multiplications of a product, elements of a norm, rows, columns and steps of a product, tokens, heads and batches of
    attention; and element types, as often as they are taken."""

    work: float
    elements: float
    rows: int
    columns: int
    tokens: int
    heads: int
    batch: int
    dtypes: tuple[torch.dtype, ...]


LIMITS = {
    "cpu": Limits(3e8, 2e6, 1024, 2048, 512, 8, 4, (torch.float32, torch.float32, torch.bfloat16)),
    "cuda": Limits(
        2e11, 1e8, 16384, 16384, 8192, 32, 32, (torch.float16, torch.bfloat16, torch.bfloat16, torch.float32)
    ),
}
#: Of torch's speed: what is timed again, and printed.
SLOWER, PRINTED = 0.93, 0.95
#: Of the largest number: what rounding leaves between ours and those of float64.
APART = {torch.float32: 2e-3, torch.float16: 1e-2, torch.bfloat16: 6e-2}
functional = torch.nn.functional
Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Case:
    """`ours` and `theirs` of `operands`, or their gradients."""

    operator: str
    shape: str
    sizes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    device: str
    ours: Function
    theirs: Function
    gradients: bool

    def calls(self) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Raises AssertionError where ours is not what torch computes in float64."""
        operands = tuple(self._random(size).requires_grad_(self.gradients) for size in self.sizes)
        exact = tuple(x.detach().double().requires_grad_(self.gradients) for x in operands)
        expected = self.theirs(*exact)
        if not self.gradients:
            self._agree(self.ours(*operands), expected)
            return lambda: self.ours(*operands), lambda: self.theirs(*operands)
        slopes = self._random(expected.shape)

        def differentiating(result: torch.Tensor) -> Callable[[], Any]:
            return lambda: torch.autograd.grad(result, operands, slopes, retain_graph=True)

        ours, theirs = differentiating(self.ours(*operands)), differentiating(self.theirs(*operands))
        for found, one in zip(ours(), torch.autograd.grad(expected, exact, slopes.double())):
            self._agree(found, one)
        return ours, theirs

    def _random(self, size: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(size, device=self.device).to(self.dtype)

    def _agree(self, found: torch.Tensor, expected: torch.Tensor) -> None:
        apart, largest = (found - expected).abs().max().item(), expected.abs().max().item()
        assert apart <= APART[found.dtype] * max(1.0, largest), f"{self.operator} {self.shape}: {apart} apart"


class Shapes:
    """Random cases of a device; the same ones for a seed."""

    def __init__(self, seed: str, device: str) -> None:
        self.random, self.device, self.limits = random.Random(seed), device, LIMITS[device]

    def size(self, least: int, most: int) -> int:
        found = int(math.exp(self.random.uniform(math.log(least), math.log(most))))
        return self.random.choice([found, found, max(least, found // 8 * 8), max(least, found // 32 * 32)])

    def case(self, operator: str) -> Case:
        name, _, gradients = operator.partition(", ")
        while True:
            dtype = self.random.choice(self.limits.dtypes)
            shape, work, sizes, ours, theirs = getattr(self, name)()
            if work <= self.limits.work:
                break
        label = f"{operator} {str(dtype).removeprefix('torch.')}"
        return Case(label, shape, sizes, dtype, self.device, ours, theirs, bool(gradients))

    def matmul(self) -> Any:
        m, n, k = self._product()
        return f"{m}x{n}x{k}", m * n * k, ((m, k), (k, n)), tile_ops.matmul, torch.matmul

    def _product(self) -> tuple[int, int, int]:
        columns = self.limits.columns
        return self.size(1, self.limits.rows), self.size(1, columns), self.size(1, columns)

    def linear(self) -> Any:
        m, n, k = self._product()
        sizes = ((m, k), (n, k), (n,))
        return f"{m}x{n}x{k}", m * n * k, sizes, _linear, functional.linear

    def batched(self) -> Any:
        count, m, n, k = self.size(2, 64), *(self.size(1, 256) for _ in range(3))
        sizes = ((count, m, k), (count, k, n))
        return f"{count} of {m}x{n}x{k}", count * m * n * k, sizes, tile_ops.matmul, torch.matmul

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
        return self.size(1, max(2, int(self.limits.elements / n))), n

    def attention(self) -> Any:
        batch, heads = self.size(1, self.limits.batch), self.size(1, self.limits.heads)
        tokens, keys = (self.size(1, self.limits.tokens) for _ in range(2))
        dim, causal = self.random.choice([32, 64, 96, 128]), self.random.random() < 0.5
        keys = tokens if causal else keys  # torch aligns masks of other shapes differently

        def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return tile_ops.flash_attention(q, k, v, causal=causal)

        def theirs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            turned = (x.transpose(1, 2) for x in (q, k, v))
            return functional.scaled_dot_product_attention(*turned, is_causal=causal).transpose(1, 2)

        shape = f"b{batch} {tokens} by {keys} h{heads} d{dim}{' causal' if causal else ''}"
        sizes = ((batch, tokens, heads, dim), *[(batch, keys, heads, dim)] * 2)
        work = batch * heads * tokens * keys * dim
        if self.device == "cuda":
            work *= 20  # float64 keeps its weights
        return shape, work, sizes, ours, theirs


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return tile_ops.matmul(x, weight.T, bias=bias)


NAMES = ("matmul", "linear", "batched", "softmax", "layer_norm", "rms_norm", "attention")
OPERATORS = (*NAMES, *(f"{name}, gradients" for name in NAMES))


def microseconds(calls: tuple[Callable[[], Any], Callable[[], Any]], rounds: int = 14) -> tuple[float, float]:
    """Medians of ours and torch's of this thread's time, in turns."""
    for call in calls:
        host_time(call, calls=6, rounds=1)
    often = max(1, min(20, int(40 / max(host_time(calls[1], calls=1, rounds=1), 0.1))))
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, times in zip(calls, taken):
            call()
            times.append(host_time(call, calls=often, rounds=1))
    return statistics.median(taken[0]), statistics.median(taken[1])


def on_gpu(calls: tuple[Callable[[], Any], Callable[[], Any]], flush: torch.Tensor) -> tuple[float, float]:
    """The same of the GPU's time, which waits until the host has launched all, autograd's thread, too."""
    from measure import times_ms

    taken = times_ms(dict(zip(("ours", "torch"), calls)), flush, busy=AHEAD)
    return taken["ours"] * 1e3, taken["torch"] * 1e3


def case(given: argparse.Namespace, number: int) -> Case:
    """The case of that number."""
    shapes = Shapes(f"{given.seed} {number}", given.device)
    torch.manual_seed(number)
    return shapes.case(shapes.random.choice(given.only or OPERATORS))


def compiled(given: argparse.Namespace, number: int) -> str:
    """What is wrong with a case; its kernels are in the cache."""
    torch.cuda.set_device(number % torch.cuda.device_count())
    now = case(given, number)
    try:
        now.calls()
        torch.cuda.synchronize()
    except Exception as error:  # said by the process that asked
        return f"{now.operator} {now.shape}: {error}"
    finally:
        torch.cuda.empty_cache()
    return ""


def numbers(given: argparse.Namespace, wrong: list[str]) -> Iterator[int]:
    """Of cases that are timed: on a CPU as long as there is time, on a GPU those that are compiled and right; what others say is
    added to `wrong`."""
    if given.device == "cpu":
        end, number = time.monotonic() + given.seconds, 0
        while time.monotonic() < end:
            yield number
            number += 1
        return
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(partial(compiled, given), range(given.cases)))
    wrong += filter(None, found)
    yield from (number for number, error in enumerate(found) if not error)


def main() -> int:
    """1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(LIMITS), default="cpu")
    parser.add_argument("--seconds", type=float, default=120, help="on a CPU")
    parser.add_argument("--cases", type=int, default=300, help="on a GPU")
    parser.add_argument("--jobs", type=int, default=15, help="on a GPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=OPERATORS)
    given = parser.parse_args()
    timed: Callable[[tuple[Callable[[], Any], Callable[[], Any]]], tuple[float, float]] = microseconds
    if given.device == "cpu":
        os.environ["TILELANG_NUM_THREADS"] = "1"  # before the first launch
        torch.set_num_threads(1)
        keep_freed_memory()
    else:
        sys.path.insert(0, str(Path(__file__).parent / "gpu"))  # its `measure` before the one here
        timed = partial(on_gpu, flush=torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    ratios: dict[str, list[float]] = {}
    slow: dict[str, list[float]] = {}
    wrong: list[str] = []
    for number in numbers(given, wrong):
        now = case(given, number)
        calls = now.calls()
        ours, theirs = timed(calls)
        if theirs < SLOWER * ours:
            again = timed(calls)
            ours, theirs = max((ours, theirs), again, key=lambda pair: pair[1] / pair[0])
        ratios.setdefault(now.operator, []).append(theirs / ours)
        if theirs < PRINTED * ours:
            slow.setdefault(now.operator, []).append(ours - theirs)
            print(f"{now.operator} {now.shape}: {ours:.1f} us, torch {theirs:.1f} ({theirs / ours:.2f})", flush=True)
    for operator, found in sorted(ratios.items()):
        behind = slow.get(operator, [])
        by_more = sum(apart >= 1 for apart in behind)
        print(
            f"{operator}: {len(found)} cases, {len(behind)} slower, {by_more} of them by 1 us and more; "
            f"median {statistics.median(found):.2f}"
        )
    print(*(f"WRONG {said}" for said in wrong), sep="\n", end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
