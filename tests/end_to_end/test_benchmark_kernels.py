"""The kernels that the GPU benchmarks measure: short texts, right results at small sizes."""

from __future__ import annotations

import inspect
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang

GPU = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
TARGET = "cuda -arch=sm_90a"
PARTS = 16  # of the measured kernels


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """The modules of benchmarks/gpu, which is no package."""
    before = set(sys.modules)
    sys.path.insert(0, str(GPU))
    import cases
    import configs
    import kernels
    import recorded

    yield type("Modules", (), {"cases": cases, "configs": configs, "kernels": kernels, "recorded": recorded})
    sys.path.remove(str(GPU))
    for name in {"cases", "configs", "kernels", "pack", "recorded"} - before:
        sys.modules.pop(name, None)


def emulated(function: Any, *arrays: Any) -> Any:
    """The result of the last parameter."""
    options = {"tl.enable_fast_math": True}
    return tilelang.compile(function, out_idx=[-1], target=TARGET, execution="emulate", pass_configs=options)(*arrays)


def close(got: Any, want: Any) -> None:
    error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)
    assert error < 2e-3


def halves(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float16)


def softmax(scores: Any) -> Any:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def test_the_texts_are_short(benchmark: Any) -> None:
    assert {f.__name__: n for f, n in benchmark.kernels.TEXTS.items() if f.__name__ != "gemv"} == {
        "gemm": 25,
        "gemm_persistent": 35,
        "attention": 70,
        "attention_persistent": 70,
        "mla": 80,
        "mla_pairs": 80,
    }
    for text, most in benchmark.kernels.TEXTS.items():
        assert len(inspect.getsource(text).splitlines()) <= most, text.__name__


def test_the_cases_are_those_of_the_goals(benchmark: Any) -> None:
    """Names are what artifacts are found by; every recorded figure belongs to a case."""
    cases, recorded = benchmark.cases, benchmark.recorded
    for group, members in cases.GROUPS.items():
        assert len({case.name for case in members}) == len(members), group
    labels = [f"{c.dtype} {c.label}" for _, c in cases.chosen(["gemm", "fp8"], None)]
    assert labels == [
        *(f"{t} M{i}" for t in ("float16", "bfloat16") for i in range(8)),
        *(f"float8_e4m3fn M{i}" for i in (1, 2, 5, 7)),
    ]
    every = [recorded.recorded(case) for _, case in cases.chosen(None, None)]
    figures = [ms for found in every for ms in found.values()]
    tables = [recorded.FLASH_ATTENTION_3, recorded.FLASH_MLA, recorded.GEMV]
    assert sorted(figures) == sorted(ms for table in tables for ms in table.values())
    for _, case in cases.chosen(None, None):
        for ms in recorded.recorded(case).values():  # nothing recorded is faster than the bound
            assert cases.bound_ms(case)[0] < ms
    assert [c.label for _, c in cases.chosen(["gemv"], ["V3", "9216x36864"])] == ["V3", "V7"]


def test_every_case_has_a_configuration(benchmark: Any) -> None:
    for group, case in benchmark.cases.chosen(None, None):
        best = benchmark.configs.configs(group, case)
        swept = benchmark.configs.configs(group, case, sweep=True)
        assert best
        assert swept[: len(best)] == best
        assert len({c.name for c in swept}) == len(swept)


@pytest.mark.parametrize("transpose_B", [False, True])
def test_gemm(benchmark: Any, transpose_B: bool) -> None:
    rng = np.random.default_rng(0)
    A, B = halves(rng, 96, 80), halves(rng, 80, 72)
    function = benchmark.kernels.gemm(96, 72, 80, "float16", "float16", transpose_B, 64, 64, 32, 2, 128, 2)
    close(emulated(function, A, np.ascontiguousarray(B.T) if transpose_B else B), A.astype(float) @ B.astype(float))


@pytest.mark.parametrize(("staged", "blocks", "pair"), [(False, 3, 1), (True, 3, 1), (False, 2, 2)])
def test_gemm_of_blocks_that_stay(benchmark: Any, staged: bool, blocks: int, pair: int) -> None:
    """Eight tiles, some of them partial, for three blocks: the last wave is not full. Or for a cluster of two."""
    rng = np.random.default_rng(0)
    A, B = halves(rng, 200, 80), halves(rng, 80, 120)
    shape = (200, 120, 80, "float16", "float16", False, 64, 64, 32, 2, 128, 2)
    function = benchmark.kernels.gemm_persistent(*shape, blocks, staged, pair)
    close(emulated(function, A, B), A.astype(float) @ B.astype(float))


