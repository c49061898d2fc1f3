"""`T.copy` in all its forms (surface.md a.3, c.1 and c.2)."""

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats


@case("T.copy", "T.copy (origin)", "T.copy (predicated edges)")
def copy_by_origin():
    @T.prim_func
    def main(A: T.Tensor((10, 12), "float32"), B: T.Tensor((10, 12), "float32")):
        with T.Kernel(2, 3, threads=8) as (bx, by):
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(A[by * 4, bx * 8], tile)
            T.copy(tile, B[by * 4, bx * 8])

    a = floats(10, 12)
    return Program(main, [a], [a])


@case("T.copy (region)")
def copy_by_region():
    @T.prim_func
    def main(A: T.Tensor((2, 16, 3, 4), "float32"), B: T.Tensor((8, 4), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((8, 4), "float32")
            T.copy(A[1, 4:12, 2, :], tile)
            T.copy(tile, B)

    a = floats(2, 16, 3, 4)
    return Program(main, [a], [a[1, 4:12, 2]])


@case("T.copy (whole buffers)", "T.copy (global to global)")
def copy_whole_buffers():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=8):
            T.copy(A, B)

    a = floats(4, 8)
    return Program(main, [a], [a])


@case("T.copy (fragment to fragment)", "T.copy (shared to fragment)", "T.copy (casts)")
def copy_between_tiles():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float16")):
        with T.Kernel(1, threads=8):
            shared = T.alloc_shared((4, 8), "float32")
            wide = T.alloc_fragment((4, 8), "float32")
            narrow = T.alloc_fragment((4, 8), "float16")
            T.copy(A, shared)
            T.copy(shared, wide)
            T.copy(wide, narrow)
            T.copy(narrow, B)

    a = floats(4, 8)
    return Program(main, [a], [a.astype(np.float16)])


@case("T.copy (too few indices, A[...])")
def copy_open_indices():
    @T.prim_func
    def main(K: T.Tensor((3, 4, 8), "float32"), A: T.Tensor((4, 8), "float32"), B: T.Tensor((2, 4, 8), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(K[2], tile)
            T.copy(tile, B[0])
            T.copy(A[...], tile)
            T.copy(tile, B[1])

    k, a = floats(3, 4, 8), floats(4, 8, seed=1)
    return Program(main, [k, a], [np.stack([k[2], a])])


@case("T.copy (two points)")
def copy_two_points():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float16")):
        with T.Kernel(1, threads=1):
            for i in T.serial(4):
                T.copy(A[3 - i], B[i])

    a = floats(4)
    return Program(main, [a], [a[::-1].astype(np.float16)])


@case("T.copy (slices with a step)")
def copy_with_steps():
    @T.prim_func
    def main(A: T.Tensor((4, 16), "float32"), B: T.Tensor((2, 8), "float32")):
        with T.Kernel(1, threads=8):
            T.copy(A[1:4:2, 0:16:2], B)

    a = floats(4, 16)
    return Program(main, [a], [a[1:4:2, ::2]])


@case("T.copy(annotations=)", title="copy_annotations")
@case("T.copy(coalesced_width=)", title="copy_coalesced_width")
@case("T.copy(disable_tma=)", title="copy_disable_tma")
@case("T.copy(prefer_instruction=)", title="copy_prefer_instruction")
@case("T.copy(eviction_policy=)", title="copy_eviction_policy")
@case("T.copy(loop_layout=)", title="copy_loop_layout")
def copy_hints():
    layout = T.Fragment((4, 8), forward_fn=lambda i, j: (j, i))

    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(A, tile, coalesced_width=4, disable_tma=True, eviction_policy="evict_last")
            T.copy(tile, B, prefer_instruction="cp.async", loop_layout=layout, annotations={"note": 1})

    a = floats(4, 8)
    return Program(main, [a], [a])


@case("T.async_copy")
def async_copy():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 8), "float32")
            T.async_copy(A, tile)
            T.copy(tile, B)

    a = floats(4, 8)
    return Program(main, [a], [a])
