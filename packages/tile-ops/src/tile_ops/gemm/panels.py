"""A product on a CPU, by panels of B (`tile_ops.gemm_panels`)."""

from __future__ import annotations

import torch

from tile_ops.gemm_panels.configs import panels_of_a_block
from tile_ops.operator import Call

from .problem import GemmProblem


def multiply(call: Call[GemmProblem], a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """c = a @ b, (1, m, k) @ (1, k, n) of float32: parts of k one after the other, of each the panels of b first."""
    has = call.numbers
    steps, at_once = has["steps"], has["at_once"]
    each = panels_of_a_block(call.problem.m, has["panels"], torch.get_num_threads())
    panels = c.new_empty((at_once, has["panels"], has["depth"], has["width"]))
    for first in range(0, steps, at_once):
        part = panels[: steps - first]
        call["pack"](b, part, first)
        call["multiply"](a, part, c, first, each)
