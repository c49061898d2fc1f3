"""`grouped_matmul` on torch tensors."""

from __future__ import annotations

import torch

from tile_ops.again import offer
from tile_ops.autocast import floats
from tile_ops.gemm.api import MATMUL, multiply
from tile_ops.gemm.operands import in_place
from tile_ops.gemm.problem import GemmProblem
from tile_ops.kernel import target_of
from tile_ops.operator import Call, Operator
from tile_ops.registration import operation

from .configs import of_one, plan
from .problem import GroupedProblem

GROUPED_MATMUL = Operator(
    "grouped_matmul",
    GroupedProblem.of,
    plan,
    lambda x, weights, group_sizes, **_: target_of(x, weights, group_sizes),
    autocast=floats,
)


@GROUPED_MATMUL.public
def grouped_matmul(
    x: torch.Tensor, weights: torch.Tensor, group_sizes: torch.Tensor, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Consecutive rows of x times a matrix for each group: a layer of experts whose tokens are sorted by expert.

    x: (tokens, k), weights: (groups, k, n), group_sizes: (groups,) int32 or int64 on the same device, read there and
    nowhere else; result: (tokens, n), contiguous. The first group_sizes[0] rows are multiplied by weights[0], and so on;
    groups may be empty, rows behind the last group become 0, and sizes that exceed the rows are cut. float16, bfloat16
    or float32, x and weights of one type; the result of any, by default theirs.

    Weights are read in place, also transposed ones: weights.mT of (groups, n, k). Products are summed in float32 and
    rounded once. Equal calls give equal bits; a row's result depends on that row and its group's weight alone, as long as
    the number of tokens chooses the same kernels. x and weights have gradients. Raises WrongShape, WrongDtype, WrongDevice.

    Source: Gale et al., MegaBlocks, 2022: products of groups of any size.
    """
    return grouped_operation(x, weights, group_sizes, out_dtype)


@operation("grouped_matmul", public=grouped_matmul)
def grouped_operation(
    x: torch.Tensor, weights: torch.Tensor, group_sizes: torch.Tensor, out_dtype: torch.dtype | None
) -> torch.Tensor:
    call = GROUPED_MATMUL.call(x, weights, group_sizes, out_dtype=out_dtype)
    problem = call.problem
    out = x.new_empty((problem.tokens, problem.n), dtype=out_dtype or x.dtype)
    if not out.numel():
        return out
    if not problem.groups or not problem.k:
        return out.zero_()
    if "schedule" not in call:
        return _each_group(call, x, weights, group_sizes, out)
    # Each group, and the rows behind the last, fill all of their tiles but one.
    count = problem.tokens // call.numbers["block_m"] + problem.groups + 1
    slots = torch.empty((count, 3), dtype=torch.int32, device=x.device)
    call.run("schedule", group_sizes.contiguous(), slots, numbers=(problem.tokens,))
    rows, matrices = x if x.stride(1) == 1 else x.contiguous(), in_place(weights)[0]
    if matrices.data_ptr() == weights.data_ptr():
        call.run("product", rows, weights, slots, out, views=_matrices_in_place)
        offer(out, temporary=(slots,))
    else:
        call["product"](rows, matrices, slots, out)
    return out


def _each_group(
    call: Call[GroupedProblem], x: torch.Tensor, weights: torch.Tensor, group_sizes: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    """On a CPU: the product of each group as `matmul` makes it, all by the kernels of `of_one`."""
    product: Call[GemmProblem] = call.kept.get("product") or Call(MATMUL, of_one(call.problem), call.target)
    call.kept["product"] = product
    rows, matrices = x if x.stride(1) == 1 else x.contiguous(), in_place(weights)[0]
    first = 0
    for group, size in enumerate(group_sizes.tolist()):
        end = min(first + max(size, 0), call.problem.tokens)
        if end > first:
            multiply(product, rows[None, first:end], matrices[group : group + 1], None, out[None, first:end])
        first = end
    out[first:].zero_()
    return out


def _matrices_in_place(
    x: torch.Tensor, weights: torch.Tensor, slots: torch.Tensor, out: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """As the kernel takes them."""
    return x, in_place(weights)[0], slots, out


@grouped_operation.register_fake
def _(x: torch.Tensor, weights: torch.Tensor, group_sizes: torch.Tensor, out_dtype: torch.dtype | None) -> torch.Tensor:
    return x.new_empty((x.shape[0], weights.shape[2]), dtype=out_dtype or x.dtype)


grouped_operation.register_autocast()
