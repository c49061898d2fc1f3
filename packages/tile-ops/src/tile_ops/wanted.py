"""Which gradients a backward pass asks for.

`ctx.needs_input_grad` says which operands required gradients in the forward pass. `torch.autograd.grad(y, x)` wants those of x
alone, though a layer's weights require them too: torch's own operators ask its engine, and so does this.
"""

from __future__ import annotations

from typing import Any

import torch

#: Multiplications of a product that takes long enough to ask: 1 us, and 17 for each leaf that `torch.autograd.grad` does want,
#: for which the engine throws an error (gradients of 64x256x256, 60 us a product of float32, took 30 us longer).
WORTH_ASKING = 1 << 24


def worth_asking(work: int) -> bool:
    """Whether a product of so many multiplications is."""
    return work >= WORTH_ASKING


def wanted(ctx: Any, operand: int, place: int) -> bool:
    """Whether the backward pass that runs asks for the gradient of argument `operand`, tensor number `place` of the call."""
    if not ctx.needs_input_grad[operand]:
        return False
    if torch.compiler.is_dynamo_compiling():
        return True
    try:
        node, _ = ctx.next_functions[place]
        return node is None or torch._C._will_engine_execute_node(node)
    except (AttributeError, RuntimeError):
        # A context of torch.func has no functions; a leaf that `torch.autograd.grad` wants is one the engine refuses to tell of.
        return True
