"""A product on a CPU, by panels of B (`tile_ops.gemm_panels`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tile_ops.again import aligned, launched, offer
from tile_ops.gemm_panels.configs import panels_of_a_block
from tile_ops.kernel import Resolved
from tile_ops.operator import Call
from tile_ops.scratch import scratch

from .problem import GemmProblem


def multiply(call: Call[GemmProblem], a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """c = a @ b, (batch, m, k) @ (batch, k, n) of float32: some matrices and parts of k one after the other, of each the
    panels of b first."""
    has = call.numbers
    batch, steps, at_once, matrices = c.shape[0], has["steps"], has["at_once"], has["matrices"]
    rows = -(-call.problem.m // has["height"])
    each = panels_of_a_block(rows, has["panels"], torch.get_num_threads(), matrices)
    shape = (matrices, at_once, has["panels"], has["depth"], has["width"])
    panels = scratch(math.prod(shape))[: math.prod(shape)].view(shape)
    for begin in range(0, batch, matrices):
        some = slice(begin, begin + matrices)
        for first in range(0, steps, at_once):
            part = panels[: batch - begin, : steps - first]
            call["pack"](b[some], part, first)
            call["multiply"](a[some], part, c[some], first, each)


@dataclass(frozen=True)
class PreparedPanels:
    """The two kernels of a product whose panels are all packed at once, its shapes, strides and numbers fixed; the panels
    have so many `elements`, for `threads` threads."""

    pack: Resolved
    product: Resolved
    elements: int
    threads: int

    @classmethod
    def of(cls, call: Call[GemmProblem], a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> PreparedPanels | None:
        """For operands as the kernels take them; None where parts are packed one after the other."""
        has, batch, threads = call.numbers, c.shape[0], torch.get_num_threads()
        if has["at_once"] < has["steps"] or has["matrices"] < batch or not aligned(a, b, c):
            return None
        each = panels_of_a_block(-(-call.problem.m // has["height"]), has["panels"], threads, batch)
        panels = torch.empty(batch, has["steps"], has["panels"], has["depth"], has["width"])
        pack, product = call["pack"].prepared(b, panels, 0), call["multiply"].prepared(a, panels, c, 0, each)
        return cls(pack, product, panels.numel(), threads)

    def run(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor) -> bool:
        """Whether it could: computes c for operands of the first call's shapes, strides and types. There is no bias."""
        if not self._same_threads() or not aligned(a, b, c):
            return False
        panels = scratch(self.elements)
        self.pack(b, panels)
        self.product(a, panels, c)
        launched(self.pack, b, panels)
        launched(self.product, a, panels, c)
        offer(c, scratch=(panels, self.elements), still=self._same_threads)
        return True

    def _same_threads(self) -> bool:
        return torch.get_num_threads() == self.threads
