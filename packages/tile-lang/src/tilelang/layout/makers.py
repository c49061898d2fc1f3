"""Ready-made layouts, under upstream TileLang's names.

Each takes the tile in one of three forms: a buffer (anything with `.shape` and `.dtype`, or with a `.buffer` that
has them), a shape with `dtype=`, or upstream's numbers `(rows, columns, element_bits)`. The last two dimensions are
the matrix, earlier ones repeat it. Every layout maps to one physical index, in elements.

Conflict-free below means: eight lanes that read 16 bytes each, from eight consecutive rows of one column (one phase
of ldmatrix), touch all 32 banks once.
"""

from __future__ import annotations

from typing import Any

from tilelang.ir.dtypes import dtype_of
from tilelang.layout.evaluation import as_shape, linear_index
from tilelang.layout.expr import IndexExpr, as_expr, placeholders
from tilelang.layout.fragment import Fragment
from tilelang.layout.layout import Layout
from tilelang.layout.swizzle import CHUNK_BITS, SWIZZLE_MODES, Swizzle, SwizzleMode


def make_linear_layout(*tile: Any) -> Layout:
    """Row-major without gaps, for any rank: `make_linear_layout(buffer)`, `(shape)` or `(rows, columns)`."""
    shape = _shape_of(tile[0] if len(tile) == 1 else tile)
    return Layout(shape, lambda *indices: linear_index(indices, shape))


