"""What users of a CPU call beside the large shapes of operators.py: small products, few tokens, packed sequences, caches.

`python benchmarks/operators.py --cpu-time [--only FAMILY]` measures them beside torch's way to say the same, FAMILY being a
function's name here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

import torch
from layers import layer_gradients
from linear_attention import linear_gradients
from operators import Case, norm_gradients
from torch.nn.functional import scaled_dot_product_attention as attend

import tile_ops
from tile_ops.dequantize.reference import dequantize

#: Both types in which a CPU computes; torch's bfloat16 is far slower than its float32 without AVX-512.
DTYPES = (torch.float32, torch.bfloat16)


def few_rows(device: str) -> Iterator[Case]:
    """Products of 1 to 96 rows of float32 by a square matrix, transposed as layers store it or row-major."""
    n = 4096
    for m, turned in product((1, 2, 4, 48, 96), (True, False)):
        yield product_case("few_rows", torch.float32, (m, n, n), turned)


def small_products(device: str) -> Iterator[Case]:
    """Products of float32 that fit a core's caches, or are narrow in one of their extents: m, k, n."""
    shapes = [(1, 64, 64), (1, 256, 256), (1, 1024, 1024), (8, 64, 64), (8, 512, 512), (16, 1024, 1024), (64, 64, 64)]
    shapes += [(64, 512, 512), (128, 128, 128), (128, 1024, 1024), (256, 256, 256), (512, 512, 512), (1000, 1000, 1000)]
    shapes += [(100, 4096, 100), (2048, 64, 2048), (2048, 2048, 64)]
    for shape, turned in product(shapes, (False, True)):
        yield product_case("small_products", torch.float32, shape, turned)


def narrow_products(device: str) -> Iterator[Case]:
    """By one column, of one row by columns that fill no block, and of one element along k: m, k, n."""
    shapes = [
        (1000, 1000, 1),
        (4096, 768, 1),
        (4096, 4096, 1),
        (1, 1232, 520),
        (1, 992, 1032),
        (1, 1, 1568),
        (928, 1, 1024),
        (2000, 1, 1500),
    ]
    for dtype, shape in product(DTYPES, shapes):
        yield product_case("narrow_products", dtype, shape, False)


def halves(device: str) -> Iterator[Case]:
    """Products of bfloat16: m, k, n, by matrices as layers store them (transposed) or row-major."""
    shapes = [(16, 512, 512, False), (32, 4096, 4096, False), (64, 4096, 4096, False)]
    shapes += [(40, 4096, 4096, True), (64, 4096, 4096, True), (72, 4096, 4096, True)]
    shapes += [(80, 768, 3072, True), (96, 4096, 4096, True), (128, 128, 128, True), (128, 256, 256, True)]
    shapes += [(128, 1024, 1024, True), (256, 1024, 8192, True), (300, 768, 768, True), (512, 512, 512, True)]
    shapes += [(1024, 1024, 1024, False), (1024, 1024, 1024, True), (2048, 2048, 2048, False)]
    shapes += [(2048, 64, 2048, True), (2048, 128, 2048, True), (2048, 256, 2048, True), (2048, 2048, 64, True)]
    for *shape, turned in shapes:
        yield product_case("halves", torch.bfloat16, (shape[0], shape[1], shape[2]), turned)


def product_case(family: str, dtype: torch.dtype, shape: tuple[int, int, int], turned: bool) -> Case:
    """(m, k) @ (k, n), by a transposed matrix if `turned`."""
    m, k, n = shape
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    b = b.T.contiguous().T if turned else b
    return Case(
        family,
        f"matmul {name(dtype)} {m}x{k}x{n} by a {'transposed' if turned else 'row-major'} matrix",
        dtype,
        lambda: tile_ops.matmul(a, b),
        lambda: a @ b,
        float(a.nbytes + b.nbytes + m * n * a.element_size()),
        2.0 * m * k * n,
    )


