"""Mamba-2, chunk scan: the outputs of all tokens, from the state before each chunk and the tokens within it.

The model and its notation are those of `mamba2_chunk_state.py`. With h the state before the chunk, token l of it gives

    y_l = exp(s_l) h C_l  +  sum over tokens m <= l of  (C_l . B_m) exp(s_l - s_m) dt_m x_m  +  D x_l,

two matrix products and a skip. cb holds the products C_l . B_m; prev_states the states.

cb: (batch, nchunks, ngroups, chunk_size, chunk_size), x: (batch, seqlen, nheads, headdim), dt and dA_cumsum: (batch,
nheads, nchunks, chunk_size), C: (batch, seqlen, ngroups, dstate), prev_states: (batch, nchunks, nheads, headdim, dstate),
D: (nheads,), y: as x; all float16 but dA_cumsum, which is float32. Reference: the recurrence, token by token, in float64.
"""

import numpy as np
from checking import main, relative_error, run
from mamba2_chunk_state import random_model, recurrence

import tilelang
import tilelang.language as T


def chunk_scan(
    batch, seqlen, chunk_size, ngroups, nheads, headdim, dstate, block_M=32, block_N=32, block_K=16, dtype="float16"
):
    """A block computes `block_M` tokens of one chunk and `block_N` features of one head."""
    assert chunk_size % block_M == 0  # so that no tile reaches into the next chunk
    nchunks = -(-seqlen // chunk_size)
    heads_per_group = nheads // ngroups
    tiles_N = -(-headdim // block_N)

    @T.prim_func
    def main(
        cb: T.Tensor((batch, nchunks, ngroups, chunk_size, chunk_size), dtype),
        x: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        C: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        prev_states: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
        D: T.Tensor((nheads,), dtype),
        y: T.Tensor((batch, seqlen, nheads, headdim), dtype),
    ):
        with T.Kernel(chunk_size // block_M * tiles_N, batch * nchunks, nheads, threads=128) as (bx, by, head):
            C_tile = T.alloc_shared((block_M, dstate), dtype)
            state_tile = T.alloc_shared((block_N, dstate), dtype)
            cb_tile = T.alloc_shared((block_M, block_K), dtype)
            x_tile = T.alloc_shared((block_K, block_N), dtype)
            skip_tile = T.alloc_shared((block_M, block_N), dtype)
            cb_weighted = T.alloc_fragment((block_M, block_K), dtype)
            s_row = T.alloc_fragment((block_M,), "float32")
            s_column = T.alloc_fragment((block_K,), "float32")
            dt_column = T.alloc_fragment((block_K,), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")

            b, chunk = by // nchunks, by % nchunks
            group = head // heads_per_group
            row, p = bx // tiles_N * block_M, bx % tiles_N * block_N
            token = chunk * chunk_size + row

            # What the state before the chunk contributes, decayed to each row's token.
            T.copy(dA_cumsum[b, head, chunk, row : row + block_M], s_row)
            T.copy(C[b, token : token + block_M, group, :], C_tile)
            T.copy(prev_states[b, chunk, head, p : p + block_N, :], state_tile)
            T.gemm(C_tile, state_tile, acc, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(block_M, block_N):
                acc[i, j] *= T.exp(s_row[i])

            # What the tokens of the chunk up to each row's contribute; later columns are never visited.
            for k in T.Pipelined(T.ceildiv(row + block_M, block_K), num_stages=2):
                column = k * block_K
                first = chunk * chunk_size + column
                T.copy(cb[b, chunk, group, row : row + block_M, column : column + block_K], cb_tile)
                T.copy(dA_cumsum[b, head, chunk, column : column + block_K], s_column)
                T.copy(dt[b, head, chunk, column : column + block_K], dt_column)
                T.copy(x[b, first : first + block_K, head, p : p + block_N], x_tile)
                for i, j in T.Parallel(block_M, block_K):
                    decayed = cb_tile[i, j] * T.exp(s_row[i] - s_column[j]) * dt_column[j]
                    cb_weighted[i, j] = T.if_then_else(column + j <= row + i, decayed, 0)
                T.gemm(cb_weighted, x_tile, acc)

            T.copy(x[b, token : token + block_M, head, p : p + block_N], skip_tile)
            for i, j in T.Parallel(block_M, block_N):
                acc[i, j] += D[head] * skip_tile[i, j]
            T.copy(acc, y[b, token : token + block_M, head, p : p + block_N])

    return main


DTYPE = "float16"
CASES = [
    {"seqlen": 128, "chunk_size": 64, "ngroups": 1, "nheads": 2, "headdim": 32, "dstate": 64},
    {"seqlen": 150, "chunk_size": 64, "ngroups": 2, "nheads": 4, "headdim": 40, "dstate": 24},
]


def check(target="cpu", execution="device", *, seqlen, chunk_size, ngroups, nheads, headdim, dstate, batch=2):
    """The relative error against the recurrence over the whole sequence."""
    sizes = (batch, seqlen, chunk_size, ngroups, nheads, headdim, dstate)
    model = random_model(*sizes)
    after, y = recurrence(model, chunk_size, from_zero=False)
    before = np.concatenate([np.zeros_like(after[:, :1]), after[:, :-1]], axis=1)
    padding = [(0, 0), (0, after.shape[1] * chunk_size - seqlen), (0, 0), (0, 0)]
    C, B = (
        np.pad(model[name].astype(np.float64), padding).reshape(batch, -1, chunk_size, ngroups, dstate) for name in "CB"
    )
    cb = np.einsum("bclgn,bcmgn->bcglm", C, B)
    kernel = tilelang.compile(chunk_scan(*sizes), out_idx=[7], target=target, execution=execution)
    arguments = [np.ascontiguousarray(cb, np.float16), model["x"], model["dt"], model["dA_cumsum"], model["C"]]
    return relative_error(run(kernel, *arguments, before.astype(np.float16), model["D"]), y)


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
