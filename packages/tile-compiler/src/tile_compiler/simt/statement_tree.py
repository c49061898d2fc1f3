"""A kernel's statements as a tree into which synchronization can be put."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.memory_effects import Effect
from tilelang.ir import tile_ir

BLOCK_BARRIERS = (
    "tl::sync_threads",
    "tl::cluster_sync",
    "tl::sync_grid",
)  # of all threads of the block, and perhaps of others


@dataclass
class Node:
    """A statement that can get barriers before its parts. `kind`: seq, loop, while, branch, scope, leaf; again: the
    condition of a `while`, which is looked at once more where its body ends."""

    kind: str
    stmt: Any
    parts: list[Node] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)


def is_barrier(stmt: Any) -> bool:
    """Whether a statement is a barrier of the block, or of more."""
    return called(stmt) in BLOCK_BARRIERS


def called(stmt: Any) -> str:
    """The name of the function that a statement calls; "" for other statements."""
    call = stmt.value if isinstance(stmt, tir.Evaluate) else None
    return str(call.args[0].value) if call is not None and is_call(call, "tirx.call_extern") else ""


def leaves(stmt: Any) -> bool:
    """Whether a statement is `break` or `continue`."""
    return isinstance(stmt, tir.Evaluate) and is_call(stmt.value, "tirx.break_loop", "tirx.continue_loop")


def below(node: Node) -> Iterator[Node]:
    """The parts of a node, at any depth."""
    for part in node.parts:
        yield part
        yield from below(part)


def copied(node: Node) -> Node:
    return Node(node.kind, node.stmt, [copied(p) for p in node.parts], node.effects)


def barriers(node: Node) -> int:
    """How many barriers of the block stand in a node."""
    return sum(n.kind == "leaf" and is_barrier(n.stmt) for n in below(node))


def in_front(parts: list[Node], position: int) -> int:
    """Where synchronization for a statement goes: in front of what prepares registers for it."""
    if position and called(parts[position - 1].stmt) == "tl::wgmma_fence":
        position -= 1
        while position and called(parts[position - 1].stmt).startswith("tl::wgmma_hold"):
            position -= 1
    return position


def waits(stmt: Any) -> bool:
    """Whether a statement synchronizes, or leaves a loop."""
    return any(
        is_call(n, "tirx.break_loop", "tirx.continue_loop")
        or (
            is_call(n, "tirx.call_extern")
            and str(n.args[0].value).startswith(("tl::sync", "tl::cluster_sync", "tl::cp_async", "tl::wgmma"))
        )
        for n in tile_ir.walk(stmt, ir.Call)
    )
