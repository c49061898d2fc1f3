"""Classes of sizes: which calls share a result."""

import numpy as np
import pytest

import tilelang
from tilelang.autotuner.classes import arch_of, device_key, shape_class
from tilelang.errors import InvalidArgument
from tilelang.target import parse


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (63, "63"),
        (64, "64"),
        (65, "65..96"),
        (96, "65..96 by 8"),
        (97, "97..128"),
        (128, "97..128 by 8"),
        (4000, "3073..4096 by 8"),
        (4096, "3073..4096 by 8"),
        (4097, "4097..6144"),
        (True, "True"),
        (0.5, "0.5"),
        ("float16", "float16"),
        (None, "None"),
    ],
)
def test_class_of_a_value(value, text):
    assert shape_class({"x": value}) == f"x={text}"


def test_every_size_has_one_class_and_classes_grow_by_half_at_most():
    found: dict[str, list[int]] = {}
    for n in range(65, 70000):
        found.setdefault(shape_class({"n": n}).removesuffix(" by 8"), []).append(n)
    for name, sizes in found.items():
        low, high = map(int, name.removeprefix("n=").split(".."))
        assert low <= sizes[0] <= sizes[-1] <= high
        assert sizes == list(range(sizes[0], sizes[-1] + 1))
        assert high <= 1.5 * low


def test_tensors_and_exact_sizes():
    tensor = {"dtype": "float16", "shape": [4096, 7]}
    assert shape_class({"A": tensor}) == "A=float16[3073..4096 by 8 x 7]"
    assert shape_class({"A": tensor, "M": 4096}, exact=True) == "A=float16[4096 x 7], M=4096"
    assert shape_class({"A": tensor, "M": 4096}, ignore=("A",)) == "M=3073..4096 by 8"
    assert shape_class({}) == "defaults"


def test_defaults_and_ignored_arguments_are_not_in_the_class(matmul):
    tuned = tilelang.autotune(configs={"block_M": [32, 64]}, do_not_specialize=["K"])(tilelang.jit(matmul))

    def key(*args, **kwargs):
        request = tuned.request(*args, **kwargs)
        return shape_class(tuned.tuner.class_of(request, tuned.tuner.candidates(request)[0]))

    assert key(64, 48, 32) == "M=64, N=48"
    assert key(64, 48, 999, threads=128) == "M=64, N=48"
    assert key(64, 48, 32, threads=256) == "M=64, N=48, threads=193..256 by 8"
    with pytest.raises(InvalidArgument, match="do_not_specialize names no parameter"):
        tilelang.autotune(configs=[{"block_M": 1}], do_not_specialize=["L"])(tilelang.jit(matmul))


def test_a_call_with_tensors_and_one_with_sizes_are_of_one_class():
    import tilelang.language as T

    @tilelang.autotune(configs={"block": [16, 32]})
    @tilelang.jit(target="cpu")
    def double(A, block=64, scale=2.0):
        N, K = T.const("N, K")
        A: T.Tensor[[N, K], T.float16]
        B = T.empty((N, K), T.float16)
        with T.Kernel(T.ceildiv(N, block)) as bx:
            for i, j in T.Parallel(block, K):
                B[bx * block + i, j] = A[bx * block + i, j] * scale
        return B

    def key(request):
        return shape_class(double.tuner.class_of(request, double.tuner.candidates(request)[0]))

    by_tensor = key(double.request(np.zeros((100, 3), np.float16)))
    assert by_tensor == key(double.request(N=100, K=3)) == "A=float16[97..128 x 3]"
    assert key(double.request(np.zeros((100, 3), np.float16), scale=3.0)) == by_tensor + ", scale=3.0"


def test_sizes_that_a_factory_closes_over_are_sizes():
    def around(n):
        import tilelang.language as T

        @tilelang.jit(target="cpu")
        def copy(block=16):
            @T.prim_func
            def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
                with T.Kernel(1):
                    T.copy(A, B)

            return main

        return tilelang.autotune(configs={"block": [16, 32]})(copy)

    assert around(80).request().sizes == {"n": 80, "block": 16}


def test_devices_have_names():
    assert device_key(parse("cpu")).endswith("threads")
    assert arch_of(parse("cuda -arch=sm_90a")) == "sm_90a"
