"""`T.ptx`: an instruction by its opcode, as a function of the device header or as inline assembly.

Operands of `asm` and their constraints: https://docs.nvidia.com/cuda/inline-ptx-assembly/, sections 1.1.2 and 1.1.3.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.cfamily.element_types import split
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.instructions.architectures import in_words
from tile_compiler.instructions.matrix_move import MatrixMove
from tile_compiler.instructions.matrix_multiply import MatrixMultiply
from tile_compiler.instructions.registry import declared, matrix_moves
from tile_compiler.passes.check_externs import no_ptx
from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tilelang.ir import tile_ir
from tilelang.language.hints import PTX

# Opcode -> function of the header for operands that are values. Functions that work on arrays are declared in
# `targets/*/instructions`, with their opcodes.
VALUE_FUNCTIONS = {
    "dp4a.s32.s32": "tl::dp4a",
    "dp4a.u32.u32": "tl::dp4a",
    "fma.rn.f16x2": "tl::fma_halves",
    "prmt.b32": "tl::prmt",
}
_CONSTRAINTS = {16: "h", 32: "r", 64: "l"}
_FLOAT_CONSTRAINTS = {"float32": "f", "float64": "d"}


def resolve_ptx(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Calls named `ptx:<opcode>` become calls of functions.

    before:     x = T.call_extern("int32", "ptx:lop3.b32", a, b, c, 150)
    after:      x = T.call_extern("int32", "ptx_lop3_b32", a, b, c)     {a function of that name above the kernel}

    An opcode that has a function in the device header becomes a call of that.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = _Resolve(ctx).statement(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class _Resolve:
    def __init__(self, ctx: SimtContext) -> None:
        self.ctx = ctx
        self.calls: list[tuple[Any, Any]] = []  # (call by opcode, what replaces it)

    def statement(self, body: Any) -> Any:
        for stmt in tile_ir.walk(body):
            if isinstance(stmt, (tir.Evaluate, tir.Bind, tir.BufferStore)):
                self.calls += [(node, self.resolved(node, stmt)) for node in tile_ir.walk(stmt) if _is_ptx(node)]
        return tvm_ffi.structural_map(body, (ir.Call, self.call)) if self.calls else body

    def call(self, node: Any) -> Any:
        return next((new for old, new in self.calls if old.same_as(node)), node)

    def resolved(self, node: Any, stmt: Any) -> Any:
        opcode, operands = str(node.args[0].value)[len(PTX) :], list(node.args[1:])
        if not self.ctx.arch.name.startswith("sm_"):
            raise no_ptx(opcode, stmt.span)
        name = VALUE_FUNCTIONS.get(opcode)
        if name is not None and not any(_is_address(o) for o in operands):
            return tir.call_extern(str(node.ty), name, *operands)
        known: list[MatrixMultiply | MatrixMove] = [*declared(), *matrix_moves()]
        matrix = next((d for d in known if d.text == opcode and d.lanes > 1), None)
        if matrix is not None:
            return self.on_matrices(matrix, node, operands, stmt.span)
        result = "" if isinstance(stmt, tir.Evaluate) else str(node.ty)
        wrapper = Wrapper(opcode, result, operands, stmt.span)
        text = wrapper.text()
        if text not in self.ctx.sources:
            self.ctx.sources.append(text)
        return tir.call_extern(str(node.ty), wrapper.name, *wrapper.passed)

    def on_matrices(self, instruction: MatrixMultiply | MatrixMove, node: Any, operands: list[Any], span: Any) -> Any:
        """A call of a declared instruction on arrays of each lane: (c, a, b), or (registers, row of shared memory)."""
        names = "c, a, b" if isinstance(instruction, MatrixMultiply) else "registers, address"
        if len(operands) != names.count(",") + 1 or not all(_is_address(o) for o in operands):
            raise UnsupportedOnTarget(
                f"T.ptx({instruction.text!r}) with {len(operands)} operands",
                at=span,
                expected=f"addresses of the lane's arrays: {names}",
                repair=f"T.ptx({instruction.text!r}, {names}) with buffers of T.alloc_local, and no dtype",
            )
        if not instruction.runs_on(self.ctx.arch.name):
            raise UnsupportedOnTarget(
                f"T.ptx({instruction.text!r}) on {self.ctx.arch.name}",
                at=span,
                expected=f"an architecture that has it: {in_words(instruction.architectures)}",
                repair="compile for one of these, or use T.gemm, which takes what the architecture has",
            )
        return tir.call_extern(str(node.ty), instruction.name, *operands)


def _is_ptx(node: Any) -> bool:
    return is_call(node, "tirx.call_extern") and str(node.args[0].value).startswith(PTX)


def _is_address(node: Any) -> bool:
    return is_call(node, "tirx.address_of", "tirx.buffer_data")


class Wrapper:
    """The device function that executes one opcode with operands of certain types. Literal operands are in its text.

    `result` is the type of its value, empty for none.
    """

    def __init__(self, opcode: str, result: str, operands: list[Any], span: Any) -> None:
        self.opcode, self.result, self.operands, self.span = opcode, result, operands, span
        self.passed = [o for o in operands if _literal(o) is None]
        kinds = [literal[0] if (literal := _literal(o)) else "p" if _is_address(o) else str(o.ty) for o in operands]
        self.name = re.sub(r"\W+", "_", "_".join(["ptx", opcode, *kinds, *([result] if result else [])]))

    def text(self) -> str:
        """The definition; on a host (TL_HOST) the emulator asks the Python meaning instead."""
        parameters = [f"{self._parameter(o)} {chr(97 + n)}" for n, o in enumerate(self.passed)]
        kind = self._type(self.result) if self.result else "void"
        head = f'// T.ptx("{self.opcode}")\nTL_DEVICE {kind} {self.name}({", ".join(parameters)}) {{'
        return "\n".join([head, "#if defined(TL_HOST)", *self._host(kind), "#else", *self._device(kind), "#endif", "}"])

    def _host(self, kind: str) -> list[str]:
        """Operands as 64-bit words; the signature says what they are."""
        kinds = ["*" if _is_address(o) else str(o.ty) for o in self.operands]
        signature = f"{','.join(kinds)}:{self.result}"
        words: list[str] = []
        number = 0
        for operand in self.operands:
            literal = _literal(operand)
            if literal is not None:
                words.append(literal[1])
                continue
            words.append(f"tl::detail::to_word({chr(97 + number)})")
            number += 1
        call = f'tl_emu_meaning("{PTX}{self.opcode}", "{signature}", words)'
        lines = [f"  const uint64_t words[] = {{{', '.join(words) or '0'}}};"]
        return [*lines, f"  return tl::detail::from_word<{kind}>({call});" if self.result else f"  {call};"]

    def _device(self, kind: str) -> list[str]:
        slots: list[str] = []
        inputs: list[str] = []
        number = 1 if self.result else 0
        for operand in self.operands:
            literal = _literal(operand)
            if literal is not None:
                slots.append(literal[0])
                continue
            letter = chr(97 + len(inputs))
            slots.append(f"[%{number}]" if _is_address(operand) else f"%{number}")
            inputs.append(f'"{self._constraint(operand)}"({self._bits(operand, letter)})')
            number += 1
        shown = ", ".join([*(["%0"] if self.result else []), *slots])
        touches = any(_is_address(o) for o in self.operands) or not self.result
        memory = ' : "memory"' if touches else ""
        asm = f'asm{" volatile" if touches else ""}("{self.opcode} {shown};"'.replace(' ;"', ';"')
        if not self.result:
            return [f"  {asm} : : {', '.join(inputs)}{memory});"]
        size = split(self.result)[0].bits
        small = split(self.result)[0].kind == "small float"
        held = f"uint{size}_t" if small else "int" if size < 16 else kind
        back = f"{kind}::from_bits(result)" if small else f"({kind})result" if held != kind else "result"
        output = f'"={self._letter(self.result)}"(result)'
        return [f"  {held} result;", f"  {asm} : {output} : {', '.join(inputs)}{memory});", f"  return {back};"]

    def _parameter(self, operand: Any) -> str:
        return "const void *" if _is_address(operand) else self._type(str(operand.ty))

    def _type(self, dtype: str) -> str:
        try:
            element, lanes = split(dtype)
        except KeyError:
            element, lanes = None, 0
        if (
            element is None
            or lanes != 1
            or element.kind == "bool"
            or (element.kind == "small float" and element.bits < 16)
        ):
            raise UnsupportedOnTarget(
                f"T.ptx({self.opcode!r}) with an operand of type {dtype}",
                at=self.span,
                expected="integers, float16, bfloat16, float32, float64 and addresses",
                repair="convert the operand first, or pass its address",
            )
        return element.text

    def _letter(self, dtype: str) -> str:
        return _FLOAT_CONSTRAINTS.get(dtype) or _CONSTRAINTS[max(split(dtype)[0].bits, 16 if "float" in dtype else 32)]

    def _constraint(self, operand: Any) -> str:
        return "l" if _is_address(operand) else self._letter(str(operand.ty))

    def _bits(self, operand: Any, letter: str) -> str:
        if _is_address(operand):
            return letter
        element = split(str(operand.ty))[0]
        if element.kind == "small float":
            return f"{letter}.bits"
        return f"(int){letter}" if element.bits < 32 else letter


def _literal(operand: Any) -> tuple[str, str] | None:
    """(how a constant stands in PTX, the 64-bit word of it), or None."""
    if isinstance(operand, ir.prim.IntImm):
        return str(operand.value), f"{operand.value & (2**64 - 1)}ull"
    if isinstance(operand, ir.prim.FloatImm):
        wide = str(operand.ty) == "float64"
        word = struct.unpack("<Q" if wide else "<I", struct.pack("<d" if wide else "<f", operand.value))[0]
        return (f"0d{word:016X}" if wide else f"0f{word:08X}"), f"{word}ull"
    return None