def batches(device: str) -> Iterator[Case]:
    """Products of batches: of heads, of activations by one matrix of a layer, of a strided view; batch, m, k, n, whether one
    matrix serves all."""
    shapes = [(8, 128, 64, 128, False), (32, 64, 64, 64, False), (4, 512, 512, 512, False), (64, 16, 128, 64, False)]
    shapes += [(8, 128, 1024, 1024, True), (4, 16, 768, 3072, True), (64, 1, 512, 512, True)]
    for dtype, (batch, m, k, n, serves) in product(DTYPES, shapes):
        a, b = torch.randn(batch, m, k).to(dtype), torch.randn(*(() if serves else (batch,)), k, n).to(dtype)
        apart = torch.randn(m, batch, k).to(dtype).transpose(0, 1)  # as heads lie
        turned = torch.randn(batch, k, m).to(dtype).mT  # as in the gradient of the other matrices
        for left, how in ((a, ""), (apart, ", strided"), *(() if serves else ((turned, ", of transposed ones"),))):
            yield Case(
                "batches",
                f"matmul {name(dtype)} {batch} of {m}x{k}x{n}{' by one matrix' if serves else ''}{how}",
                dtype,
                lambda left=left, b=b: tile_ops.matmul(left, b),
                lambda left=left, b=b: left @ b,
                float(a.nbytes + b.nbytes + batch * m * n * a.element_size()),
                2.0 * batch * m * k * n,
            )


def layers(device: str) -> Iterator[Case]:
    """A layer's product with its bias and activation: m, k, n."""
    functional = torch.nn.functional
    activations = {None: lambda x: x, "relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu}
    for dtype, (m, k, n), activation in product(
        DTYPES, ((1, 1024, 4096), (11, 27, 1488), (32, 768, 3072), (512, 1024, 4096), (4096, 3, 256)), activations
    ):
        x, w, bias = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype) / 32, torch.randn(n).to(dtype)
        after = activations[activation]
        yield Case(
            "layers",
            f"matmul {name(dtype)} {m}x{k}x{n} with bias{' and ' + activation if activation else ''}",
            dtype,
            lambda x=x, w=w, bias=bias, activation=activation: tile_ops.matmul(
                x, w.T, bias=bias, activation=activation
            ),
            lambda x=x, w=w, bias=bias, after=after: after(functional.linear(x, w, bias)),
            float(x.nbytes + w.nbytes + m * n * x.element_size()),
            2.0 * m * k * n,
        )


def other_types(device: str) -> Iterator[Case]:
    """float16, where torch's takes no seconds on a CPU without instructions for it, and int8 beside `torch._int_mm`: m, k, n,
    transposed or row-major."""
    for m, k, n in ((1, 4096, 4096), (16, 1024, 1024), (64, 1024, 1024), (128, 1024, 1024), (512, 512, 512)):
        yield product_case("other_types", torch.float16, (m, k, n), True)
    for m, k, n in ((128, 1024, 1024), (512, 512, 512)):
        yield product_case("other_types", torch.float16, (m, k, n), False)
    shapes = [(1, 4096, 4096), (16, 1024, 1024), (64, 1024, 1024), (128, 1024, 1024), (300, 768, 768), (512, 512, 512)]
    shapes += [(1024, 1024, 1024), (256, 4096, 4096)]
    for (m, k, n), turned in product(shapes, (True, False)):
        turn = f"by a {'transposed' if turned else 'row-major'} matrix"
        a, b = torch.randint(-128, 128, (m, k), dtype=torch.int8), torch.randint(-128, 128, (k, n), dtype=torch.int8)
        b = b.T.contiguous().T if turned else b
        yield Case(
            "other_types",
            f"matmul int8 {m}x{k}x{n} {turn}",
            torch.int8,
            lambda a=a, b=b: tile_ops.matmul(a, b),
            lambda a=a, b=b: torch._int_mm(a, b),
            float(a.nbytes + b.nbytes + 4 * m * n),
            2.0 * m * k * n,
        )
        if turned:
            of_a, of_b = torch.rand(m, 1), torch.rand(n)
            yield Case(
                "other_types",
                f"matmul int8 {m}x{k}x{n} {turn}, with scales",
                torch.bfloat16,
                lambda a=a, b=b, of_a=of_a, of_b=of_b: tile_ops.matmul(a, b, scale_a=of_a, scale_b=of_b),
                lambda a=a, b=b, of_a=of_a, of_b=of_b: (torch._int_mm(a, b) * of_a * of_b).bfloat16(),
                float(a.nbytes + b.nbytes + 2 * m * n),
                2.0 * m * k * n,
            )


