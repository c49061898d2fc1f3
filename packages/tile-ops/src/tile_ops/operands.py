"""What a caller gave where a tensor is expected."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .errors import WrongType


def refuse_other_types(
    name: str, function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any] | None = None
) -> None:
    """Raises WrongType for the first argument that is no tensor where `function`, as annotated, takes one.

    For where a call has failed: asked before, it would cost each call as much as to look it up.
    """
    signature = inspect.signature(function)
    given = signature.bind_partial(*arguments, **(options or {})).arguments
    for parameter, value in given.items():
        kinds = str(signature.parameters[parameter].annotation).replace("torch.", "").split(" | ")
        if kinds[0] != "Tensor" or isinstance(value, torch.Tensor) or (value is None and "None" in kinds):
            continue
        repair = "give one" if value is None else f"torch.as_tensor({parameter})"
        found = (
            "None"
            if value is None
            else f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")
        )
        raise WrongType(f"{name}: {parameter} is {found}; a torch.Tensor is expected: {repair}")
