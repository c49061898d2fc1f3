"""What a function may no longer contain once a pass has run, checked after every pass of every compilation.

The comments in the pipelines say the same in words; here they are held. A violation is a mistake of the compiler, not
of the user: an AssertionError that names the pass and the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir
from tilelang.ops import OPERATORS

Finding = Callable[[Any], str | None]


def _annotated_loop(key: str, what: str) -> Finding:
    def find(node: Any) -> str | None:
        return what if isinstance(node, tir.For) and node.annotations and key in node.annotations else None

    return find


def _calls(*names: str) -> Finding:
    return lambda node: f"a call of {node.op.name}" if is_call(node, *names) else None


def _thread(node: Any) -> str | None:
    launches = isinstance(node, tir.AttrStmt) and node.attr_key == "thread_extent"
    return "a thread axis" if launches and "threadIdx" in str(node.node.thread_tag) else None


def _region(node: Any) -> str | None:
    return f"a region of {node.source.name}" if isinstance(node, ir.TensorRegion) else None


def _unplaced(node: Any) -> str | None:
    if not isinstance(node, tir.AllocBuffer) or not str(node.buffer.scope()).startswith("shared"):
        return None
    return None if node.annotations and "tl.offset" in node.annotations else f"{node.buffer.name} without an offset"


def _fragment(node: Any) -> str | None:
    held = isinstance(node, tir.AllocBuffer) and str(node.buffer.scope()) in tile_ir.FRAGMENT
    return f"the fragment {node.buffer.name}" if held else None


_TILE_OPERATORS = _calls(*OPERATORS)
_PARALLEL = _annotated_loop(tile_ir.PARALLEL, "a T.Parallel loop")

# pass -> what is gone from there on. Names are those of the pipelines.
GONE: dict[str, tuple[Finding, ...]] = {
    "plan_pipeline": (_annotated_loop(tile_ir.PIPELINED, "a pipelined loop"),),
    "drop_hints": (_calls("tl.hint", "tl.annotate_layout"),),
    "serialize_threads": (_thread,),
    "lower_tile_ops": (_TILE_OPERATORS, _region),
    "lower_parallel": (_PARALLEL,),
    "plan_scratch": (_unplaced,),
    "lower_operators": (_TILE_OPERATORS, _region, _PARALLEL, _fragment),
    "plan_shared_memory": (_unplaced,),
    "lower_atomics": (_calls("tl.atomic_elem"),),
}


def check_border(name: str, func: tir.PrimFunc, gone: list[Finding]) -> None:
    """Check `func` after the pass `name`; `gone` collects the rules of the passes so far, in one compilation."""
    gone += GONE.get(name, ())
    if not gone:
        return
    for node in tile_ir.walk(func.body):
        for rule in gone:
            found = rule(node)
            assert found is None, f"after the pass {name} the function still holds {found}"
