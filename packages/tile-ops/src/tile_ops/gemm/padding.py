"""Operands whose rows begin anywhere, copied to rows at multiples of 16 bytes: GPUs copy such tiles in bulk."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.again import launched, offer
from tile_ops.kernel import KernelSpec, Resolved, Target
from tile_ops.operator import Call

from .prepared import TURNS, Prepared
from .problem import GemmProblem
from .tiles import ITEMSIZE

#: Bytes at multiples of which a bulk copy's rows begin.
ROW = 16
#: Products from which on a copy of operands costs less than it brings, where they are not of 16 bits: 1000 x 5120 x 777 by single
#: elements ran at 65 TFLOP/s on an H200, in whole rows at 340 (22 November 2026).
WORTH = 1 << 28
#: Of 16 bits: microseconds of STEP_ELEMENTS along k by single elements, and of a result's tile, where so many blocks of TILE by
#: TILE run at once, and of a product's beginning and end; products and bytes in a microsecond in whole rows; microseconds of a
#: copy, and its bytes in one, of rows that are not whole and that are. An H200 by single elements, us: 1144x705x144 24, gradients
#: of its operands 37, 197x452x244 9.4, 8x13216x7837 466, 7837x13216x8 530; copies of 5 MB 5.5, of whole rows of 10.8 MB 6.4
#: (30 November 2026).
STEP, STEP_ELEMENTS, STORED, TILE, BLOCKS, START = 1.8, 64, 1.0, 64, 132, 4.0
MULTIPLIED, READ, COPY, COPIED, COPIED_WHOLE = 2e8, 3e6, 2.5, 1.7e6, 3.4e6
#: Types of elements that a kernel copies; torch copies others.
COPIED_TYPES = ("float16", "bfloat16", "float32")
#: The role of the kernel that copies.
ROLE = "whole_rows"


def kernels(problem: GemmProblem, target: Target) -> dict[str, KernelSpec]:
    """What copies operands of contiguous matrices, where that is worth it."""
    if target.kind != "cuda" or problem.dtype not in COPIED_TYPES or is_whole(problem) or not pays(problem):
        return {}
    return {ROLE: kernel(problem.dtype)}


def kernel(dtype: str) -> KernelSpec:
    """The kernel that copies."""
    return KernelSpec.of("gemm", "whole_rows", None, dtype=dtype)


def is_needed(call: Call[GemmProblem], *tensors: torch.Tensor) -> bool:
    """Whether the call's operands, or its result, are copied: where its plan says so, and where strides alone are to blame, or
    where no kernel copies such elements."""
    if has_whole_rows(*tensors):
        return False
    if ROLE in call:
        return True
    problem = call.problem
    if any(role in call for role in ("gemv", "direct", "combine")) or not pays(problem):
        return False
    if problem.dtype not in COPIED_TYPES:
        return True
    ragged = [x for x in tensors if not has_whole_rows(x)]
    copies = sum(2 * COPY + 2 * x.numel() * x.element_size() / COPIED for x in ragged)
    return is_whole(problem) and (ITEMSIZE[problem.dtype] != 2 or copied(problem) + copies < alone(problem))


def is_whole(problem: GemmProblem) -> bool:
    """Whether all rows of contiguous matrices begin at multiples of ROW bytes."""
    return _extents(problem) == (problem.m, problem.n, problem.k)


def pays(problem: GemmProblem) -> bool:
    """Whether rows that begin anywhere are worth a copy: one plain product, with work enough for each element."""
    if problem.batch != 1 or problem.scales or problem.gradient:
        return False
    if ITEMSIZE[problem.dtype] != 2:
        return problem.m >= 64 and problem.m * problem.n * problem.k >= WORTH
    return copied(problem) < alone(problem)


def alone(problem: GemmProblem) -> float:
    """Microseconds of a product of 16 bits by single elements."""
    tiles = problem.batch * -(-problem.m // TILE) * -(-problem.n // TILE)
    return START + max(1.0, tiles / BLOCKS) * (-(-problem.k // STEP_ELEMENTS) * STEP + STORED)


def copied(problem: GemmProblem) -> float:
    """Microseconds of one with copies of what has no whole rows."""
    m, n, k, size = problem.m, problem.n, problem.k, ITEMSIZE[problem.dtype]
    whole_m, whole_n, whole_k = _extents(problem)
    ragged_a = m != whole_m if problem.transpose_a else k != whole_k
    ragged_b = k != whole_k if problem.transpose_b else n != whole_n
    # Elements of each matrix, whether it is copied, and whether its rows are not whole.
    matrices = (
        (m * k, (m, k) != (whole_m, whole_k), ragged_a),
        (k * n, (k, n) != (whole_k, whole_n), ragged_b),
        (m * n, (m, n) != (whole_m, whole_n), n != whole_n),
    )
    found = START + max(m * n * k / MULTIPLIED, size * sum(count for count, *_ in matrices) / READ)
    for count, is_copied, ragged in matrices:
        found += COPY + 2 * size * count / (COPIED if ragged else COPIED_WHOLE) if is_copied else 0.0
    return found


def has_whole_rows(*tensors: torch.Tensor) -> bool:
    """Whether every row of (batch, rows, columns) begins and ends at a multiple of ROW bytes."""
    return not any(
        x.shape[2] * x.element_size() % ROW or x.stride(1) * x.element_size() % ROW or x.data_ptr() % ROW
        for x in tensors
    )


def _extents(problem: GemmProblem, along_k: bool = False) -> tuple[int, int, int]:
    """m, n and k of a product of whole rows: those that lie along rows of an operand, or of the result. `along_k`: k does, even
    where it does not in the operands that are given."""
    unit = ROW // ITEMSIZE[problem.dtype]
    whole_m, whole_n, whole_k = (-(-extent // unit) * unit for extent in (problem.m, problem.n, problem.k))
    along_k = along_k or not problem.transpose_a or problem.transpose_b
    return whole_m if problem.transpose_a else problem.m, whole_n, whole_k if along_k else problem.k


@dataclass(frozen=True)
class Padded:
    """A product of whole rows with that of `problem` in its corner: zeros behind k add nothing."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    c: torch.Tensor

    @classmethod
    def of(
        cls,
        call: Call[GemmProblem],
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        c: torch.Tensor,
    ) -> Padded:
        """Copies of what has no whole rows; `c` itself where it has them, a tensor for the result elsewhere."""
        problem, copy = call.problem, call[ROLE] if ROLE in call else None
        m, n, k = _extents(problem, any(turns in call for turns in TURNS))
        if bias is not None and n != problem.n:
            bias = _filled(bias.view(1, 1, -1), (1, 1, n), copy if bias.dtype == a.dtype else None).view(n)
        return cls(
            _filled(a, (1, k, m) if problem.transpose_a else (1, m, k), copy),
            _filled(b, (1, n, k) if problem.transpose_b else (1, k, n), copy),
            bias,
            c if (m, n) == (problem.m, problem.n) and has_whole_rows(c) else c.new_empty((1, m, n)),
        )

    def unpack(self, call: Call[GemmProblem], c: torch.Tensor) -> None:
        """The result, where it was asked for."""
        if self.c is c:
            return
        if ROLE in call and c.dtype == self.a.dtype:
            call[ROLE](self.c, c)
        else:
            c.copy_(self.c[:, : c.shape[1], : c.shape[2]])


