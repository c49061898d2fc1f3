"""One group of measurements in one process: `python benchmarks/measure.py gemm --threads 1` prints JSON lines.

`benchmarks/run.py` starts one such process for each group and number of threads, because the peers fix theirs at
import. Inputs are random; every line names the peers of the same run and the ratio to the best of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("group", choices=sorted(GROUPS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TILELANG_NUM_THREADS"):
        os.environ[name] = str(arguments.threads)
    for line in GROUPS[arguments.group](arguments):
        print(json.dumps({"group": arguments.group, "threads": arguments.threads, **line}), flush=True)


def _line(what: str, times: dict[str, float], ours: str, unit: str, work: float) -> Line:
    """`work` / seconds in `unit`; the ratio is ours over the best peer (above 1: faster)."""
    peers = {n: t for n, t in times.items() if n != ours and not n.startswith("ours")}
    best = min(peers, key=lambda n: peers[n])
    rates = {n: work / t for n, t in times.items()}
    return {"what": what, "unit": unit, "rates": rates, "best peer": best, "ratio": times[best] / times[ours]}


# Block sizes for this kind of CPU: the winners of `python benchmarks/cpu_microkernel.py`.
GEMM_BLOCKS = (256, 256, 256)


def gemm(arguments: argparse.Namespace) -> Iterator[Line]:
    """float32 and bfloat16 products, square; block sizes for the CPU, and those of the documents beside them."""
    import numpy as np
    import torch

    torch.set_num_threads(arguments.threads)
    from kernels import gemm as kernel
    from paired import paired

    rng = np.random.default_rng(0)
    for size in (1024,) if arguments.quick else (1024, 2048, 4096):
        a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
        c = np.empty((size, size), np.float32)
        ta, tb, tc = (torch.from_numpy(x) for x in (a, b, c))
        tuned = kernel(size, size, size, *GEMM_BLOCKS)
        small = kernel(size, size, size, 128, 128, 64)
        times = paired(
            {
                "ours": lambda: tuned(a, b, c),
                "ours, 128x128x64": lambda: small(a, b, c),
                "numpy": lambda: np.matmul(a, b, out=c),
                "torch": lambda: torch.matmul(ta, tb, out=tc),
            },
            seconds=4 if size > 1024 else 2,
        )
        tuned(a, b, c)
        error = float(np.abs(c[:64] - a[:64].astype(np.float64) @ b.astype(np.float64)).max())
        assert error < 1e-2, error
        yield _line(f"gemm f32 {size}", times, "ours", "GFLOP/s", 2 * size**3 / 1e9)
        ha, hb = ta.bfloat16(), tb.bfloat16()
        hc = torch.empty(size, size, dtype=torch.bfloat16)
        tuned16 = kernel(size, size, size, *GEMM_BLOCKS, "bfloat16", "bfloat16")
        times = paired(
            {"ours": lambda: tuned16(ha, hb, hc), "torch": lambda: torch.matmul(ha, hb, out=hc)},
            seconds=3 if size > 1024 else 1,
        )
        yield _line(f"gemm bf16 {size}", times, "ours", "GFLOP/s", 2 * size**3 / 1e9)


ATTENTION_BLOCKS = (256, 128)


def attention(arguments: argparse.Namespace) -> Iterator[Line]:
    """Attention forward, 32 heads, head dim 128, float32, beside torch's scaled_dot_product_attention."""
    import torch
    from kernels import flash_attention
    from paired import paired

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    heads, dim = 32, 128
    for tokens in (512,) if arguments.quick else (512, 1024, 2048, 4096):
        for causal in (False, True):
            q, k, v = (torch.randn(1, heads, tokens, dim) for _ in range(3))
            out = torch.empty_like(q)
            ours = flash_attention(1, heads, tokens, dim, causal, *ATTENTION_BLOCKS)
            peer = torch.nn.functional.scaled_dot_product_attention
            times = paired(
                {"ours": lambda: ours(q, k, v, out), "torch": lambda: peer(q, k, v, is_causal=causal)}, 3, rounds=3
            )
            ours(q, k, v, out)
            assert torch.allclose(out, peer(q, k, v, is_causal=causal), atol=1e-3)
            flops = 4 * heads * tokens * tokens * dim * (0.5 if causal else 1.0)
            name = f"attention f32 {tokens} tokens{' causal' if causal else ''}"
            yield _line(name, times, "ours", "GFLOP/s", flops / 1e9)


def call(arguments: argparse.Namespace) -> Iterator[Line]:
    """A call with two small arrays: microseconds, checks included, and prepared."""
    import numpy as np
    import torch
    from kernels import add
    from paired import paired

    kernel = add(64)
    a, b = np.ones(64, np.float32), np.ones(64, np.float32)
    ta, tb = torch.ones(64), torch.ones(64)
    prepared = kernel.prepare(a, b)
    times = paired(
        {
            "numpy arrays": lambda: kernel(a, b),
            "torch tensors": lambda: kernel(ta, tb),
            "prepared": lambda: prepared(a, b),
            "numpy's own a + b": lambda: np.add(a, b, out=b),
            "torch's own a + b": lambda: torch.add(ta, tb, out=tb),
        },
        2,
    )
    for name, seconds in times.items():
        yield {"what": f"call, {name}", "unit": "us", "rates": {"ours": seconds * 1e6}}


_QUICKSTART = """
import time
{first}
begin = time.process_time()
from kernels import gemm
kernel = gemm(1024, 1024, 1024, 128, 128, 64)
import sys
print(time.process_time() - begin, 'tvm' in sys.modules)
"""


def start(arguments: argparse.Namespace) -> Iterator[Line]:
    """CPU seconds, in a fresh process each: import, first compile, the same kernel from the cache."""
    import statistics
    import subprocess
    import tempfile

    here = os.path.dirname(os.path.abspath(__file__))

    def run(code: str, folder: str) -> list[str]:
        env = {**os.environ, "TILELANG_CACHE_DIR": folder, "PYTHONPATH": here}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        return done.stdout.split()

    modules = "import tilelang, tilelang.language; tilelang.jit"
    imports = f"import time; b = time.process_time(); {modules}; print(time.process_time() - b)"
    rounds = 3
    with tempfile.TemporaryDirectory() as folder:
        times = [float(run(imports, folder)[0]) for _ in range(rounds)]
        yield {"what": modules, "unit": "s", "rates": {"ours": statistics.median(times)}}
    cold, warm = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(float(run(_QUICKSTART.format(first="import tvm"), folder)[0]))
            seconds, loaded = run(_QUICKSTART.format(first=modules), folder)
            assert loaded == "False", "a warm process imported TVM"
            warm.append(float(seconds))
    yield {"what": "compile the GEMM, cold, after import tvm", "unit": "s", "rates": {"ours": statistics.median(cold)}}
    yield {"what": "load the GEMM from the cache, new process", "unit": "s", "rates": {"ours": statistics.median(warm)}}


def operators(arguments: argparse.Namespace) -> Iterator[Line]:
    """Every operator of tile_ops beside torch, and the bound of this machine (operators.py)."""
    import torch
    from operators import on_cpu

    torch.set_num_threads(arguments.threads)
    yield from on_cpu(arguments.quick)


GROUPS = {"gemm": gemm, "attention": attention, "operators": operators, "call": call, "start": start}

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    begin = time.perf_counter()
    main()
