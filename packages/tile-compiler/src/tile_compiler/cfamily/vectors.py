"""Vector statements: whole rows are moved at once, arithmetic is printed as a short loop over the lanes.

const tl::vec<float, 4> A_row = *(const tl::vec<float, 4> *)&A[i * 4];
tl::vec<float, 4> C_row;
#pragma unroll
for (int lane = 0; lane < 4; ++lane) {
  C_row[lane] = A_row[lane] * scale;
}
*(tl::vec<float, 4> *)&C[i * 4] = C_row;
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir
from tvm.ir import prim

from tile_compiler.cfamily.literals import POSTFIX, Text
from tile_compiler.cfamily.memory import Memory, vector_type
from tile_compiler.rewrite import is_call

LANE = "lane"


class Vectors(Memory):
    """What a store, a Bind or an argument of vector type becomes."""

    def store_vector(self, node: Any, lanes: int) -> None:
        """A BufferStore of several elements."""
        array, indices, value = self.array_of(node, node.buffer), list(node.indices), node.value
        array.mark(written=True)
        self.lanes, self.loaded = lanes, {}
        row = self.is_row(indices)
        if array.packed:
            self._store_packed(node, value, lanes)
        elif row and self._is_row_of(value, array):
            target = self.row_at(node, node.buffer, indices, written=True)
            self.assign(target, "=", self.row_at(value, value.source, value.indices))
        elif not row or (array.scope == "local" and not _is_choice(value)):
            self._for_lanes(value, lambda: self.element_at(node, node.buffer, indices))
        else:
            name = self.identifiers.new(f"{node.buffer.name}_row")
            self.fill(name, value)
            self.assign(self.row_at(node, node.buffer, indices, written=True), "=", name)

    def _store_packed(self, node: Any, value: Any, lanes: int) -> None:
        """Neighbours of packed memory: as bytes where they come from such memory, else element by element."""
        array = self.array_of(node, node.buffer)
        if not self.is_row(list(node.indices)) or lanes % array.element.per_byte:
            raise self.unsupported(node, f"elements of type {array.element.name} are stored in whole bytes")
        if self._is_row_of(value, array) and self.array_of(value, value.source).packed:
            target = self.bytes_at(node, node.buffer, node.indices, written=True)
            self.assign(target, "=", self.bytes_at(value, value.source, value.indices))
            return
        name = self.identifiers.new(f"{node.buffer.name}_row")
        self.fill(name, value)
        self.put_packed(node, name, lanes)

    def bind_vector(self, var: Any, value: Any, lanes: int) -> None:
        """A variable of vector type."""
        self.lanes, self.loaded = lanes, {}
        name = self.identifiers.new(var.name)
        self.fill(name, value)
        self.names[var] = name

    def vector_operand(self, node: Any) -> str:
        if isinstance(node, ir.Var):
            return self.names[node]
        before = self.lanes, self.lane, self.loaded
        self.lanes, self.lane, self.loaded = self.type_of(node)[1], None, {}
        name = self.identifiers.new("packed")
        self.fill(name, node)
        self.lanes, self.lane, self.loaded = before
        return name

    def fill(self, name: str, value: Any) -> None:
        """Declare a vector and give it its elements."""
        element, lanes = self.type_of(value)
        self._assign(name, value, f"{vector_type(element, lanes)} {name};")

    def _assign(self, name: str, value: Any, declaration: str = "") -> None:
        if _is_choice(value):
            # Only the taken side may be read, so its rows are loaded there.
            condition, yes, no = value.args
            if self._is_guarded_row(yes, no):  # no branch: the loads of several rows stay under way together
                row = self.row_at(yes, yes.source, yes.indices)
                load = f"{row.removesuffix(')')}, {self.text(condition)})"
                self.assign(declaration[:-1] or name, "=", load, name if declaration else "")
                return
            if declaration:
                self.put(declaration, declares=name)
            self._branch(f"if ({self.text(condition)}) {{", name, yes)
            self._branch("} else {", name, no)
            self.put("}")
        elif isinstance(value, ir.TensorLoad) and self.is_row(list(value.indices)):
            row = self.row_at(value, value.source, value.indices)
            self.assign(declaration[:-1] or name, "=", row, name if declaration else "")
        else:
            self._for_lanes(value, lambda: f"{name}[{LANE}]", declaration, name)

    def _branch(self, opening: str, name: str, value: Any) -> None:
        self.put(opening)
        self.depth += 1
        outside, self.loaded = self.loaded, {}
        self._assign(name, value)
        self.loaded = outside
        self.depth -= 1

    def _for_lanes(self, value: Any, target: Callable[[], str], declaration: str = "", name: str = "") -> None:
        """`target = value` for each lane. What the lanes share is read before the loop, in lines of its own."""
        self.lane, self.modular = LANE, True
        text = self.text(value)
        self.modular = False
        place = target()
        self.lane = None
        if declaration:
            self.put(declaration, declares=name)
        self.put("#pragma unroll")
        self.put(f"for (int {LANE} = 0; {LANE} < {self.lanes}; ++{LANE}) {{")
        self.depth += 1
        self.assign(place, "=", text)
        self.depth -= 1
        self.put("}")

    def _is_guarded_row(self, yes: Any, no: Any) -> bool:
        """Whether a choice is between a row that is loaded by `tl::load` and zeros."""
        if (
            not isinstance(yes, ir.TensorLoad)
            or not self.is_row(list(yes.indices))
            or not isinstance(no, prim.Broadcast)
        ):
            return False
        array, lanes = self.array_of(yes, yes.source), int(yes.indices[-1].lanes)
        zero = isinstance(no.value, (prim.IntImm, prim.FloatImm)) and float(no.value.value) == 0
        return zero and self.is_hinted(array, lanes)

    def _is_row_of(self, value: Any, array: Any) -> bool:
        if not isinstance(value, ir.TensorLoad) or not self.is_row(list(value.indices)):
            return False
        return self.array_of(value, value.source).element is array.element

    # -- expressions that differ inside a vector ---------------------------------------------------------------------

    def broadcast(self, node: Any) -> Text:
        """One scalar for all lanes. What reads memory is read once: a lane may overwrite it."""
        value = node.value
        if self.lane is None or self.by_element or isinstance(value, (ir.Var, prim.IntImm, prim.FloatImm)):
            return self.expression(value)
        lane, self.lane = self.lane, None
        text = self.text(value)
        self.lane = lane
        name = self.loaded.get(text)
        if name is None:
            wanted = f"{value.source.name}_value" if isinstance(value, ir.TensorLoad) else "value"
            name = self.loaded[text] = self.identifiers.new(wanted)
            self.put(f"const {self.type_of(value)[0].text} {name} = {text};", declares=name)
        return name, POSTFIX

    def choice(self, condition: Any, yes: Any, no: Any) -> Text:
        """Inside a vector, a side may be read only in the lanes that take it."""
        if self.lane is None:
            return super().choice(condition, yes, no)
        outside, self.by_element = self.by_element, True
        result = super().choice(condition, yes, no)
        self.by_element = outside
        return result


def _is_choice(value: Any) -> bool:
    """Whether all lanes of a vector take the same side: a row of it is read at once."""
    return is_call(value, "tirx.if_then_else", "prim.if_then_else") and str(value.args[0].ty) == "bool"