def experts(device: str) -> Iterator[Case]:
    """Rows of a mixture of experts, each group by its expert's matrix; torch takes one expert after the other."""
    for dtype, (rows, k, n, count) in product(DTYPES, ((512, 1024, 1024, 8), (64, 512, 2048, 16), (2048, 512, 512, 4))):
        x, w = torch.randn(rows, k).to(dtype), torch.randn(count, k, n).to(dtype)
        sizes = torch.bincount(torch.randint(0, count, (rows,)), minlength=count).int()

        def peer(x: Any = x, w: Any = w, sizes: Any = sizes) -> Any:
            return torch.cat([part @ matrix for part, matrix in zip(x.split(sizes.tolist()), w)])

        yield Case(
            "experts",
            f"grouped_matmul {name(dtype)} {rows}x{k}x{n} of {count} experts",
            dtype,
            lambda x=x, w=w, sizes=sizes: tile_ops.grouped_matmul(x, w, sizes),
            peer,
            float(x.nbytes + w.nbytes + rows * n * x.element_size()),
            2.0 * rows * k * n,
        )


def quantized(device: str) -> Iterator[Case]:
    """Few tokens and a short prompt by 4096 x 4096 weights in all formats, beside a product with halves, which leaves nothing of
    them in the caches."""
    n = 4096
    formats = (("uint4", 128), ("nf4", 64), ("int2", 128), ("mxfp4", 32), ("fp4", 64), ("uint1", 128), ("int4", 32))
    for (format, group), m in product(formats, (1, 2, 4, 8, 16, 32, 256)):
        w = tile_ops.quantize(torch.randn(n, n, dtype=torch.float16), format=format, group_size=group)
        options = {"scales": w.scales, "zeros": w.zeros, "format": format, "group_size": group}
        x, weights = torch.randn(m, n, dtype=torch.float16), dequantize(w.packed, **options).to(torch.float16)
        yield Case(
            "quantized",
            f"dequant_matmul {format} in groups of {group} {m}x{n}x{n}",
            torch.float16,
            lambda x=x, w=w, options=options: tile_ops.dequant_matmul(x, w.packed, **options),
            lambda x=x, weights=weights: x @ weights.T,
            float(w.packed.nbytes + w.scales.nbytes) + 4.0 * m * n,
            2.0 * m * n * n,
        )


def quantized_bfloat16(device: str) -> Iterator[Case]:
    """The same in bfloat16."""
    n, dtype = 4096, torch.bfloat16
    for (format, group), m in product((("uint4", 128), ("nf4", 64), ("int4", 32)), (1, 4, 8, 16, 32, 64, 256)):
        w = tile_ops.quantize(torch.randn(n, n, dtype=dtype), format=format, group_size=group)
        options = {"scales": w.scales, "zeros": w.zeros, "format": format, "group_size": group}
        x, weights = torch.randn(m, n, dtype=dtype), dequantize(w.packed, **options).to(dtype)
        yield Case(
            "quantized_bfloat16",
            f"dequant_matmul bfloat16 {format} in groups of {group} {m}x{n}x{n}",
            dtype,
            lambda x=x, w=w, options=options: tile_ops.dequant_matmul(x, w.packed, **options),
            lambda x=x, weights=weights: x @ weights.T,
            float(w.packed.nbytes + w.scales.nbytes) + 4.0 * m * n,
            2.0 * m * n * n,
        )