def _filled(x: torch.Tensor, shape: tuple[int, ...], copy: Resolved | None) -> torch.Tensor:
    """`x` with zeros behind it up to `shape`; itself where it has that shape and whole rows."""
    if x.shape == shape and has_whole_rows(x):
        return x
    if copy is not None:
        wide = x.new_empty(shape)
        copy(x, wide)
        return wide
    wide = x.new_zeros(shape)
    wide[:, : x.shape[1], : x.shape[2]] = x
    return wide


@dataclass(frozen=True)
class PreparedPadded:
    """As `Prepared`, with the copies around its product: of a, b and the bias before it and of the result behind it, each with
    the shape of the copy, or None."""

    product: Prepared
    copies: tuple[tuple[Resolved, tuple[int, ...]] | None, ...]

    @classmethod
    def of(
        cls,
        call: Call[GemmProblem],
        given: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor],
        rows: Padded,
        no_bias: torch.Tensor | None,
    ) -> PreparedPadded | None:
        """For the operands and the result of a call like this one; None where its product cannot be prepared, or copies are not
        kernels of the call."""
        bias = no_bias if rows.bias is None else rows.bias
        product = Prepared.of(call, rows.a, rows.b, bias, rows.c, 1)
        if product is None or ROLE not in call:
            return None
        copies: list[tuple[Resolved, tuple[int, ...]] | None] = []
        for one, wide in zip(given, (rows.a, rows.b, rows.bias, rows.c)):
            if one is wide or one is None or wide is None:
                copies.append(None)
                continue
            if one.dtype != rows.a.dtype:  # torch copies it
                return None
            pair = [x.view(1, 1, -1) if x.ndim == 1 else x for x in (one, wide)]
            first, second = pair if wide is not rows.c else reversed(pair)
            copies.append((call[ROLE].prepared(first, second), tuple(wide.shape)))
        return cls(product, tuple(copies))

    def run(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor) -> bool:
        """As of `Prepared`."""
        wide: list[torch.Tensor | None] = [a, b, bias]
        temporary: list[torch.Tensor] = []
        for place, (given, copy) in enumerate(zip((a, b, bias), self.copies)):
            if copy is not None and given is not None:
                wide[place] = made = given.new_empty(copy[1])
                copy[0](given, made)
                launched(copy[0], given, made)
                temporary.append(made)
        back = self.copies[3]
        result = c if back is None else c.new_empty(back[1])
        found = self.product.launch(wide[0], wide[1], wide[2], result)
        if found is None:
            return False
        if back is not None:
            back[0](result, c)
            launched(back[0], result, c)
            temporary.append(result)
        offer(c, temporary=[*temporary, *found], still=self.product.still)
        return True
