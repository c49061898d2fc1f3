"""What users may give as configurations, and what they become."""

import pytest

import tilelang
import tilelang.language as T
from tilelang.autotuner import Space
from tilelang.autotuner.configurations import called, configurations, plain_config
from tilelang.errors import BadConfigurations

NAMES = ["M", "block_M", "num_stages", "policy"]


def test_a_dict_of_lists_is_the_product_of_its_lists():
    found = configurations({"block_M": [32, 64], "num_stages": (1, 2), "policy": None}, NAMES)
    assert found == [{"block_M": m, "num_stages": s, "policy": None} for m in (32, 64) for s in (1, 2)]


def test_a_list_stands_for_itself_without_its_repetitions():
    configs = [{"block_M": 32}, {"block_M": 64}, {"block_M": 32}]
    assert configurations(configs, NAMES) == configs[:2]
    assert configurations((c for c in configs), NAMES) == configs[:2]


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda: {"block_M": [1]}, {"block_M": [1]}),
        (lambda M: M + 1, 8),
        (lambda M, other=3: (M, other), (7, 3)),
        (lambda **all: sorted(all), ["M", "N"]),
        (lambda *all: all, (7, 9)),
    ],
)
def test_a_function_gets_the_arguments_that_it_names(function, found):
    assert called(function, {"M": 7, "N": 9}) == found


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ([], "there are no configurations"),
        ({"block_M": []}, "there are no configurations"),
        ([{"block_m": 1}], "no parameter 'block_m'"),
        ([{"block_M": 1}, {"num_stages": 2}], "set different parameters"),
        (3, "nothing to choose from"),
        (["block_M"], "nothing to choose from"),
        ("block_M", "nothing to choose from"),
    ],
)
def test_what_makes_no_configurations(configs, words):
    with pytest.raises(BadConfigurations, match=words):
        configurations(configs, NAMES)


def test_a_function_with_an_unknown_parameter():
    with pytest.raises(BadConfigurations, match="'size' that the call has no value for"):
        called(lambda size: [], {"M": 1})


def test_values_that_are_no_json_become_their_names():
    config = {"dtype": T.float16, "policy": T.GemmWarpPolicy.FullRow, "n": 3, "flag": True, "shape": (1, 2)}
    assert plain_config(config) == {
        "dtype": "float16",
        "policy": "GemmWarpPolicy.FullRow",
        "n": 3,
        "flag": True,
        "shape": [1, 2],
    }


def test_a_space_takes_the_usual_values_of_names_that_it_knows():
    configs = Space().configs(["block_M", "num_stages", "eps"])
    assert {c["block_M"] for c in configs} == {16, 32, 64, 128, 256}
    assert {c["num_stages"] for c in configs} == {0, 2, 3, 4}
    assert all("eps" not in c for c in configs)
    assert Space({"rows": [1, 2]}).configs(["rows", "eps"]) == [{"rows": 1}, {"rows": 2}]
    own = Space({"block_M": [8], "threads": [64]}).configs(["block_M", "threads"])
    assert own == [{"block_M": 8, "threads": 64}]


def test_a_space_with_nothing_to_vary():
    with pytest.raises(BadConfigurations, match="nothing to vary"):
        Space().configs(["eps"])
    with pytest.raises(BadConfigurations, match="no parameter 'rows'"):
        Space({"rows": [1]}).configs(["block_M"])


def test_what_the_caller_gives_is_not_tuned(matmul):
    configs = {"block_M": [32, 64], "num_stages": [1, 2]}
    tuned = tilelang.autotune(configs=configs)(tilelang.jit(target="cpu")(matmul))
    open_all, _ = tuned.tuner.candidates(tuned.request(64, 64, 64))
    assert len(open_all) == 4
    fixed, _ = tuned.tuner.candidates(tuned.request(64, 64, 64, block_M=32))
    assert fixed == [{"num_stages": 1}, {"num_stages": 2}]
    other, _ = tuned.tuner.candidates(tuned.request(64, 64, 64, block_M=48))
    assert other == fixed
    assert tuned(64, 64, 64, block_M=32, num_stages=0).config == {}


def test_configurations_may_depend_on_the_sizes_of_the_call(matmul):
    def configs(M, block_N):
        return {"block_M": [b for b in (16, 32, 64) if b <= M], "block_N": [block_N]}

    tuned = tilelang.autotune(configs=configs)(tilelang.jit(matmul))
    assert [c["block_M"] for c in tuned.tuner.candidates(tuned.request(32, 64, 64))[0]] == [16, 32]
    assert [c["block_N"] for c in tuned.tuner.candidates(tuned.request(16, 64, 64))[0]] == [64]
