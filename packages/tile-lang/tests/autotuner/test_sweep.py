"""Tuning for real on the CPU: wrong, endless and crashing candidates beside good ones, and what stays of them."""

import json

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.autotuner import AutoTuner, results, set_autotune_inputs
from tilelang.errors import InvalidArgument, TuningFailed

MODES = ["plain", "blocked", "wrong", "lazy", "endless", "crash", "unknown"]


def doubling(n, mode="plain", factor=2.0):
    """B = 2 A, in several ways, most of them bad; `far` holds 0 but where a sweep says otherwise."""

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), far: T.Tensor((1,), "int64"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            if mode == "blocked":
                for i, j in T.Parallel(n // 8, 8):
                    B[i * 8 + j] = A[i * 8 + j] * factor
            elif mode == "wrong":
                for i in T.Parallel(n):
                    B[i] = A[i] * 3.0
            elif mode == "lazy":
                for i in T.Parallel(n - 1):
                    B[i] = A[i] * factor
            elif mode == "unknown":
                for i in T.Parallel(n):
                    B[i] = T.no_such_function(A[i])
            else:
                for i in T.Parallel(n):
                    B[i] = A[i] * factor
            if mode == "crash":
                B[far[0] + n] = 1.0
            if mode == "endless":
                for k in T.serial(far[0]):
                    for i in T.serial(n):
                        B[i] = B[i] * 1.5 + T.sin(B[i])

    return main


FAR = 1 << 40
INPUTS = (np.arange(64, dtype=np.float32), np.array([FAR]))


@pytest.fixture(scope="module")
def swept(tmp_path_factory, kernels):
    """One sweep over all modes: (kernel, record, tuned function)."""
    path = tmp_path_factory.mktemp("sweep") / "results.json"
    tuned = tilelang.autotune(configs={"mode": MODES}, warmup=0, rep=1, timeout=10, results=path, verbose=False)(
        tilelang.jit(target="cpu", out_idx=[2], pass_configs={"tl.disable_safe_memory_access": True})(doubling)
    )
    with pytest.MonkeyPatch.context() as patch, set_autotune_inputs(*INPUTS):
        patch.setenv("TILELANG_CACHE_DIR", str(kernels))
        patch.delenv("TILELANG_DISABLE_CACHE", raising=False)
        kernel = tuned(64)
    (record,) = next(iter(results.read(path)["doubling"].values())).values()
    return kernel, record, tuned


def fates(record):
    return {c["config"]["mode"]: c for c in record["candidates"]}


def test_the_chosen_kernel_works_and_says_how_it_was_chosen(swept):
    kernel, record, _ = swept
    assert kernel.config["mode"] in ("plain", "blocked")
    assert kernel.latency == record["ms"] == min(c["ms"] for c in record["candidates"] if "ms" in c)
    np.testing.assert_array_equal(kernel(INPUTS[0], np.array([0])), 2 * INPUTS[0])


def test_results_that_most_do_not_share_are_failures(swept):
    found = fates(swept[1])
    assert {mode for mode in MODES if "ms" in found[mode]} == {"plain", "blocked"}
    assert found["wrong"]["failed"] == "its results differ from those of 2 other configurations"
    assert found["lazy"]["failed"] == found["wrong"]["failed"]  # it leaves out an element, which was poisoned


def test_endless_and_crashing_candidates_end_with_their_process(swept):
    found = fates(swept[1])
    assert found["endless"]["failed"] == "no end after 10 s"
    assert "the process died (signal 11" in found["crash"]["failed"]


def test_the_error_of_a_candidate_that_does_not_trace_is_kept(swept):
    assert "no_such_function" in fates(swept[1])["unknown"]["failed"]


def test_the_record_says_what_was_measured(swept):
    record = swept[1]
    assert record["measured"] == {"n": 64, "factor": 2.0}
    assert record["target"] == "cpu"
    assert len(record["source"]) == 64


def test_a_known_class_is_not_measured_again(swept, monkeypatch):
    _, record, tuned = swept
    again = tilelang.autotune(configs={"mode": MODES}, results=tuned.tuner.path)(tuned.tuner.kernel)
    monkeypatch.setattr("tilelang.autotuner.sweep.run_all", None)
    assert again(64).config == record["config"]
    assert again(64) is again(64)


def tuned_with(configs, **options):
    options = {"warmup": 0, "rep": 1, "verbose": False, **options}
    return tilelang.autotune(configs=configs, **options)(tilelang.jit(target="cpu", out_idx=[2])(doubling))


def zero_far(params):
    return [np.ones(64, np.float32), np.array([0])]


def test_a_reference_decides_what_is_right(folder):
    tuned = tuned_with(
        {"mode": ["wrong", "plain"]}, supply_prog=zero_far, ref_prog=lambda a, far: 3 * np.asarray(a), rep=1
    )
    kernel = tuned(64)
    assert kernel.config == {"mode": "wrong"}
    assert kernel.ref_latency > 0
    record = tuned.tuner.choose(tuned.request(64)).record
    assert "64 of 64 elements differ" in fates(record)["plain"]["failed"]


def test_nothing_is_compared_where_the_user_says_so(folder):
    tuned = tuned_with({"mode": ["wrong", "plain"]}, supply_prog=zero_far, skip_check=True)
    assert all("ms" in c for c in tuned.tuner.choose(tuned.request(64)).record["candidates"])


def test_no_candidate_is_left(folder):
    tuned = tuned_with({"mode": ["unknown"], "factor": [1.0, 2.0]})
    with pytest.raises(TuningFailed) as caught:
        tuned(64)
    assert "2 configurations: 0 pruned, 2 failed" in str(caught.value)
    assert "no_such_function" in str(caught.value)
    assert "no_such_function" in str(caught.value.__cause__)


def test_the_cache_file_is_believed_for_the_same_text_and_configurations(folder, monkeypatch):
    tuned = tuned_with({"mode": ["plain", "blocked"]}, supply_prog=zero_far)
    first = tuned(64)
    path = folder / "autotuner" / "results.json"
    assert path.exists()
    # What the file says is what a new process takes.
    data = json.loads(path.read_text())
    (record,) = next(iter(data["results"]["doubling"].values())).values()
    other = {"plain": "blocked", "blocked": "plain"}[first.config["mode"]]
    record["config"] = {"mode": other}
    path.write_text(json.dumps(data))
    assert tuned_with({"mode": ["plain", "blocked"]})(64).config == {"mode": other}
    # Not for configurations that nobody measured, nor for another text.
    swept = []
    monkeypatch.setattr("tilelang.autotuner.sweep.Sweep.plan", lambda self: swept.append(self.configs) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tuned_with({"mode": ["plain", "wrong"]})(64)
    record["source"] = "another"
    path.write_text(json.dumps(data))
    with pytest.raises(ZeroDivisionError):
        tuned_with({"mode": ["plain", "blocked"]})(64)
    assert len(swept) == 2


def test_without_a_cache_results_stay_in_memory(folder, monkeypatch):
    monkeypatch.setenv("TILELANG_AUTO_TUNING_DISABLE_CACHE", "1")
    tuned = tuned_with({"mode": ["plain", "blocked"]}, supply_prog=zero_far)
    kernel = tuned(64)
    assert not (folder / "autotuner").exists()
    monkeypatch.setattr("tilelang.autotuner.sweep.run_all", None)
    assert tuned(64) is kernel


def test_eager_kernels_are_tuned_on_the_tensors_of_the_call(folder, monkeypatch):
    @tilelang.autotune(configs={"block": [16, 64]}, warmup=0, rep=1, verbose=False)
    @tilelang.jit(target="cpu")
    def gather(X, index, scale: T.float32, block=32):
        N, M = T.const("N, M")
        X: T.Tensor[[N], T.float32]
        index: T.Tensor[[M], T.int32]
        Y = T.empty((M,), T.float32)
        with T.Kernel(T.ceildiv(M, block)) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[index[bx * block + i]] * scale
        return Y

    rng = np.random.default_rng(0)
    X, index = rng.standard_normal(100, np.float32), rng.integers(0, 100, 64).astype(np.int32)
    np.testing.assert_allclose(gather(X, index, 2.0), 2 * X[index])
    monkeypatch.setattr("tilelang.autotuner.sweep.run_all", None)
    np.testing.assert_allclose(gather(X, index=index[::-1].copy(), scale=3.0), 3 * X[index[::-1]])
    np.testing.assert_allclose(gather(X[:99].copy(), index % 99, 2.0, block=8), 2 * X[index % 99])
    assert gather.compile(N=100, M=64).config in ({"block": 16}, {"block": 64})


def test_a_result_of_the_class_that_does_not_compile_here_gives_way_to_the_next(folder):
    def factory(n, parts=1):
        if n % parts:
            raise ValueError(f"{n} is no multiple of {parts}")
        return doubling(n)

    path = folder / "autotuner" / "own.json"
    candidates = [{"config": {"parts": 3}, "ms": 1.0}, {"config": {"parts": 4}, "ms": 3.0}]
    candidates.append({"config": {"parts": 2}, "ms": 2.0})
    from tilelang.autotuner.classes import device_key
    from tilelang.target import parse

    path.parent.mkdir(parents=True)
    name = "test_a_result_of_the_class_that_does_not_compile_here_gives_way_to_the_next.factory"
    record = {"config": {"parts": 3}, "ms": 1.0, "candidates": candidates}
    results.add(path, {name: {device_key(parse("cpu")): {"n=65..96 by 8": record}}})
    tuned = tilelang.autotune(configs={"parts": [2, 3, 4]}, results=path)(tilelang.jit(target="cpu")(factory))
    assert tuned(72).config == {"parts": 3}
    assert tuned(80).config == {"parts": 2}


def test_the_class_form(folder):
    n = 64

    def kernel(mode=None):
        return doubling(n, mode)

    tuner = AutoTuner.from_kernel(kernel, [{"mode": "plain"}, {"mode": "blocked"}])
    tuner = tuner.set_compile_args(out_idx=[2], target="cpu").set_profile_args(supply_prog=zero_far, verbose=False)
    found = tuner.run(warmup=0, rep=1)
    assert found.config["mode"] in ("plain", "blocked")
    assert found.latency > 0
    assert found.ref_latency is None
    np.testing.assert_array_equal(found.kernel(np.ones(n, np.float32), np.array([0])), 2)
    assert found.func.attrs["global_symbol"] == "main"
    assert found.libcode
    with pytest.raises(InvalidArgument, match="no keyword 'warm'"):
        tuner.set_profile_args(warm=3)
    with pytest.raises(InvalidArgument, match="for a plain factory"):
        AutoTuner.from_kernel(tilelang.jit(kernel), []).set_compile_args(out_idx=[2])


def test_an_interpreted_kernel_takes_the_first_configuration_unmeasured(folder, caplog):
    tuned = tilelang.autotune(configs={"mode": ["blocked", "plain"]})(
        tilelang.jit(execution="interpret", out_idx=[2])(doubling)
    )
    kernel = tuned(64)
    assert (kernel.config, kernel.latency) == ({"mode": "blocked"}, None)
    assert "is chosen unmeasured" in caplog.text
    np.testing.assert_array_equal(kernel(np.ones(64, np.float32), np.array([0])), 2)


def test_autotune_stands_above_jit():
    with pytest.raises(InvalidArgument, match="put @tilelang.jit below"):
        tilelang.autotune(configs=[{"mode": "plain"}])(doubling)
    with pytest.raises(InvalidArgument, match="unknown shape_class"):
        tilelang.autotune(configs=[], shape_class="none")(tilelang.jit(doubling))
