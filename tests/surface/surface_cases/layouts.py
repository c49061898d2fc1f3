"""Layouts and fragments as values, and as annotations of buffers (surface.md a.4, c.19)."""

import numpy as np

import tilelang
import tilelang.language as T
from surface_cases.case import Program, case, floats


def annotated(names, layout_of, scope="shared.dyn", shape=(16, 64), dtype="float16"):
    """A case that moves a tile of an annotated layout, and multiplies every element by its coordinates."""

    def program():
        @T.prim_func
        def main(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
            with T.Kernel(1, threads=32):
                tile = T.alloc_buffer(shape, dtype, scope=scope)
                T.annotate_layout({tile: layout_of(tile)})
                T.copy(A, tile)
                for i, j in T.Parallel(*shape):
                    tile[i, j] = tile[i, j] * (i + 1)
                T.copy(tile, B)

        a = floats(*shape, dtype=T.dtype(dtype).as_numpy())
        scale = np.arange(1, shape[0] + 1, dtype=a.dtype)[:, None]
        return Program(main, [a], [a * scale])

    case(*names, title=names[0])(program)


annotated(["T.annotate_layout", "T.make_swizzled_layout"], lambda b: T.make_swizzled_layout(b))
annotated(["T.layout.make_swizzled_layout", "T.layout"], lambda b: T.layout.make_swizzled_layout(b))
annotated(["tilelang.layout.make_swizzled_layout"], lambda b: tilelang.layout.make_swizzled_layout(b))
annotated(
    ["tilelang.layout.make_full_bank_swizzled_layout"], lambda b: tilelang.layout.make_full_bank_swizzled_layout(b)
)
annotated(
    ["tilelang.layout.make_half_bank_swizzled_layout"], lambda b: tilelang.layout.make_half_bank_swizzled_layout(b)
)
annotated(
    ["tilelang.layout.make_quarter_bank_swizzled_layout"],
    lambda b: tilelang.layout.make_quarter_bank_swizzled_layout(b),
)
annotated(["tilelang.layout.make_wgmma_swizzled_layout"], lambda b: tilelang.layout.make_wgmma_swizzled_layout(b))
annotated(
    ["tilelang.layout.make_volta_swizzled_layout"],
    lambda b: tilelang.layout.make_volta_swizzled_layout(b),
    shape=(32, 64),
)
annotated(["tilelang.layout.make_linear_layout"], lambda b: tilelang.layout.make_linear_layout(b))
annotated(["T.make_padded_layout", "T.annotate_layout (padding)"], lambda b: T.make_padded_layout(b, pad=8))
annotated(["T.annotate_layout (a function of indices)"], lambda b: lambda i, j: (j, i))
annotated(["T.Layout"], lambda b: T.Layout(b.shape, lambda i, j: j * 16 + i))
annotated(
    ["T.Fragment", "T.annotate_layout (fragment)"],
    lambda b: T.Fragment(b.shape, forward_fn=lambda i, j: (j // 2, i * 2 + j % 2)),
    scope="local.fragment",
)


@case("T.annotate_layout (global buffers)")
def global_buffer():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=8):
            T.annotate_layout({A: T.Layout((4, 8), lambda i, j: i * 8 + j)})
            T.copy(A, B)

    a = floats(4, 8)
    return Program(main, [a], [a])


@case(
    "T.Layout (composed, inverted, compared, evaluated)",
    "T.Fragment(repeat, repeat_on_thread, replicate)",
    "tilelang.layout.make_fully_replicated_layout_fragment",
    empty=dict.fromkeys(("interpreter", "CPU", "CUDA"), "on the host"),
)
def values(mode):
    rows = T.Layout((4, 8), lambda i, j: i * 8 + j)
    assert rows(2, 3) == (19,)
    assert rows.inverse()(19) == (2, 3)
    assert rows == T.Layout((4, 8), lambda i, j: j + 8 * i)
    i, j = np.indices((4, 8))
    np.testing.assert_array_equal(rows(i, j)[0], np.arange(32).reshape(4, 8))
    assert rows.inverse().compose(rows)(2, 3) == (2, 3)

    base = T.Fragment((8,), forward_fn=lambda i: (i, 0))
    assert base.repeat([2]).shape == (16,)
    assert base.repeat([2], repeat_on_thread=True).num_threads == 16
    assert base.repeat_on_thread([2]) == base.repeat([2], repeat_on_thread=True)
    assert base.replicate(4).replicate_size == 4
    assert base.replicate(4).condense() == base.replicate(4)  # every replica lies on threads of its own
    whole = tilelang.layout.make_fully_replicated_layout_fragment((8,), 32)
    assert whole.replicate_size == 32


@case("tilelang.tools.plot_layout", empty=dict.fromkeys(("interpreter", "CPU", "CUDA"), "on the host"))
def plots(mode):
    import tempfile
    from pathlib import Path

    from tilelang.tools import plot_layout

    with tempfile.TemporaryDirectory() as folder:
        layout = T.Fragment((8, 8), forward_fn=lambda i, j: (i * 4 + j // 2, j % 2))
        plot_layout(layout, save_directory=folder, name="fragment", formats="svg")
        assert [p.name for p in Path(folder).iterdir()] == ["fragment.svg"]