def make_padded_layout(buffer_or_shape: Any, dtype: Any = None, pad: int | None = None) -> Layout:
    """Row-major with `pad` unused elements after each row.

    By default a row is lengthened to an odd number of 16-byte chunks: rows stay aligned for 16-byte access, and
    eight consecutive rows start in eight different bank groups (conflict-free).
    """
    if pad is None:
        shape, bits = _tile((buffer_or_shape,), dtype)
        chunk = _chunk_elements(bits)
        pitch = (-(-shape[-1] // chunk) | 1) * chunk
    else:
        shape = _shape_of(buffer_or_shape)
        if pad < 0:
            raise ValueError(f"A padded layout needs a pad of at least 0, but {pad} was given. Use 0 for no padding.")
        pitch = shape[-1] + pad
    return Layout(shape, lambda *indices: linear_index(indices, (*shape[:-1], pitch)))


def make_full_bank_swizzled_layout(*tile: Any, dtype: Any = None) -> Layout:
    """The 128-byte mode: rows of eight 16-byte chunks, chunk number XOR row % 8. Conflict-free.

    A matrix wider than 128 bytes is a sequence of panels of that width, each with all rows (what one TMA box
    writes). ValueError unless a row is a multiple of 128 bytes.
    """
    return _by_mode(SWIZZLE_MODES["swizzle_128b"], tile, dtype)


def make_half_bank_swizzled_layout(*tile: Any, dtype: Any = None) -> Layout:
    """The 64-byte mode: rows of four 16-byte chunks, chunk number XOR row // 2 % 4. Conflict-free."""
    return _by_mode(SWIZZLE_MODES["swizzle_64b"], tile, dtype)


def make_quarter_bank_swizzled_layout(*tile: Any, dtype: Any = None) -> Layout:
    """The 32-byte mode: rows of two 16-byte chunks, chunk number XOR row // 4 % 2. Conflict-free."""
    return _by_mode(SWIZZLE_MODES["swizzle_32b"], tile, dtype)


def swizzle_by_name(name: str, shape: Any, dtype: Any = None) -> Layout:
    """The layout that `alloc_shared(..., layout=name)` asks for: a key of SWIZZLE_MODES, or "linear"."""
    if name == "linear":
        return make_linear_layout(shape)
    if name not in SWIZZLE_MODES:
        raise ValueError(
            f"There is no shared-memory layout named {name!r}. Use one of {', '.join(SWIZZLE_MODES)}, linear."
        )
    return _by_mode(SWIZZLE_MODES[name], (shape,), dtype)


def make_swizzled_layout(
    buffer_or_shape: Any, dtype: Any = None, k_major: bool = True, allow_pad: bool = True
) -> Layout:
    """The best layout for a gemm operand in shared memory: the widest swizzle mode that fits the row.

    Where none fits, rows are padded, or left row-major if `allow_pad` is False. `k_major` says that the last
    dimension is the gemm's k; 8-bit operands that are not k-major are padded, because ldmatrix transposes 16-bit
    elements only and single bytes are read down a column. Tensors of one dimension stay linear.
    """
    if isinstance(dtype, bool):
        raise TypeError(
            f"make_swizzled_layout was given {dtype} as its dtype. Pass the flags by name: k_major=..., allow_pad=..."
        )
    shape, bits = _tile((buffer_or_shape,), dtype)
    if len(shape) == 1:
        return make_linear_layout(shape)
    if k_major or bits != 8 or not allow_pad:
        for mode in SWIZZLE_MODES.values():
            if shape[-1] % mode.row_elements(bits) == 0:
                return _panels(shape, mode.row_elements(bits), mode.swizzle(bits))
    return make_padded_layout(shape, f"uint{bits}") if allow_pad else make_linear_layout(shape)


def make_wgmma_swizzled_layout(
    buffer_or_shape: Any, dtype: Any = None, continuity: int | None = None, k_major: bool = True
) -> Layout:
    """A layout that a wgmma matrix descriptor can describe (PTX ISA, "Shared memory matrix layout").

    Panels of the widest mode that divides `continuity`, the elements of a row that one descriptor covers (default:
    the whole row). A row of an odd number of 16-byte chunks gets the mode without swizzle, whose core matrices of
    8 rows x 16 bytes lie one after another. Panels run along the last dimension for both majors, so `k_major`
    changes the descriptor, not the layout. ValueError if a row is not a multiple of 16 bytes.
    """
    shape, bits = _tile((buffer_or_shape,), dtype)
    run = shape[-1] if continuity is None else continuity
    for mode in SWIZZLE_MODES.values():
        width = mode.row_elements(bits)
        if run % width == 0 and shape[-1] % width == 0:
            return _panels(shape, width, mode.swizzle(bits))
    _check_rows(shape, bits, 1, "A wgmma operand")
    return _panels(shape, _chunk_elements(bits), None)


def make_volta_swizzled_layout(*tile: Any, is_a: bool = True, k_inner: bool = True) -> Layout:
    """The 16-bit operand layouts of sm_70's mma.m8n8k4 (CUTLASS, layout/tensor_op_multiplicand_sm70.h).

    `k_inner`: the last dimension is k ("crosswise", rows and columns multiples of 32). Otherwise "congruous", for
    operand A or B (rows a multiple of 4, columns of 64). ValueError for other extents.
    """
    shape = _shape_of(tile[0] if len(tile) == 1 else tile)
    rows, columns = _matrix(shape)
    need = (32, 32) if k_inner else (4, 64)
    if rows % need[0] or columns % need[1]:
        raise ValueError(
            f"The Volta {'crosswise' if k_inner else 'congruous'} layout needs rows in multiples of {need[0]} and "
            f"columns in multiples of {need[1]}, but the tile is {rows} x {columns}. Use make_swizzled_layout."
        )

    def forward(*indices: IndexExpr) -> IndexExpr:
        row, column = indices[-2:]
        inside = _volta_crosswise(row, column, rows) if k_inner else _volta_congruous(row, column, columns, is_a)
        return as_expr(linear_index((*indices[:-2], 0), (*shape[:-2], rows * columns))) + inside

    return Layout(shape, forward)


def _volta_crosswise(row: IndexExpr, column: IndexExpr, rows: int) -> IndexExpr:
    """Groups of 4 columns become the rows of memory; the rows of the tile are permuted inside groups of 16."""
    group = column // 4
    quad = (row // 4 % 4) ^ (row // 16 % 2 * 2) ^ (group // 2 % 4)
    place = row // 16 * 16 + row % 4 * 4 + quad
    return (group * rows + place) * 4 + column % 4


def _volta_congruous(row: IndexExpr, column: IndexExpr, columns: int, is_a: bool) -> IndexExpr:
    """Blocks of 4 rows by eight 16-byte chunks, transposed 4 x 4 and XORed."""
    chunk = column // 8
    chunk_row = chunk % 8 // 2 if is_a else chunk % 4
    half = chunk % 2 if is_a else chunk % 8 // 4
    place = chunk // 8 * 8 + ((row % 4) ^ chunk_row) + half * 4
    return (row // 4 * 4 + chunk_row) * columns + place * 8 + column % 8


def make_fully_replicated_layout_fragment(buffer_or_shape: Any, threads: int) -> Fragment:
    """Every thread holds the whole tile, row-major in its registers."""
    shape = _shape_of(buffer_or_shape)
    index = as_expr(linear_index(placeholders(len(shape)), shape))
    if threads == 1:
        return Fragment(shape, forward_thread_fn=lambda *_: 0, forward_index_fn=lambda *_: index)
    return Fragment(
        shape,
        forward_thread_fn=lambda *indices: indices[-1],
        replicate=threads,
        forward_index_fn=lambda *_: index,
    )


def _by_mode(mode: SwizzleMode, tile: tuple[Any, ...], dtype: Any) -> Layout:
    shape, bits = _tile(tile, dtype)
    _check_rows(shape, bits, mode.chunks, f"The layout {mode.name}")
    return _panels(shape, mode.row_elements(bits), mode.swizzle(bits))


def _panels(shape: tuple[int, ...], width: int, swizzle: Swizzle | None) -> Layout:
    """Column panels of `width` elements, each with all rows, one after another; then the XOR stage."""
    rows, columns = _matrix(shape)

    def forward(*indices: IndexExpr) -> IndexExpr:
        row, column = indices[-2:]
        matrix = linear_index((*indices[:-2], 0), (*shape[:-2], rows * columns))
        return as_expr(matrix) + column // width * (rows * width) + row * width + column % width

    return Layout(shape, forward, swizzle=swizzle)


def _check_rows(shape: tuple[int, ...], bits: int, chunks: int, what: str) -> None:
    width = chunks * _chunk_elements(bits)
    if shape[-1] % width:
        raise ValueError(
            f"{what} needs rows in multiples of {width} elements ({chunks * 16} bytes), but the tile {shape} has "
            f"rows of {shape[-1]} elements of {bits} bits. Use make_swizzled_layout, which picks a layout that fits."
        )


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns: the last two extents."""
    if len(shape) < 2:
        raise ValueError(
            f"A swizzled layout needs at least 2 dimensions, but the tile is {shape}. Use a linear layout."
        )
    return shape[-2], shape[-1]


def _shape_of(buffer_or_shape: Any) -> tuple[int, ...]:
    buffer = getattr(buffer_or_shape, "buffer", buffer_or_shape)
    return as_shape(getattr(buffer, "shape", buffer))


def _tile(tile: tuple[Any, ...], dtype: Any) -> tuple[tuple[int, ...], int]:
    """Shape and element width in bits, from any of the forms that the module's docstring lists."""
    if len(tile) == 3 and dtype is None:
        rows, columns, bits = as_shape(tile)
        shape: tuple[int, ...] = (rows, columns)
    elif len(tile) == 1:
        buffer = getattr(tile[0], "buffer", tile[0])
        shape = _shape_of(tile[0])
        found = dtype if dtype is not None else getattr(buffer, "dtype", None)
        if found is None:
            raise TypeError(
                f"A swizzled layout of shape {shape} depends on the width of its elements, but no dtype was given. "
                'Pass dtype="float16", or a buffer.'
            )
        facts = dtype_of(found)
        bits = facts.bits * facts.lanes
    else:
        raise TypeError(
            f"A layout maker was called with {len(tile)} arguments; "
            "give a buffer, a shape with dtype=..., or (rows, columns, element_bits)."
        )
    if CHUNK_BITS % bits:
        raise ValueError(
            f"Elements of {bits} bits do not divide a chunk of 16 bytes. Use a linear layout for this element type."
        )
    return shape, bits


def _chunk_elements(bits: int) -> int:
    """Elements in 16 bytes."""
    return CHUNK_BITS // bits
