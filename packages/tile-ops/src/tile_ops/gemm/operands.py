"""How tensors of any shape and strides become the (batch, rows, columns) that a kernel reads in place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tile_ops.errors import WrongShape

#: Matrices of a whose rows do not make one by a view are copied, if b serves them all, on a CPU where each has at most so many
#: rows and the product so many multiplications: b is read once instead of once for each. EPYC, ms, as they lie and copied:
#: float32 4 of 16x768x3072 2.09, 1.62, 64 of 2x512x512 0.74, 0.34; bfloat16 1.37, 0.94, 0.56, 0.31; but 8 of 128x1024x1024 8.7,
#: 9.5, 2 of 4x256x256 0.006, 0.069: a call that copies is looked up anew each time.
MOST_ROWS_COPIED, LEAST_WORK_COPIED = 32, 1 << 25


@dataclass(frozen=True)
class Operands:
    """A product as the kernels take it.

    `a` is (batch_a, m, k), or (batch_a, k, m) if `transpose_a`, and contiguous along its last dimension; `b` alike.
    Product z takes of each operand matrix z ("each"), 0 ("shared"), z // repeat ("repeated") or z % batch ("cycled").
    `shape` is that of the result.
    """

    a: torch.Tensor
    b: torch.Tensor
    transpose_a: bool
    transpose_b: bool
    batch_a: str
    batch_b: str
    repeat: int
    shape: tuple[int, ...]
    batch: int
    m: int
    n: int
    k: int

    def views(self, a: torch.Tensor, b: torch.Tensor) -> Views | None:
        """The same of operands like `a` and `b`, from which this was made; None if that takes a copy."""
        if a.numel() == 0 or b.numel() == 0 or self.a.data_ptr() != a.data_ptr() or self.b.data_ptr() != b.data_ptr():
            return None
        return Views((self.a.shape, self.a.stride()), (self.b.shape, self.b.stride()))


@dataclass(frozen=True)
class Views:
    """Shapes and strides under which the kernels read the two operands in place."""

    of_a: tuple[torch.Size, tuple[int, ...]]
    of_b: tuple[torch.Size, tuple[int, ...]]

    def of(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a.as_strided(*self.of_a), b.as_strided(*self.of_b)


def result_shape(name: str, a: torch.Tensor, b: torch.Tensor) -> tuple[int, ...]:
    """(..., m, n) of a product with leading dimensions broadcast. Raises WrongShape."""
    for operand, x in (("a", a), ("b", b)):
        if x.ndim < 2:
            raise WrongShape(
                f"{name}: {operand} has shape {tuple(x.shape)}; it needs rows and columns: {operand}.unsqueeze(...)"
            )
    if a.shape[-1] != b.shape[-2]:
        raise WrongShape(
            f"{name}: a has {a.shape[-1]} columns and b {b.shape[-2]} rows, in shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}; they must be equal: b.mT if b is stored the other way"
        )
    try:
        leading = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        raise WrongShape(
            f"{name}: the leading dimensions {tuple(a.shape[:-2])} of a and {tuple(b.shape[:-2])} of b do not "
            "broadcast; make them equal or 1"
        ) from None
    return (*leading, a.shape[-2], b.shape[-1])


def operands(name: str, a: torch.Tensor, b: torch.Tensor, scaled: bool = False) -> Operands:
    """The product a @ b for the kernels. Raises WrongShape.

    Copies an operand only if neither its rows nor its columns are contiguous, if its leading dimensions do not collapse
    to one, or if dimensions that it lacks lie between or around its own. The rows of `a` that have scales are those of one
    matrix, by a copy if need be; those of few rows each that meet one large matrix are on a CPU.
    """
    shape = result_shape(name, a, b)
    leading, m, n, k = shape[:-2], shape[-2], shape[-1], a.shape[-1]
    if k == 0:  # an empty sum: the kernels read at least one column
        a, b = a.new_zeros((m, 1)), b.new_zeros((1, n))
    elif b.ndim == 2 and a.ndim > 2 and (rows := _as_rows(a, scaled or _worth_a_copy(a, n))) is not None:
        a, leading, m = rows, (), rows.shape[0]
    a, batch_a, repeat_a = _collapse(a, leading)
    b, batch_b, repeat_b = _collapse(b, leading)
    # A column of a's is rows of one element for a CPU's kernels of few rows; a GPU copies it as one row.
    a, transpose_a = in_place(a, across=a.device.type != "cpu")
    b, transpose_b = in_place(b)
    # The last of the leading dimensions is one operand's own, so that at most one operand is repeated.
    repeat = max(repeat_a, repeat_b)
    return Operands(a, b, transpose_a, transpose_b, batch_a, batch_b, repeat, shape, math.prod(leading), m, n, k)


def _worth_a_copy(a: torch.Tensor, n: int) -> bool:
    """Whether a's matrices, which meet the same one of n columns, are better multiplied as the rows of one."""
    return a.device.type == "cpu" and a.shape[-2] <= MOST_ROWS_COPIED and a.numel() * n >= LEAST_WORK_COPIED