def int4_of_torch(device: str) -> Iterator[Case]:
    """The same beside torch's own product with weights of four bits, which it packs for rows of 64; its zeros are float, and
    added."""
    n, group, dtype = 4096, 128, torch.bfloat16
    w = tile_ops.quantize(torch.randn(n, n, dtype=dtype), format="uint4", group_size=group)
    assert w.zeros is not None
    options: dict[str, Any] = {"scales": w.scales, "zeros": w.zeros, "format": "uint4", "group_size": group}
    ones, none = torch.ones_like(w.scales), torch.zeros_like(w.zeros)
    codes = dequantize(w.packed, scales=ones, zeros=none, format="uint4", group_size=group).round().int()
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    both = torch.stack([w.scales, (8 - w.zeros.float()) * w.scales], -1).to(dtype)
    for m in (1, 2, 3, 4, 6, 8, 16, 64, 256):
        x = torch.randn(m, n, dtype=dtype)
        yield Case(
            "int4_of_torch",
            f"dequant_matmul bfloat16 uint4 in groups of {group} {m}x{n}x{n} beside torch's of four bits",
            dtype,
            lambda x=x: tile_ops.dequant_matmul(x, w.packed, **options),
            lambda x=x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, group, both),
            float(w.packed.nbytes + w.scales.nbytes) + 4.0 * m * n,
            2.0 * m * n * n,
        )


def weight_gradients(device: str) -> Iterator[Case]:
    """Products of a transposed matrix, by which layers learn: m, k, n."""
    for dtype, (m, k, n) in product(DTYPES, ((1024, 512, 1024), (256, 2048, 1024))):
        a, b = torch.randn(k, m, device=device).to(dtype).T, torch.randn(k, n, device=device).to(dtype)
        yield Case(
            "weight_gradients",
            f"matmul {name(dtype)} {m}x{k}x{n} of a transposed matrix",
            dtype,
            lambda a=a, b=b: tile_ops.matmul(a, b),
            lambda a=a, b=b: a @ b,
            float(a.nbytes + b.nbytes + m * n * a.element_size()),
            2.0 * m * k * n,
        )


def small_norms(device: str) -> Iterator[Case]:
    """Norms and softmax of float32 matrices that fit a core's caches, of any row length."""
    for m, n in ((1, 4096), (16, 512), (512, 1024), (8192, 160), (2048, 72), (4096, 31), (1024, 300)):
        yield from _norms("small_norms", m, n, torch.float32, device)


def large_norms(device: str) -> Iterator[Case]:
    """Those of matrices that fit none, and of rows as long as a vocabulary."""
    for dtype, (m, n) in product((torch.float32, torch.bfloat16), ((4096, 1024), (1024, 4096), (64, 30000))):
        yield from _norms("large_norms", m, n, dtype, device)


def _norms(operator: str, m: int, n: int, dtype: torch.dtype, device: str) -> Iterator[Case]:
    functional = torch.nn.functional
    x, w, b = (torch.randn(shape, device=device).to(dtype) for shape in ((m, n), n, n))
    calls = {
        "rms_norm": (lambda: tile_ops.rms_norm(x, w), lambda: functional.rms_norm(x, (n,), w, 1e-6)),
        "layer_norm": (lambda: tile_ops.layer_norm(x, w, b), lambda: functional.layer_norm(x, (n,), w, b, 1e-5)),
        "softmax": (lambda: tile_ops.softmax(x), lambda: functional.softmax(x, -1)),
    }
    for name, (ours, peer) in calls.items():
        yield Case(operator, f"{name} {str(dtype).removeprefix('torch.')} {m}x{n}", dtype, ours, peer, 2.0 * x.nbytes)


