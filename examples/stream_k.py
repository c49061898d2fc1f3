"""A product whose steps along K, not its tiles, are shared out evenly among a fixed number of blocks: stream-K.

Five tiles for four blocks take two turns, the second with three blocks idle; here each block has 5/4 of a tile's steps.
A tile that several blocks have worked on is added up by a second launch, in the blocks' order: equal calls give equal bits.
A: (M, K), B: (K, N), C: (M, N) float16. Reference: numpy, float64.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def stream_k_matmul(M, N, K, blocks=4, block_M=32, block_N=32, block_K=32, dtype="float16"):
    """A kernel of `blocks` blocks, on a GPU as many as it has multiprocessors, and one that adds what they shared."""
    columns, steps = T.ceildiv(N, block_N), T.ceildiv(K, block_K)
    tiles = T.ceildiv(M, block_M) * columns
    share = T.ceildiv(tiles * steps, blocks)  # of a block: steps block * share, block * share + 1, ...

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        parts = T.alloc_global((blocks, 2, block_M, block_N), "float32")  # the ends of tiles, and the beginnings
        with T.Kernel(blocks, threads=128) as block:
            A_tile = T.alloc_shared((block_M, block_K), dtype)
            B_tile = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            for piece in T.serial(T.ceildiv(share, steps) + 1):
                tile = block * share // steps + piece
                first = T.max(block * share - tile * steps, 0)
                last = T.min((block + 1) * share - tile * steps, steps)
                if tile < tiles and first < last:
                    T.clear(acc)
                    for k in T.Pipelined(last - first, num_stages=2):
                        T.copy(A[tile // columns * block_M, (first + k) * block_K], A_tile)
                        T.copy(B[(first + k) * block_K, tile % columns * block_N], B_tile)
                        T.gemm(A_tile, B_tile, acc)
                    if last - first == steps:
                        T.copy(acc, C[tile // columns * block_M, tile % columns * block_N])
                    else:
                        T.copy(acc, parts[block, T.if_then_else(first > 0, 0, 1), 0, 0])
        with T.Kernel(tiles, threads=128) as tile:
            total = T.alloc_fragment((block_M, block_N), "float32")
            begins, ends = tile * steps // share, ((tile + 1) * steps - 1) // share  # blocks
            if begins < ends:
                T.clear(total)
                for block in T.serial(begins, ends + 1):
                    for i, j in T.Parallel(block_M, block_N):
                        total[i, j] += parts[block, T.if_then_else(block * share > tile * steps, 0, 1), i, j]
                T.copy(total, C[tile // columns * block_M, tile % columns * block_N])

    return main


DTYPE = "float16"
CASES = [{"M": 160, "N": 32, "K": 160, "blocks": 4}, {"M": 70, "N": 60, "K": 100, "blocks": 5}]


def check(target="cpu", execution="device", *, M, N, K, blocks):
    """The relative error of one product of random matrices."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((M, K)).astype(np.float16)
    B = rng.standard_normal((K, N)).astype(np.float16)
    kernel = tilelang.compile(stream_k_matmul(M, N, K, blocks), out_idx=[2], target=target, execution=execution)
    return relative_error(run(kernel, A, B), A.astype(np.float64) @ B.astype(np.float64))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
