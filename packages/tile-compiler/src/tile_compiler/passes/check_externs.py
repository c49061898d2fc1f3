"""Refuse instructions of other processors before anything is lowered."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir
from tilelang.language.hints import PTX


def check_externs(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """The function itself, or UnsupportedOnTarget for a `T.ptx`, which this target does not have.

    before:     x = T.call_extern("int32", "ptx:add.s32", a, b)
    after:      an error with the instruction and its line
    """
    for stmt in tile_ir.walk(func.body):
        if not isinstance(stmt, tir.Bind | tir.Evaluate | tir.BufferStore):
            continue
        for node in tile_ir.walk(stmt):
            if is_call(node, "tirx.call_extern") and str(node.args[0].value).startswith(PTX):
                raise no_ptx(str(node.args[0].value)[len(PTX) :], stmt.span)
    return func


def no_ptx(opcode: str, span: Any) -> UnsupportedOnTarget:
    """The error of an instruction on a processor that has none of PTX's."""
    return UnsupportedOnTarget(
        f"T.ptx({opcode!r}) on a target that is no NVIDIA GPU",
        at=span,
        found="a PTX instruction",
        expected="operators and arithmetic of the language",
        repair="T.call_extern with T.import_source, or execution='interpret' with meaning=",
    )
