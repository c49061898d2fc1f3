"""A product on a CPU, by panels of B (`tile_ops.gemm_panels`)."""

from __future__ import annotations

import torch

from tile_ops.gemm_panels.configs import panels_of_a_block
from tile_ops.operator import Call

from .problem import GemmProblem


def multiply(call: Call[GemmProblem], a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """c = a @ b, (batch, m, k) @ (batch, k, n) of float32: some matrices and parts of k one after the other, of each the
    panels of b first."""
    has = call.numbers
    batch, steps, at_once, matrices = c.shape[0], has["steps"], has["at_once"], has["matrices"]
    rows = -(-call.problem.m // has["height"])
    each = panels_of_a_block(rows, has["panels"], torch.get_num_threads(), matrices)
    panels = c.new_empty((matrices, at_once, has["panels"], has["depth"], has["width"]))
    for begin in range(0, batch, matrices):
        some = slice(begin, begin + matrices)
        for first in range(0, steps, at_once):
            part = panels[: batch - begin, : steps - first]
            call["pack"](b[some], part, first)
            call["multiply"](a[some], part, c[some], first, each)
