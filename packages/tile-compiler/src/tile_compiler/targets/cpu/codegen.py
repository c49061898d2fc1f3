"""Lowered launches -> one ELF object.

Each launch becomes two functions: the C entry of `docs/internals/runtime.md` (*CPU launches*), which reads the
pointers, and an inner function over pointers that LLVM may assume not to overlap, which loops over the blocks.

The steps: flatten buffers, split and vectorize loops, legalise types, lower what LLVM's code generator does not know,
then add the LLVM text of the helpers that the result calls.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tilelang.ir import tile_ir

from .divide_once import divide_once
from .expressions import dtype_of, op_name
from .features import CpuFeatures
from .flatten import FlatBody, flatten, widen
from .legal_memory import LegalMemory
from .legalize_types import legalize
from .library import function_text, inline_text
from .lowered import LoweredLaunch
from .tile_kernels import CONFIGURE, RELEASE, uses_tiles
from .vectorize import split_vector_loops

_HELPER = re.compile(r"tl\.\w+\.")


@dataclass(frozen=True)
class BuiltObject:
    """An x86-64 relocatable ELF object. `symbols` are the entries, in the order of the launches.

    `llvm_ir` is the optimised LLVM IR of the whole object.
    """

    object: bytes
    symbols: tuple[str, ...]
    llvm_ir: str
    _inspect: Callable[[str], str]

    @property
    def asm(self) -> str:
        """The assembly text, written when asked for."""
        return self._inspect("asm")


def build_object(functions: Sequence[LoweredLaunch], features: CpuFeatures, *, opt_level: int = 3) -> BuiltObject:
    """Compiles launches into one object for machines with `features`."""
    target = tvm.target.Target(features.target(opt_level))
    inner, entries, called = {}, [], set()
    for launch in functions:
        func, entry, helpers = inner_function(launch, features)
        inner[f"{launch.symbol}__blocks"] = func.with_attr("target", target)
        entries.append(entry)
        called |= helpers
    module = tir.transform.LowerIntrin()(tvm.IRModule(inner))
    optimised = tvm.get_global_func("target.build.llvm")(module, target).inspect_source("ll")
    # TVM's functions can only return 0, and it inlines all functions of imported text: the entries and the large
    # helpers join here. They pass LLVM's code generator only, which is all that such text needs.
    text = without_debug_info(optimised)
    text = "\n".join([without_helper_declarations(text), function_text(called, text), *entries])
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "kernel.ll", Path(folder) / "kernel.o"
        source.write_text(text)
        final = tvm.runtime.load_module(str(source))
        final.write_to_file(str(output), "o")
        data = output.read_bytes()
    return BuiltObject(data, tuple(launch.symbol for launch in functions), text, final.inspect_source)


_DEBUG = re.compile(r", !dbg !\d+|!dbg !\d+ (?=\{)|^ *#dbg_.*\n|^!llvm\.dbg\.cu.*\n", re.MULTILINE)


def without_debug_info(text: str) -> str:
    """LLVM IR without TVM's debug info (it names no user line, and its sections would triple the object)."""
    return _DEBUG.sub("", text)


def without_helper_declarations(text: str) -> str:
    """LLVM IR without the declarations of `tl.*` helpers, which are about to be defined."""
    kept = (line for line in text.splitlines() if not (line.startswith("declare ") and _HELPER.search(line)))
    return "\n".join(kept)


def inner_function(launch: LoweredLaunch, features: CpuFeatures) -> tuple[Any, str, set[str]]:
    """The function over blocks, with legal types only; the LLVM text of the C entry; the helpers that are called.

    `int32 symbol__blocks(params.., scratch roots.., status, int64 dims.., begin, end)`; the result is always 0.
    """
    flat = flatten(launch)
    begin, end = tir.Var("begin", "int64"), tir.Var("end", "int64")
    raw = [tir.Var(f"{var.name}_raw", "int64") for var in launch.scalars]
    body = divide_once(flat.body, (*launch.block_vars, *launch.scalars))
    body = _block_loop(launch, body, begin, end)
    body = tile_ir.sequence([*_bind_scalars(launch, raw), body])
    body = split_vector_loops(body, features)
    body = _vectorize(body, flat)
    memory = LegalMemory(flat, features)
    body = legalize(body, memory)
    done = tir.Return(tir.const(0, "int32"))
    helpers = helpers_in(body)
    imported = [_import(text)] if (text := inline_text(helpers, features)) else []
    body = tile_ir.sequence([*memory.declarations, body, *imported, done])
    tiles = any(map(uses_tiles, helpers))
    if tiles:
        helpers |= {CONFIGURE, RELEASE}
    func = tir.PrimFunc([*memory.pointers, *raw, begin, end], body, ret_type=ir.PrimType("int32"))
    func = func.with_attr("global_symbol", f"{launch.symbol}__blocks")
    if not launch.may_alias:
        func = func.with_attr("tirx.noalias", True)
    return func, entry_text(launch, flat, tiles), helpers


