"""Mamba-2, chunk state: what the tokens of one chunk add to the state that the next chunk starts from.

The model, for one head: h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T and y_t = h_t C_t + D x_t, with the state h of shape
(headdim, dstate). Within a chunk that ends at token e, h_e is the decayed state from before plus

    states = sum over tokens l of  exp(s_e - s_l) dt_l x_l B_l^T,    s = cumulative sum of dt A in the chunk,

which is a matrix product. This kernel computes `states` for all chunks.

B: (batch, seqlen, ngroups, dstate), x: (batch, seqlen, nheads, headdim), dt and dA_cumsum: (batch, nheads, nchunks,
chunk_size), states: (batch, nchunks, nheads, headdim, dstate), all float16 but dA_cumsum, which is float32. dt is 0 after
the end of the sequence. Reference: the recurrence, token by token, in float64.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def chunk_state(
    batch, seqlen, chunk_size, ngroups, nheads, headdim, dstate, block_M=32, block_N=32, block_K=32, dtype="float16"
):
    """A block computes a tile of one chunk's state of one head, summing over the chunk's tokens."""
    nchunks = -(-seqlen // chunk_size)
    heads_per_group = nheads // ngroups
    tiles_N = -(-dstate // block_N)

    @T.prim_func
    def main(
        B: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        x: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        states: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
    ):
        with T.Kernel(T.ceildiv(headdim, block_M) * tiles_N, batch * nchunks, nheads, threads=128) as (bx, by, head):
            B_tile = T.alloc_shared((block_K, block_N), dtype)
            x_tile = T.alloc_shared((block_K, block_M), dtype)
            x_weighted = T.alloc_fragment((block_M, block_K), dtype)
            dt_tile = T.alloc_fragment((block_K,), dtype)
            s_tile = T.alloc_fragment((block_K,), "float32")
            weight = T.alloc_fragment((block_K,), "float32")
            acc = T.alloc_fragment((block_M, block_N), "float32")

            b, chunk = by // nchunks, by % nchunks
            p, n = bx // tiles_N * block_M, bx % tiles_N * block_N
            s_end = dA_cumsum[b, head, chunk, chunk_size - 1]

            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(chunk_size, block_K), num_stages=2):
                token = chunk * chunk_size + k * block_K
                T.copy(x[b, token : token + block_K, head, p : p + block_M], x_tile)
                T.copy(B[b, token : token + block_K, head // heads_per_group, n : n + block_N], B_tile)
                # Past the chunk's end dt reads as 0: tokens of the next chunk get no weight.
                T.copy(dt[b, head, chunk, k * block_K : (k + 1) * block_K], dt_tile)
                T.copy(dA_cumsum[b, head, chunk, k * block_K : (k + 1) * block_K], s_tile)
                for l in T.Parallel(block_K):
                    weight[l] = T.exp(s_end - s_tile[l]) * dt_tile[l]
                for i, l in T.Parallel(block_M, block_K):
                    x_weighted[i, l] = x_tile[l, i] * weight[l]
                T.gemm(x_weighted, B_tile, acc)
            T.copy(acc, states[b, chunk, head, p : p + block_M, n : n + block_N])

    return main


def random_model(batch, seqlen, chunk_size, ngroups, nheads, headdim, dstate):
    """Random inputs: B, C, x as above, dt with its cumulative sum of dt * A, and the skip weights D: (nheads,)."""
    rng = np.random.default_rng(0)
    nchunks = -(-seqlen // chunk_size)
    B, C = rng.standard_normal((2, batch, seqlen, ngroups, dstate)).astype(np.float16)
    x = rng.standard_normal((batch, seqlen, nheads, headdim)).astype(np.float16)
    dt = rng.uniform(0.01, 0.2, (batch, nheads, nchunks * chunk_size)).astype(np.float16)
    dt[:, :, seqlen:] = 0
    dt = dt.reshape(batch, nheads, nchunks, chunk_size)
    A = -rng.uniform(0.5, 2, nheads)
    dA_cumsum = np.cumsum(dt.astype(np.float64) * A[:, None, None], axis=-1).astype(np.float32)
    D = rng.standard_normal(nheads).astype(np.float16)
    return {"B": B, "C": C, "x": x, "dt": dt, "A": A, "dA_cumsum": dA_cumsum, "D": D}


def recurrence(model, chunk_size, from_zero):
    """Token by token: the state after each chunk, (batch, nchunks, nheads, headdim, dstate), and all outputs y.

    With `from_zero` every chunk starts from an empty state.
    """
    B, C, x, dt = (model[name].astype(np.float64) for name in ("B", "C", "x", "dt"))
    heads_per_group = x.shape[2] // B.shape[2]
    B, C = np.repeat(B, heads_per_group, axis=2), np.repeat(C, heads_per_group, axis=2)
    dt = dt.reshape(*dt.shape[:2], -1)
    h = np.zeros((*x[:, 0].shape, B.shape[-1]))
    states, y = [], []
    for t in range(dt.shape[-1]):
        if from_zero and t % chunk_size == 0:
            h = np.zeros_like(h)
        if t < x.shape[1]:
            step = dt[:, :, t, None, None]
            h = np.exp(step * model["A"][:, None, None]) * h + step * x[:, t, :, :, None] * B[:, t, :, None, :]
            y.append(np.einsum("bhpn,bhn->bhp", h, C[:, t]) + model["D"].astype(np.float64)[:, None] * x[:, t])
        if t % chunk_size == chunk_size - 1:
            states.append(h)
    return np.stack(states, axis=1), np.stack(y, axis=1)


DTYPE = "float16"
CASES = [
    {"seqlen": 128, "chunk_size": 64, "ngroups": 1, "nheads": 2, "headdim": 32, "dstate": 64},
    {"seqlen": 130, "chunk_size": 48, "ngroups": 2, "nheads": 4, "headdim": 40, "dstate": 24},
]


def check(target="cpu", execution="device", *, seqlen, chunk_size, ngroups, nheads, headdim, dstate, batch=2):
    """The relative error against the recurrence that starts every chunk from an empty state."""
    sizes = (batch, seqlen, chunk_size, ngroups, nheads, headdim, dstate)
    model = random_model(*sizes)
    kernel = tilelang.compile(chunk_state(*sizes), out_idx=[4], target=target, execution=execution)
    states = run(kernel, model["B"], model["x"], model["dt"], model["dA_cumsum"])
    return relative_error(states, recurrence(model, chunk_size, from_zero=True)[0])


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