def gradients(device: str) -> Iterator[Case]:
    """dQ of attention in float32, with dK and dV: tokens, heads, dimension."""
    shapes = [(16, 2, 32), (64, 4, 64), (128, 8, 64), (512, 8, 128), (1024, 8, 64)]
    for (tokens, heads, dim), causal in product(shapes, (True, False)):
        q, k, v, dout = (torch.randn(1, tokens, heads, dim, device=device) for _ in range(4))
        leaves = tuple(x.requires_grad_() for x in (q, k, v))
        theirs = attend(*(x.transpose(1, 2) for x in leaves), is_causal=causal).transpose(1, 2)
        outs = (tile_ops.flash_attention(*leaves, causal=causal), theirs)

        def backward(out: Any, leaves: Any = leaves, dout: Any = dout) -> Any:
            return torch.autograd.grad(out, leaves, dout, retain_graph=True)[0]

        yield Case(
            "gradients",
            f"gradients of attention float32 s{tokens} h{heads} d{dim} {'causal' if causal else 'full'}",
            torch.float32,
            lambda out=outs[0], backward=backward: backward(out),
            lambda out=outs[1], backward=backward: backward(out),
            8.0 * q.nbytes,
            10.0 * heads * tokens**2 * dim * (0.5 if causal else 1.0),
        )