def _as_rows(a: torch.Tensor, copied: bool) -> torch.Tensor | None:
    """(..., m, k) as one matrix of all rows, where that takes no copy, or `copied`."""
    try:
        if a.stride(-1) == 1:
            return a.view(-1, a.shape[-1])
    except RuntimeError:
        pass
    return a.contiguous().view(-1, a.shape[-1]) if copied else None


def _collapse(x: torch.Tensor, leading: tuple[int, ...]) -> tuple[torch.Tensor, str, int]:
    """`x` with one leading dimension, how its matrices meet the result's, and how many neighbours share one."""
    matrix, matrices = x.shape[-2:], x.shape[:-2].numel()
    own = (1,) * (len(leading) - x.ndim + 2) + tuple(x.shape[:-2])
    wide = [(extent, mine == extent) for extent, mine in zip(leading, own) if extent != 1]
    kept = [mine for _, mine in wide]
    count = sum(kept)
    if count == len(wide):
        return x.reshape(matrices, *matrix), "each", 1
    if count == 0:
        return x.reshape(1, *matrix), "shared", 1
    if all(kept[:count]):
        return x.reshape(matrices, *matrix), "repeated", math.prod(extent for extent, mine in wide if not mine)
    if all(kept[-count:]):
        return x.reshape(matrices, *matrix), "cycled", 1
    return x.expand(*leading, *matrix).reshape(math.prod(leading), *matrix), "each", 1


def in_place(x: torch.Tensor, across: bool = True) -> tuple[torch.Tensor, bool]:
    """`x` (batch, rows, columns), or its transposed matrices, with contiguous last dimension: if both are, of one column, the
    latter if it is to be read `across`."""
    turned = x.transpose(1, 2)
    order = ((turned, True), (x, False)) if x.shape[2] == 1 and across else ((x, False), (turned, True))
    for view, transposed in order:
        if _readable(view):
            return _with_pitch(view), transposed
    return x.contiguous(), False


def _readable(x: torch.Tensor) -> bool:
    _, rows, columns = x.shape
    return (columns == 1 or x.stride(2) == 1) and (rows == 1 or x.stride(1) >= columns)


def _with_pitch(x: torch.Tensor) -> torch.Tensor:
    """Strides of dimensions of extent 1 mean nothing in torch; kernels want them to be aligned."""
    batch, rows, columns = x.shape
    vector = max(1, 16 // x.element_size())
    pitch = x.stride(1) if rows > 1 else -(-columns // vector) * vector
    plane = x.stride(0) if batch > 1 else -(-rows * pitch // vector) * vector
    return x.as_strided(x.shape, (plane, pitch, 1))


def memory_of_transposed(x: torch.Tensor) -> torch.Tensor:
    """Where matrices (batch, rows, columns) get contiguous columns, each of which begins at a multiple of 16 bytes: of shape
    (batch, columns, rows or a few more)."""
    batch, rows, columns = x.shape
    per = 16 // x.element_size()
    return x.new_empty((batch, columns, -(-rows // per) * per))
