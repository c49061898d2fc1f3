"""Layouts and fragments: index maps as values, and the questions one asks of them (paper, section 4.1).

Read in this order: `expr` (the algebra), `simplify`, `evaluation` (answers by numpy), `fit` (tables back to
formulas), `swizzle` (the XOR stage), `layout`, `fragment`, `makers` (ready-made ones). Imports numpy and the standard
library; never a compiler.
"""

from tilelang.layout.expr import (
    Const,
    IndexExpr,
    Op,
    Placeholder,
    Table,
    expr_from_json,
    lookup,
    maximum,
    minimum,
    placeholders,
    select,
    substitute,
)
from tilelang.layout.fragment import Fragment
from tilelang.layout.layout import Layout
from tilelang.layout.makers import (
    make_full_bank_swizzled_layout,
    make_fully_replicated_layout_fragment,
    make_half_bank_swizzled_layout,
    make_linear_layout,
    make_padded_layout,
    make_quarter_bank_swizzled_layout,
    make_swizzled_layout,
    make_volta_swizzled_layout,
    make_wgmma_swizzled_layout,
    swizzle_by_name,
)
from tilelang.layout.simplify import bounds, simplify
from tilelang.layout.swizzle import SWIZZLE_MODES, Swizzle, SwizzleMode

__all__ = [
    "SWIZZLE_MODES",
    "Const",
    "Fragment",
    "IndexExpr",
    "Layout",
    "Op",
    "Placeholder",
    "Swizzle",
    "SwizzleMode",
    "Table",
    "bounds",
    "expr_from_json",
    "lookup",
    "make_full_bank_swizzled_layout",
    "make_fully_replicated_layout_fragment",
    "make_half_bank_swizzled_layout",
    "make_linear_layout",
    "make_padded_layout",
    "make_quarter_bank_swizzled_layout",
    "make_swizzled_layout",
    "make_volta_swizzled_layout",
    "make_wgmma_swizzled_layout",
    "maximum",
    "minimum",
    "placeholders",
    "select",
    "simplify",
    "substitute",
    "swizzle_by_name",
]