def _vectorize(body: Any, flat: FlatBody) -> Any:
    """Stock `VectorizeLoop`; it wants a function, so every flat buffer becomes a parameter of a passing one."""
    outside = [f for f, root in flat.roots_of.items() if root.scope != "local"]
    func = tir.PrimFunc(outside, body).with_attr("global_symbol", "main")
    return tir.transform.VectorizeLoop(True)(tvm.IRModule({"main": func}))["main"].body


def helpers_in(body: Any) -> set[str]:
    """Names of the `tl.*` helpers that a body calls."""
    found = set()
    for node in tile_ir.walk(body):
        if op_name(node) in ("call_extern", "call_pure_extern"):
            name = str(node.args[0].value)
            if _HELPER.match(name):
                found.add(name)
    return found


def _import(text: str) -> Any:
    """Links LLVM text into the module (only the functions that are referred to)."""
    return tir.AttrStmt(
        tir.const(0, "int32"), "pragma_import_llvm", ir.StringImm(text), tir.Evaluate(tir.const(0, "int32"))
    )


def _bind_scalars(launch: LoweredLaunch, raw: list[Any]) -> list[Any]:
    """The values of `dims`: integers as they are, floats from the bits of a float64."""
    binds = []
    for var, bits in zip(launch.scalars, raw):
        dtype = dtype_of(var)
        if dtype.startswith(("float", "bfloat")):
            wide = tir.reinterpret("float64", bits)
            value = wide if dtype == "float64" else prim.Cast(dtype, wide)
        elif dtype == "bool":
            value = prim.NE(bits, tir.const(0, "int64"))
        else:
            value = bits if dtype == "int64" else prim.Cast(dtype, bits)
        binds.append(tir.Bind(var, value))
    return binds


def _block_loop(launch: LoweredLaunch, body: Any, begin: Any, end: Any) -> Any:
    """for b in [begin, end): x = b % grid_x; y = b // grid_x % grid_y; z = b // (grid_x * grid_y); body"""
    block = tir.Var("block", "int64")
    stmts, rest = [], block
    for axis, (var, extent) in enumerate(zip(launch.block_vars, launch.grid)):
        last = axis == len(launch.grid) - 1
        # Block indices are not negative, so truncating division is floor division.
        index = rest if last else tir.truncmod(rest, widen(extent))
        stmts.append(tir.Bind(var, index if dtype_of(var) == "int64" else prim.Cast(dtype_of(var), index)))
        if not last:
            rest = tir.truncdiv(rest, widen(extent))
    return tir.For(block, begin, end - begin, tir.ForKind.SERIAL, tile_ir.sequence([*stmts, body]))


def entry_text(launch: LoweredLaunch, flat: FlatBody, tiles: bool = False) -> str:
    """LLVM text of the C entry: loads the arguments and calls the inner function, with tile registers for `tiles`."""
    lines, passed = [], []

    def pointer(slot: int, name: str) -> None:
        lines.append(f"  %{name}.at = getelementptr ptr, ptr %args, i64 {slot}")
        lines.append(f"  %{name} = load ptr, ptr %{name}.at")

    for i in range(len(flat.params)):
        pointer(i, f"p{i}")
        passed.append(f"ptr %p{i}")
    if flat.scratch:
        pointer(len(flat.params), "scratch")
    for i, root in enumerate(flat.scratch):
        lines.append(f"  %s{i} = getelementptr inbounds i8, ptr %scratch, i64 {root.offset}")
        passed.append(f"ptr %s{i}")
    passed.append("ptr %status")
    for i in range(len(launch.scalars)):
        lines.append(f"  %d{i}.at = getelementptr i64, ptr %dims, i64 {i}")
        lines.append(f"  %d{i} = load i64, ptr %d{i}.at")
        passed.append(f"i64 %d{i}")
    passed += ["i64 %begin", "i64 %end"]
    inner = f'@"{launch.symbol}__blocks"'
    return "\n".join(
        [
            f'define i32 @"{launch.symbol}"(ptr %args, ptr %dims, i64 %begin, i64 %end) nounwind {{',
            "  %status = alloca i32",
            "  store i32 0, ptr %status",
            *lines,
            *([f"  call void @{CONFIGURE}()"] if tiles else []),
            f"  %done = call i32 {inner}({', '.join(passed)})",
            *([f"  call void @{RELEASE}()"] if tiles else []),
            "  %code = load i32, ptr %status",
            "  ret i32 %code",
            "}",
            "",
        ]
    )
