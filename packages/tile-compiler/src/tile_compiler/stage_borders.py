"""What a function may no longer contain once a pass has run, checked after every pass of every compilation.

The comments in the pipelines say the same in words; here they are held. A violation is a mistake of the compiler, not
of the user: an AssertionError that names the pass and the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tilelang.ir import tile_ir
from tilelang.ops import OPERATORS


@dataclass(frozen=True)
class Rule:
    """What `find` says of a node of the class `of` that may not be there; None: it may."""

    of: type
    find: Callable[[Any], str | None]


def _annotated_loop(key: str, what: str) -> Rule:
    return Rule(tir.For, lambda node: what if node.annotations and key in node.annotations else None)


def _calls(*names: str) -> Rule:
    gone = frozenset(names)

    def find(node: Any) -> str | None:
        name = getattr(node.op, "name", "")
        return f"a call of {name}" if name in gone else None

    return Rule(ir.Call, find)


def _thread(node: Any) -> str | None:
    is_axis = node.attr_key == "thread_extent" and "threadIdx" in str(node.node.thread_tag)
    return "a thread axis" if is_axis else None


def _unrolled(node: Any) -> str | None:
    return "an unrolled loop" if node.kind == tir.ForKind.UNROLLED else None


def _region(node: Any) -> str | None:
    return f"a region of {node.source.name}"


def _unplaced(node: Any) -> str | None:
    if not str(node.buffer.scope()).startswith("shared"):
        return None
    return None if node.annotations and "tl.offset" in node.annotations else f"{node.buffer.name} without an offset"


def _fragment(node: Any) -> str | None:
    return f"the fragment {node.buffer.name}" if str(node.buffer.scope()) in tile_ir.FRAGMENT else None


_TILE_OPERATORS = _calls(*OPERATORS)
_PARALLEL = _annotated_loop(tile_ir.PARALLEL, "a T.Parallel loop")
_REGION = Rule(ir.TensorRegion, _region)
_UNPLACED = Rule(tir.AllocBuffer, _unplaced)

# pass -> what is gone from there on. Names are those of the pipelines.
GONE: dict[str, tuple[Rule, ...]] = {
    "exchange_by_memory": (_calls("tl.shuffle"),),
    "lower_shuffles": (_calls("tl.shuffle"),),
    "plan_pipeline": (_annotated_loop(tile_ir.PIPELINED, "a pipelined loop"),),
    "drop_hints": (_calls("tl.hint", "tl.annotate_layout"),),
    "unroll_loops": (Rule(tir.For, _unrolled),),
    "serialize_threads": (Rule(tir.AttrStmt, _thread),),
    "lower_tile_ops": (_TILE_OPERATORS, _REGION),
    "lower_parallel": (_PARALLEL,),
    "plan_scratch": (_UNPLACED,),
    "lower_operators": (_TILE_OPERATORS, _REGION, _PARALLEL, Rule(tir.AllocBuffer, _fragment)),
    "plan_shared_memory": (_UNPLACED,),
    "lower_atomics": (_calls("tl.atomic_elem"),),
}


def check_border(name: str, before: tir.PrimFunc, func: tir.PrimFunc, gone: list[Rule]) -> None:
    """Check `func`, which the pass `name` made of `before`; `gone` collects the rules of one compilation's passes so far."""
    new = GONE.get(name, ())
    if not new and func.body.same_as(before.body):
        return  # as it was checked
    gone += new
    found: list[str] = []
    callbacks = []
    for of in {rule.of: None for rule in gone}:
        rules = [rule.find for rule in gone if rule.of is of]

        def look(node: Any, rules: list[Any] = rules) -> None:
            found.extend(what for what in (find(node) for find in rules) if what is not None)

        callbacks.append((of, look))
    if callbacks:  # a walk that meets nodes of these classes only
        tvm_ffi.structural_walk(func.body, callbacks, order="pre")
    assert not found, f"after the pass {name} the function still holds {found[0]}"
