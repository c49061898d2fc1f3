"""The identity of a kernel's source: it changes with everything the kernel depends on, and with nothing else."""

import importlib.util
import itertools

import pytest

import tilelang.language as T
from tilelang import fingerprint

_serial = itertools.count()


@pytest.fixture
def function_of(tmp_path):
    """`function_of(text, **more modules)`: the function `kernel` of a module with this text, freshly imported."""

    def load(text, **modules):
        loaded = {}
        for name, source in [*modules.items(), ("program", text)]:
            file = tmp_path / f"{name}_{next(_serial)}.py"
            file.write_text(source)
            spec = importlib.util.spec_from_file_location(name, file)
            module = importlib.util.module_from_spec(spec)
            vars(module).update(loaded)
            spec.loader.exec_module(module)
            loaded[name] = module
        return loaded["program"].kernel

    return load


BASE = """
import tilelang.language as T

SIZE = 8
TABLE = {"scale": [1, 2.5]}


class Config:
    block = 4

    @staticmethod
    def width():
        return 2


def helper(x):
    return inner(x) + 1


def inner(x):
    return x * 2


def kernel(A, n=3):
    with T.Kernel(SIZE):
        A[0] = helper(A[1]) * TABLE["scale"][1] + Config.block + Config.width() + module.helper(1) + module.VALUE
"""
MODULE = "VALUE = 5\nUNUSED = 6\ndef helper(x):\n    return x + 1\n"


def identity(function_of, text=BASE, module=MODULE):
    return fingerprint.of_function(function_of(text, module=module))


def test_same_text_and_values_give_the_same_identity(function_of):
    assert identity(function_of) is not None
    assert identity(function_of) == identity(function_of)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A[0] =", "A[1] ="),
        ("SIZE = 8", "SIZE = 16"),
        ("[1, 2.5]", "[1, 3.5]"),
        ("n=3", "n=4"),
        ("return inner(x) + 1", "return inner(x) + 2"),
        ("return x * 2", "return x * 3"),
        ("block = 4", "block = 5"),
        ("return 2\n", "return 3\n"),
    ],
    ids=["text", "global", "nested value", "default", "helper", "helper's helper", "class value", "class method"],
)
def test_identity_changes_with_what_the_kernel_uses(function_of, old, new):
    assert BASE.count(old) == 1
    assert identity(function_of) != identity(function_of, BASE.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [("VALUE = 5", "VALUE = 7"), ("return x + 1", "return x + 2")])
def test_identity_changes_with_what_is_used_of_another_module(function_of, old, new):
    assert identity(function_of) != identity(function_of, module=MODULE.replace(old, new))


def test_identity_does_not_change_with_what_is_not_used(function_of):
    assert identity(function_of) == identity(function_of, BASE.replace("SIZE = 8", "OTHER = 1\nSIZE = 8"))
    assert identity(function_of) == identity(function_of, module=MODULE.replace("UNUSED = 6", "UNUSED = 7"))


def test_identity_does_not_depend_on_the_place_in_the_file(function_of):
    assert identity(function_of) == identity(function_of, "# a remark\n\n\n" + BASE)


def make(value):
    def use(x):
        return x + value

    return use


def test_closure_values_count():
    assert fingerprint.of_function(make(1)) != fingerprint.of_function(make(2))
    assert fingerprint.of_function(make(1)) == fingerprint.of_function(make(1))
    assert fingerprint.of_function(make(1)) != fingerprint.of_function(make(1.0))
    assert fingerprint.of_function(make(1)) != fingerprint.of_function(make(True))
    assert fingerprint.of_function(make((1, 2))) != fingerprint.of_function(make([1, 2]))


def test_two_functions_of_one_text_with_different_closures_both_count():
    def pair(first, second):
        def use(x):
            return first(x) * second(x)

        return use

    assert fingerprint.of_function(pair(make(1), make(2))) != fingerprint.of_function(pair(make(1), make(3)))


def test_annotations_count():
    def annotated(shape, dtype):
        def kernel(A: T.Tensor(shape, dtype)):
            pass

        return kernel

    seen = {fingerprint.of_function(annotated(s, d)) for s in ((4,), (8,), (4, 8)) for d in ("float16", "float32")}
    assert len(seen) == 6
    assert None not in seen


def test_annotations_as_text_count(function_of):
    text = (
        "from __future__ import annotations\nimport tilelang.language as T\nN = 8\n"
        "def kernel(A: T.Tensor((N,), 'float32')):\n    pass\n"
    )
    assert identity(function_of, text) != identity(function_of, text.replace("N = 8", "N = 16"))


def test_method_counts_its_object():
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        def apply(self, x):
            return x * self.factor

    def user(method):
        def kernel(x):
            return method(x)

        return kernel

    assert fingerprint.of_function(user(Scaler(2).apply)) is None


def test_value_without_identity_gives_none():
    assert fingerprint.of_function(make(object())) is None
    assert fingerprint.of_values({"x": object()}) is None


def test_recursive_functions_end():
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    assert fingerprint.of_function(even) is not None


def test_macros_count_by_their_text():
    def using(macro):
        def kernel(A):
            macro(A)

        return kernel

    @T.macro
    def one(A):
        A[0] = 1

    @T.macro
    def two(A):
        A[0] = 2

    assert fingerprint.of_function(using(one)) is not None
    assert fingerprint.of_function(using(one)) != fingerprint.of_function(using(two))


def test_values_of_every_kind_have_an_identity():
    np = pytest.importorskip("numpy")
    import enum

    class Mode(enum.Enum):
        fast = 1

    values = {
        "number": 3,
        "dtype": T.float16,
        "numpy dtype": np.dtype("float16"),
        "numpy type": np.float32,
        "numpy scalar": np.int64(4),
        "mode": Mode.fast,
        "policy": T.GemmWarpPolicy.FullRow,
        "dimension": T.dynamic("m"),
        "layout": T.Layout((4, 4), lambda i, j: (j, i)),
        "nested": {"a": [1, (2, {3})], "b": None},
        "function": make(2),
    }
    for name, value in values.items():
        assert fingerprint.of_values({"x": value}) is not None, name
        assert fingerprint.of_values({"x": value}) == fingerprint.of_values({"x": value}), name


def test_layouts_count_by_their_map():
    a, b = T.Layout((4, 4), lambda i, j: (j, i)), T.Layout((4, 4), lambda i, j: (i, j))
    assert fingerprint.of_values({"x": a}) != fingerprint.of_values({"x": b})


def test_toolchain_identity_is_stable_in_a_process():
    assert fingerprint.toolchain() == fingerprint.toolchain()