@pytest.mark.parametrize("stages", [0, 3])
def test_gemv(benchmark: Any, stages: int) -> None:
    rng = np.random.default_rng(0)
    W, x = halves(rng, 6, 1000), halves(rng, 1000)
    close(
        emulated(benchmark.kernels.gemv(6, 1000, "float16", 4, 256, 32, stages, "evict_first"), W, x),
        W.astype(float) @ x.astype(float),
    )


@pytest.mark.parametrize(("tokens", "causal"), [(128, True), (80, False)])
def test_attention(benchmark: Any, tokens: int, causal: bool) -> None:
    rng = np.random.default_rng(0)
    Q, K, V = halves(rng, 1, 2, tokens, 64), halves(rng, 1, 1, tokens, 64), halves(rng, 1, 1, tokens, 64)
    function = benchmark.kernels.attention(1, 2, 1, tokens, 64, causal, "float16", 64, 32, 2, 128)
    scores = Q.astype(float) @ K.astype(float).swapaxes(-1, -2) / math.sqrt(64)
    if causal:
        scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    close(emulated(function, Q, K, V), softmax(scores) @ V.astype(float))


@pytest.mark.parametrize(("tokens", "lag"), [(128, 0), (80, 8)])
def test_attention_of_blocks_that_stay(benchmark: Any, tokens: int, lag: int) -> None:
    """Eight tiles of two sequences for three blocks, in sections of two heads."""
    rng = np.random.default_rng(0)
    Q, K, V = halves(rng, 2, 2, tokens, 64), halves(rng, 2, 1, tokens, 64), halves(rng, 2, 1, tokens, 64)
    shape = (2, 2, 1, tokens, 64, True, "float16", 64, 32, 2, 128)
    function = benchmark.kernels.attention_persistent(*shape, 3, 2, lag, 1)
    scores = Q.astype(float) @ K.astype(float).swapaxes(-1, -2) / math.sqrt(64)
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    close(emulated(function, Q, K, V), softmax(scores) @ V.astype(float))


@pytest.mark.full  # half a minute for the proof that no two threads of a cluster meet
def test_attention_of_pairs_that_stay(benchmark: Any) -> None:
    """Three tiles of each of four heads, the last one in a pair with none, for two clusters of two blocks."""
    rng = np.random.default_rng(0)
    Q, K, V = halves(rng, 2, 2, 150, 64), halves(rng, 2, 1, 150, 64), halves(rng, 2, 1, 150, 64)
    shape = (2, 2, 1, 150, 64, False, "float16", 64, 32, 2, 128)
    function = benchmark.kernels.attention_persistent(*shape, 2, 2, 8, 2)
    scores = Q.astype(float) @ K.astype(float).swapaxes(-1, -2) / math.sqrt(64)
    close(emulated(function, Q, K, V), softmax(scores) @ V.astype(float))


@pytest.mark.parametrize(
    ("name", "heads", "dim", "pe_dim", "tiles"),
    [("mla", 32, 128, 32, (16, 32, 1, 128)), ("mla_pairs", 64, 128, 64, (64, 64, 1, 384))],
)
def test_mla(benchmark: Any, name: str, heads: int, dim: int, pe_dim: int, tiles: tuple[int, ...]) -> None:
    """Scores grow from tile to tile, so that each raises the maximum of those before it."""
    rng = np.random.default_rng(0)
    Q, Q_pe = halves(rng, 2, heads, dim), halves(rng, 2, heads, pe_dim)
    growing = np.linspace(0.5, 3, 384).astype(np.float16)[:, None, None]
    KV, K_pe = halves(rng, 2, 384, 1, dim) * growing, halves(rng, 2, 384, 1, pe_dim)
    function = getattr(benchmark.kernels, name)(2, heads, 384, dim, pe_dim, "float16", *tiles)
    q, q_pe, kv, k_pe = (x.astype(float) for x in (Q, Q_pe, KV[:, :, 0], K_pe[:, :, 0]))
    scores = (q @ kv.swapaxes(1, 2) + q_pe @ k_pe.swapaxes(1, 2)) / math.sqrt(dim + pe_dim)
    close(emulated(function, Q, Q_pe, KV, K_pe), softmax(scores) @ kv)


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_no_measured_kernel_spills_or_is_serialized(benchmark: Any, tmp_path: Path, part: int) -> None:
    """Each case in its own configuration, in the variant that is measured; in parts, for as many processes."""
    import pack

    chosen = benchmark.cases.chosen(None, None)
    tasks = [(case, config) for group, case in chosen for config in benchmark.configs.configs(group, case)]
    said = []
    for case, config in tasks[part::PARTS]:
        text, file = pack.compiled(tmp_path, "sm_90a", case, config, leave=False)
        said += [] if file else [text]
    assert not said