def few_tokens(device: str) -> Iterator[Case]:
    """Attention of short sequences, and of few queries over many keys: tokens, keys, heads, heads of keys, dimension."""
    shapes = [(4, 4, 8, 8, 64), (16, 16, 4, 4, 64), (32, 32, 8, 8, 128), (64, 64, 8, 8, 64), (128, 128, 8, 8, 64)]
    shapes += [(128, 128, 8, 8, 128), (256, 256, 8, 8, 96), (256, 256, 4, 4, 256), (512, 512, 8, 2, 128)]
    shapes += [
        (1000, 1000, 4, 4, 64),
        (1, 1024, 8, 8, 64),
        (4, 1024, 8, 8, 64),
        (17, 512, 8, 8, 64),
        (40, 512, 8, 8, 64),
    ]
    for dtype, (tokens, keys, heads, heads_kv, dim), causal in product(DTYPES, shapes, (True, False)):
        if causal and tokens != keys:
            continue
        q = torch.randn(1, tokens, heads, dim, dtype=dtype)
        k, v = (torch.randn(1, keys, heads_kv, dim, dtype=dtype) for _ in "kv")

        def peer(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
            operands = (x.transpose(1, 2) for x in (q, k, v))
            return attend(*operands, is_causal=causal, enable_gqa=q.shape[2] != k.shape[2]).transpose(1, 2)

        yield Case(
            "few_tokens",
            f"attention {name(dtype)} {tokens} by {keys} h{heads}/{heads_kv} d{dim} {'causal' if causal else 'full'}",
            dtype,
            lambda q=q, k=k, v=v, causal=causal: tile_ops.flash_attention(q, k, v, causal=causal),
            peer,
            2.0 * (q.nbytes + k.nbytes),
            4.0 * heads * tokens * keys * dim * (0.5 if causal else 1.0),
        )


def packed(device: str) -> Iterator[Case]:
    """Causal attention of sequences of different lengths; torch takes one after the other. And a window of 256 keys, which
    torch says by a mask."""
    for dtype, lengths in product(DTYPES, ((512, 100, 300, 112), (64,) * 16, (17, 31, 63, 128, 5))):
        ends = torch.tensor((0, *lengths), dtype=torch.int32).cumsum(0).int()
        q, k, v = (torch.randn(sum(lengths), 8, 64, dtype=dtype) for _ in "qkv")

        def peer(q: Any = q, k: Any = k, v: Any = v, ends: Any = ends) -> Any:
            parts = ([x[a:b].transpose(0, 1) for x in (q, k, v)] for a, b in pairwise(ends.tolist()))
            return torch.cat([attend(*part, is_causal=True).transpose(0, 1) for part in parts])

        yield Case(
            "packed",
            f"attention {name(dtype)} of {len(lengths)} sequences of up to {max(lengths)} tokens h8 d64",
            dtype,
            lambda q=q, k=k, v=v, ends=ends, lengths=lengths: tile_ops.flash_attention_varlen(
                q, k, v, ends, ends, max(lengths), causal=True
            ),
            peer,
            4.0 * q.nbytes,
        )
    for dtype in DTYPES:
        q, k, v = (torch.randn(1, 1024, 4, 128, dtype=dtype) for _ in "qkv")
        behind = torch.arange(1024)[:, None] - torch.arange(1024)

        def windowed(q: Any = q, k: Any = k, v: Any = v, mask: Any = (behind >= 0) & (behind < 256)) -> Any:
            return attend(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask).transpose(1, 2)

        yield Case(
            "packed",
            f"attention {name(dtype)} s1024 h4 d128 in a window of 256",
            dtype,
            lambda q=q, k=k, v=v: tile_ops.flash_attention(q, k, v, causal=True, window=(255, 0)),
            windowed,
            4.0 * q.nbytes,
        )


def caches(device: str) -> Iterator[Case]:
    """One token over paged caches: batch, keys, heads, heads of keys, dimension. torch gathers the pages first; for latent
    attention (512 + 64) it reads them as one tensor."""
    for dtype, shape in product(
        DTYPES, ((1, 1024, 8, 8, 128), (1, 4096, 32, 8, 128), (8, 1024, 32, 8, 128), (4, 512, 8, 1, 64))
    ):
        batch, keys, heads, heads_kv, dim = shape
        q = torch.randn(batch, heads, dim, dtype=dtype)
        k, v = (torch.randn(batch * keys // 64, 64, heads_kv, dim, dtype=dtype) for _ in "kv")
        table, lengths = torch.randperm(len(k)).int().view(batch, -1), torch.full((batch,), keys, dtype=torch.int32)

        def peer(q: Any = q, k: Any = k, v: Any = v, table: Any = table) -> Any:
            rows = [x[table].flatten(1, 2).transpose(1, 2) for x in (k, v)]
            return attend(q[:, :, None], *rows, enable_gqa=q.shape[1] != k.shape[2])[:, :, 0]

        yield Case(
            "caches",
            f"flash_decode {name(dtype)} b{batch} s{keys} h{heads}/{heads_kv} d{dim}",
            dtype,
            lambda q=q, k=k, v=v, table=table, lengths=lengths: tile_ops.flash_decode(q, k, v, table, lengths),
            peer,
            2.0 * k.nbytes,
        )
    for dtype, (batch, keys, heads) in product(DTYPES, ((1, 1024, 16), (1, 2048, 128), (8, 512, 16))):
        q, cache = torch.randn(batch, heads, 576, dtype=dtype), torch.randn(batch * keys // 64, 64, 576, dtype=dtype)
        table, lengths = torch.arange(len(cache)).int().view(batch, -1), torch.full((batch,), keys, dtype=torch.int32)
        parts = [part.contiguous() for part in q.split((512, 64), -1)]

        def latent(q: Any = q, cache: Any = cache) -> Any:
            rows = cache.view(len(q), -1, 576)
            return torch.softmax((q @ rows.mT).float() * 192**-0.5, -1).to(q.dtype) @ rows[..., :512]

        yield Case(
            "caches",
            f"mla_decode {name(dtype)} b{batch} s{keys} h{heads}",
            dtype,
            lambda parts=parts, cache=cache, table=table, lengths=lengths: tile_ops.mla_decode(
                *parts, cache, table, lengths, scale=192**-0.5
            ),
            latent,
            float(cache.nbytes),
            2.0 * batch * heads * keys * (512 + 576),
        )


def scans(device: str) -> Iterator[Case]:
    """The parts of a Mamba-2 scan and linear attention, 8 heads of 64: tokens, chunk. torch multiplies by chunks, too."""
    for dtype, (tokens, size) in product(DTYPES, ((1024, 256), (512, 64))):
        count = tokens // size
        x = torch.randn(1, tokens, 8, 64, dtype=dtype)
        dt = torch.rand(1, 8, count, size) * 0.1
        s = torch.cumsum(-0.3 * dt, -1)
        B, C = (torch.randn(1, tokens, 1, 128, dtype=dtype) for _ in "BC")
        cb, states = torch.randn(1, count, 1, size, size, dtype=dtype), torch.randn(1, count, 8, 64, 128, dtype=dtype)

        def outputs(x: Any = x, dt: Any = dt, s: Any = s, C: Any = C, cb: Any = cb, states: Any = states) -> Any:
            weights = torch.exp(s[..., :, None] - s[..., None, :]).mul_(dt[..., None, :]).tril_()
            weights = weights.mul_(cb[:, :, 0, None].transpose(1, 2)).to(x.dtype)
            y = torch.einsum("bhclm,bcmhp->bclhp", weights, x.unflatten(1, s.shape[2:]))
            before = torch.einsum("bcln,bchpn->bclhp", C[:, :, 0].unflatten(1, s.shape[2:]), states)
            return (y + before * torch.exp(s).permute(0, 2, 3, 1)[..., None]).to(x.dtype).flatten(1, 2)

        def ends(x: Any = x, dt: Any = dt, s: Any = s, B: Any = B) -> Any:
            weights = (torch.exp(s[..., -1:] - s) * dt).permute(0, 2, 3, 1).to(x.dtype)
            rows = B[:, :, 0].unflatten(1, s.shape[2:])
            return torch.einsum("bclhp,bcln->bchpn", x.unflatten(1, s.shape[2:]) * weights[..., None], rows).float()

        of = f"{name(dtype)} s{tokens} in chunks of {size}"
        yield Case(
            "scans",
            f"chunk_scan {of}",
            dtype,
            lambda cb=cb, x=x, dt=dt, s=s, C=C, states=states: tile_ops.chunk_scan(cb, x, dt, s, C, states),
            outputs,
            float(sum(t.nbytes for t in (cb, x, x, dt, s, C, states))),
        )
        yield Case(
            "scans",
            f"chunk_state {of}",
            dtype,
            lambda B=B, x=x, dt=dt, s=s: tile_ops.chunk_state(B, x, dt, s),
            ends,
            float(sum(t.nbytes for t in (x, dt, s, B))),
        )
        q, k, v = (torch.randn(1, tokens, 8, 64, dtype=dtype) for _ in "qkv")

        def linear(q: Any = q, k: Any = k, v: Any = v, size: int = size) -> Any:
            q, k, v = (x.transpose(1, 2).unflatten(2, (-1, size)) for x in (q, k, v))
            sums = torch.cumsum((k.mT @ v).float(), 2)
            before = (sums - (k.mT @ v).float()).to(q.dtype)
            return ((((q @ k.mT) * 64**-0.5).tril_() @ v + (q @ before) * 64**-0.5).flatten(2, 3)).transpose(1, 2)

        yield Case(
            "scans",
            f"linear_attention {name(dtype)} s{tokens}, torch's in chunks of {size}",
            dtype,
            lambda q=q, k=k, v=v: tile_ops.linear_attention(q, k, v),
            linear,
            4.0 * q.nbytes,
        )


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


FAMILIES: tuple[Callable[[str], Iterator[Case]], ...] = (
    few_rows,
    small_products,
    narrow_products,
    halves,
    batches,
    layers,
    other_types,
    experts,
    quantized,
    quantized_bfloat16,
    int4_of_torch,
    weight_gradients,
    layer_gradients,
    small_norms,
    large_norms,
    gradients,
    few_tokens,
    packed,
    caches,
    scans,
    norm_gradients,
    linear_gradients,
)
