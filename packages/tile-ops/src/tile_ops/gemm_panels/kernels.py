"""Products by panels in tile language: B as panels (`pack`), and C = A @ B by them (`multiply`).

Panels: (batch, steps, panels, block_k, block_n) float32; [z, s, p] is the part of matrix z of B from row s * block_k and
column p * block_n on, with zeros where that leaves B. A call may pack a part of k only: `first` is its first step. All
extents and pitches are dynamic.
"""

import tilelang.language as T


def _matrix(batch, rows, columns, name):
    plane, pitch = T.dynamic(f"plane_{name}"), T.dynamic(f"pitch_{name}")
    return T.StridedTensor((batch, rows, columns), (plane, pitch, 1), "float32")


def pack(transpose_b, block_n, block_k, together=8):
    """The panels of B: (batch, k, n), or (batch, n, k) if transposed.

    A block packs one panel, or of rows that lie in one piece `together` side by side: long reads are faster.
    """
    batch, n, k, steps, panels = (T.dynamic(name) for name in ("batch", "n", "k", "steps", "panels"))

    @T.prim_func
    def pack(
        B: _matrix(batch, n, k, "b") if transpose_b else _matrix(batch, k, n, "b"),
        P: T.Tensor((batch, steps, panels, block_k, block_n), "float32"),
        first: T.int32,
    ):
        groups = T.ceildiv(panels, 1 if transpose_b else together)
        with T.Kernel(groups, steps, batch, threads=128) as (group, step, z):
            row = (first + step) * block_k
            if transpose_b:
                # Rows a power of two apart would share lines of the first cache.
                rows = T.alloc_shared((block_n, block_k + 8), "float32")
                tile = rows[0:block_n, 0:block_k]
                T.copy(B[z, group * block_n, row], tile)
                for i, j in T.Parallel(block_k, block_n):
                    P[z, step, group, i, j] = rows[j, i]
            else:
                column = group * together * block_n
                for i in T.serial(block_k):
                    for p in T.serial(T.min(n - column, together * block_n) // block_n):
                        panel = group * together + p
                        T.assume(panel < panels)
                        for j in T.Parallel(block_n):
                            P[z, step, panel, i, j] = B[z, row + i, column + p * block_n + j]
                last = n // block_n  # the panel that leaves B
                if (last // together == group) & (last < panels):
                    for i, j in T.Parallel(block_k, block_n):
                        P[z, step, last, i, j] = B[z, row + i, last * block_n + j]

    return pack


def multiply(transpose_a, block_m, block_n, block_k, pad):
    """C = A @ B for step 0 and those after it, C += A @ B for others: `first` is the step of the first panels.

    A is (batch, m, k), or (batch, k, m) if transposed. A block makes `block_m` rows by `each` panels. Sums are in float32, each
    in the order of k, by `block_k` at a time. `pad` elements lie between the rows of the block's copy of A.
    """
    batch, m, n, k, steps, panels = (T.dynamic(name) for name in ("batch", "m", "n", "k", "steps", "panels"))
    rows, columns = (block_k, block_m) if transpose_a else (block_m, block_k)

    @T.prim_func
    def multiply(
        A: _matrix(batch, k, m, "a") if transpose_a else _matrix(batch, m, k, "a"),
        P: T.Tensor((batch, steps, panels, block_k, block_n), "float32"),
        C: _matrix(batch, m, n, "c"),
        first: T.int32,
        each: T.int32,
    ):
        with T.Kernel(T.ceildiv(panels, each), T.ceildiv(m, block_m), batch, threads=128) as (group, bm, z):
            A_rows = T.alloc_shared((rows, columns + pad), "float32")
            A_tile = A_rows[0:rows, 0:columns]
            row = bm * block_m
            for step in T.serial(steps):
                if transpose_a:
                    T.copy(A[z, (first + step) * block_k, row], A_tile)
                else:
                    T.copy(A[z, row, (first + step) * block_k], A_tile)
                for number in T.serial(T.min(each, panels - group * each)):
                    panel = group * each + number
                    column = panel * block_n
                    T.assume((panel >= 0) & (panel < panels))
                    # The same twice: of the first one it is known that no row and no column lies past C.
                    if (row + block_m <= m) & (column + block_n <= n):
                        _product(A_tile, block_m, transpose_a, P, C, z, step, panel, row, column, first + step == 0)
                    else:
                        _product(A_tile, block_m, transpose_a, P, C, z, step, panel, row, column, first + step == 0)

    return multiply


@T.macro
def _product(A_tile, height, transpose_a, P, C, z, step, panel, row, column, clear):
    """The block of matrix z of C from (row, column) on (+)= op(A_tile) @ a panel."""
    T.gemm(
        A_tile,
        P[z, step, panel, 0 : P.shape[3], 0 : P.shape[4]],
        C[z, row : row + height, column : column + P.shape[4]],
        transpose_A=transpose_a,
        clear_accum=clear,
    )
