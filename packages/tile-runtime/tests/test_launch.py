"""The launcher: what a call accepts, binds, allocates and launches. Each case runs fast path and complete check."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tile_runtime import errors
from tile_runtime.launch import LoadedKernel
from tile_runtime.tensor import numpy_address

Maker = Callable[..., tuple[LoadedKernel, list[tuple[Any, ...]]]]


def tensor(name: str, dtype: str, shape: list[Any], access: str = "r", **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": shape, "access": access, **more}


def scalar(name: str, dtype: str) -> dict[str, Any]:
    return {"name": name, "kind": "scalar", "dtype": dtype}


def test_numpy_call_allocates_returns_and_launches(make: Maker) -> None:
    kernel, calls = make()
    a, b = np.zeros((10, 64), np.float32), np.ones((10, 64), np.float32)
    for _ in range(2):
        c = kernel(a, b)
        assert (type(c), c.shape, c.dtype) == (np.ndarray, (10, 64), np.float32)
        symbol, args, grid, block, shared = calls.pop()
        assert (symbol, grid, block, shared) == ("main", (3, 1, 1), (1, 1, 1), 0)
        assert args == [numpy_address(a), numpy_address(b), numpy_address(c), 10]


def test_torch_call_allocates_returns_and_launches(make: Maker) -> None:
    kernel, calls = make()
    a, b = torch.zeros(10, 64), torch.nn.Parameter(torch.ones(10, 64))
    for _ in range(2):
        c = kernel(a, b)
        assert (type(c), c.shape, c.dtype) == (torch.Tensor, (10, 64), torch.float32)
        assert calls.pop()[1] == [a.data_ptr(), b.data_ptr(), c.data_ptr(), 10]


def test_a_passed_output_is_written_into_and_returned(make: Maker) -> None:
    kernel, calls = make()
    a = np.zeros((3, 64), np.float32)
    c = torch.empty(3, 64)  # libraries may be mixed
    assert kernel(a, a, c) is c
    assert calls[0][1][2] == c.data_ptr()


def test_empty_tensors_launch_nothing(make: Maker) -> None:
    kernel, calls = make()
    assert kernel(np.zeros((0, 64), np.float32), np.zeros((0, 64), np.float32)).shape == (0, 64)
    assert kernel(torch.zeros(0, 64), torch.zeros(0, 64)).shape == (0, 64)
    assert calls == []


def test_several_outputs_come_as_a_tuple_and_none_as_none(make: Maker) -> None:
    params = [tensor("A", "float32", [4]), tensor("X", "int8", [2], "w"), tensor("Y", "float64", [3], "w")]
    kernel, _ = make(params=params, dims=[], outputs=["Y", "X"])
    y, x = kernel(np.zeros(4, np.float32))
    assert (y.dtype, x.dtype) == (np.float64, np.int8)
    kernel, _ = make(params=params, dims=[], outputs=[])
    assert kernel(np.zeros(4, np.float32), np.zeros(2, np.int8), np.zeros(3)) is None


def test_outputs_in_front_are_left_out_in_order(make: Maker) -> None:
    params = [tensor("C", "float32", [4], "w"), tensor("A", "float32", [4]), scalar("s", "int32")]
    kernel, calls = make(params=params, dims=[], outputs=["C"])
    a = np.zeros(4, np.float32)
    c = kernel(a, 7)
    assert calls[0][1] == [numpy_address(c), numpy_address(a), 7]


def test_outputs_of_a_kernel_without_input_tensors(make: Maker) -> None:
    kernel, _ = make(
        params=[scalar("n", "int32"), tensor("C", "float32", [["param", "n"]], "w")], dims=[], outputs=["C"]
    )
    assert type(kernel(5)) is torch.Tensor  # torch is loaded here
    assert kernel(5).shape == (5,)


def test_alignment_of_allocated_outputs(make: Maker) -> None:
    params = [tensor("A", "float32", [5]), tensor("C", "float32", [5, 3], "w", align=256)]
    kernel, calls = make(params=params, dims=[], outputs=["C"])
    for _ in range(5):
        assert kernel(np.zeros(5, np.float32)).shape == (5, 3)
        assert calls.pop()[1][1] % 256 == 0


# -- dtypes ------------------------------------------------------------------------------------------------------------

FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("name", ["bfloat16", *FLOAT8])
def test_narrow_floats_of_every_library(make: Maker, name: str) -> None:
    kernel, calls = make(params=[tensor("A", name, [4]), tensor("C", name, [4], "w")], dims=[], outputs=["C"])
    in_numpy, in_torch = np.zeros(4, getattr(ml_dtypes, name)), torch.zeros(4, dtype=torch.uint8)
    out = kernel(in_numpy)
    assert out.dtype == getattr(ml_dtypes, name)
    in_torch = torch.empty(4, dtype=getattr(torch, name))
    assert kernel(in_torch).dtype == getattr(torch, name)
    if name in FLOAT8:
        for raw in (np.zeros(4, np.uint8), np.zeros(4, np.int8), torch.zeros(4, dtype=torch.uint8)):
            kernel(raw)
    assert len(calls) == (5 if name in FLOAT8 else 2)


def test_bool_accepts_bytes_and_tfloat32_is_float32(make: Maker) -> None:
    kernel, _ = make(params=[tensor("A", "bool", [4]), tensor("B", "tfloat32", [2])], dims=[], outputs=[])
    for a in (np.zeros(4, bool), np.zeros(4, np.uint8), np.zeros(4, np.int8), torch.zeros(4, dtype=torch.bool)):
        kernel(a, np.zeros(2, np.float32))
    with pytest.raises(errors.ArgumentDtypeError, match="carried by float32"):
        kernel(np.zeros(4, bool), np.zeros(2, np.float64))


PACKED = [("int4", 2), ("uint4", 2), ("float4_e2m1fn", 2), ("int2", 4), ("uint2", 4), ("int1", 8), ("uint1", 8)]


@pytest.mark.parametrize(("name", "per"), PACKED)
def test_packed_types_come_as_bytes_and_shapes_stay_logical(make: Maker, name: str, per: int) -> None:
    params = [tensor("A", name, [["dim", "m"], ["dim", "k"]]), tensor("C", name, [["dim", "k"], ["dim", "m"]], "w")]
    dims = [{"name": "m", "param": "A", "axis": 0}, {"name": "k", "param": "A", "axis": 1}]
    kernel, calls = make(params=params, dims=dims, outputs=["C"])
    for a in (np.zeros((16, 3), np.uint8), torch.zeros(16, 3, dtype=torch.int8)):
        assert tuple(kernel(a).shape) == (3 * per, 16 // per)
    if name == "float4_e2m1fn":
        kernel(torch.empty(16, 3, dtype=torch.float4_e2m1fn_x2))
    assert calls
    with pytest.raises(errors.ArgumentDtypeError, match=f"packed {per} to a byte, low bits first.*K // {per}"):
        kernel(np.zeros((16, 24), np.float32))


def test_odd_static_extent_of_a_packed_type(make: Maker) -> None:
    kernel, _ = make(params=[tensor("A", "int4", [5])], dims=[], outputs=[])
    kernel(np.zeros(3, np.int8))
    with pytest.raises(errors.ArgumentShapeError, match=r"2 bytes of 2 elements == ceildiv\(5, 2\), which is 3"):
        kernel(np.zeros(2, np.int8))


# -- scalars -----------------------------------------------------------------------------------------------------------


def test_scalars_are_converted(make: Maker) -> None:
    params = [
        scalar("i", "int32"),
        scalar("u", "uint8"),
        scalar("b", "bool"),
        scalar("x", "float32"),
        scalar("h", "bfloat16"),
    ]
    kernel, calls = make(params=params, dims=[], outputs=[])
    for args in [
        (-3, 200, True, 1.5, 2),
        (np.int64(-3), np.uint8(200), np.bool_(True), np.float32(1.5), np.int8(2)),
        (torch.tensor(-3), np.array(200), 1, torch.tensor(1.5), True + 1),
    ]:
        kernel(*args)
        assert calls.pop()[1] == [-3, 200, 1, 1.5, 2.0]
    assert isinstance(struct.pack("d", 2.0), bytes)


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        (
            (2**31, 1.0),
            errors.ScalarRangeError,
            "k.i is 2147483648, which int32 cannot hold (-2147483648 to 2147483647)",
        ),
        ((1.5, 1.0), errors.ArgumentTypeError, "k.i is expected to be an integer of dtype int32, but got float"),
        (
            (np.zeros(3), 1.0),
            errors.ArgumentTypeError,
            "k.i is expected to be an integer of dtype int32, but got numpy.ndarray",
        ),
        ((1, "x"), errors.ArgumentTypeError, "k.x is expected to be a number of dtype float32, but got str"),
        ((1, None), errors.ArgumentTypeError, "k.x is expected to be a number of dtype float32, but got None"),
    ],
)
def test_wrong_scalars(make: Maker, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    kernel, _ = make(name="k", params=[scalar("i", "int32"), scalar("x", "float32")], dims=[], outputs=[])
    with pytest.raises(error) as caught:
        kernel(*args)
    assert text in str(caught.value)


# -- what is wrong with a call -----------------------------------------------------------------------------------------


def f32(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def unaligned() -> Any:
    return np.zeros(10 * 64 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(10, 64)


def read_only() -> Any:
    array = f32(10, 64)
    array.setflags(write=False)
    return array


WRONG_CALLS: list[tuple[Callable[[], tuple[Any, ...]], type[Exception], type[Exception], str]] = [
    (lambda: (f32(10, 64),), errors.ArgumentCountError, ValueError, "Kernel expected 2 inputs, but 1 are provided."),
    (
        lambda: (f32(1, 64),) * 4,
        errors.ArgumentCountError,
        TypeError,
        "add(A, B) allocates its outputs (C); with 3 arguments",
    ),
    (
        lambda: (np.zeros((10, 64), np.float16), f32(10, 64)),
        errors.ArgumentDtypeError,
        TypeError,
        "add.A.dtype is expected to be float32, but got float16; convert it, e.g. A.astype('float32')",
    ),
    (
        lambda: (f32(10, 64), torch.zeros(10, 64, dtype=torch.bfloat16)),
        errors.ArgumentDtypeError,
        RuntimeError,
        "add.B.dtype is expected to be float32, but got bfloat16; convert it, e.g. B.to(torch.float32)",
    ),
    (
        lambda: (f32(10, 63), f32(10, 64)),
        errors.ArgumentShapeError,
        ValueError,
        "Argument add.A.shape[1] has an unsatisfied constraint: 63 == 64. Found shape (10, 63)",
    ),
    (
        lambda: (f32(10, 64), f32(11, 64)),
        errors.ArgumentShapeError,
        RuntimeError,
        "Argument add.B.shape[0] has an unsatisfied constraint: 11 == n, which is 10 (n = 10 from A.shape[0])",
    ),
    (
        lambda: (f32(10, 64), f32(10, 64), f32(9, 64)),
        errors.ArgumentShapeError,
        ValueError,
        "Argument add.C.shape[0] has an unsatisfied constraint: 9 == n",
    ),
    (
        lambda: (f32(640), f32(10, 64)),
        errors.ArgumentShapeError,
        ValueError,
        "add.A.ndim is expected to be 2, but got 1: declared shape (n, 64), found (640,)",
    ),
    (
        lambda: (f32(64, 10).T, f32(10, 64)),
        errors.ArgumentStrideError,
        ValueError,
        "add.A.strides is expected to be contiguous, but got strides (1, 10) for shape (10, 64); pass A.contiguous()",
    ),
    (
        lambda: (torch.zeros(64, 10).t(), torch.zeros(10, 64)),
        errors.ArgumentStrideError,
        ValueError,
        "add.A.strides is expected to be contiguous",
    ),
    (
        lambda: (unaligned(), f32(10, 64)),
        errors.ArgumentAlignmentError,
        ValueError,
        "no multiple of 4 bytes; pass a fresh copy",
    ),
    (
        lambda: (f32(10, 64), f32(10, 64), read_only()),
        errors.ReadOnlyError,
        ValueError,
        "add.C is read-only and the kernel writes to it",
    ),
    (
        lambda: ([1.0], f32(10, 64)),
        errors.ArgumentTypeError,
        TypeError,
        "add.A is expected to be a tensor (numpy, torch or any array with __dlpack__) of dtype float32, but got list",
    ),
    (lambda: (None, f32(10, 64)), errors.ArgumentTypeError, TypeError, "but got None"),
    (
        lambda: (torch.zeros(10, 64).to_sparse(), f32(10, 64)),
        errors.ArgumentTypeError,
        TypeError,
        "add.A is a torch tensor of layout",
    ),
    (
        lambda: (torch.zeros(10, 64, device="meta"), f32(10, 64)),
        errors.ArgumentTypeError,
        TypeError,
        "without memory (meta or fake)",
    ),
]


@pytest.mark.parametrize(("arguments", "error", "builtin", "text"), WRONG_CALLS)
def test_wrong_calls_are_explained(
    make: Maker, arguments: Callable[[], tuple[Any, ...]], error: type[Exception], builtin: type[Exception], text: str
) -> None:
    kernel, calls = make()
    kernel(f32(2, 64), torch.zeros(2, 64))  # types have been seen: the fast path is what refuses
    calls.clear()
    with pytest.raises(error) as caught:
        kernel(*arguments())
    assert text in str(caught.value)
    assert isinstance(caught.value, builtin)
    assert str(caught.value).startswith(error.code + ": ")  # type: ignore[attr-defined]
    assert caught.value.__context__ is None or caught.value.__suppress_context__  # no noise of the fast path
    assert calls == []


def test_read_only_inputs_are_fine(make: Maker) -> None:
    kernel, calls = make()
    kernel(read_only(), read_only())
    assert len(calls) == 1


def test_a_cpu_tensor_for_a_gpu_kernel_names_the_ways_out(make: Maker) -> None:
    kernel, _ = make(device="cuda")
    for a in (f32(2, 64), torch.zeros(2, 64)):
        with pytest.raises(errors.ArgumentDeviceError) as caught:
            kernel(a, a)
        for word in (
            "add.A.device_type is expected to be cuda",
            ".to('cuda')",
            "TILELANG_TARGET_OVERRIDE=cpu",
            "TILELANG_EXECUTION=emulate",
        ):
            assert word in str(caught.value)


# -- dims, strides, guards ---------------------------------------------------------------------------------------------


def test_a_dim_solved_from_a_scaled_extent(make: Maker) -> None:
    params = [tensor("A", "int8", [["+", ["*", 3, ["dim", "n"]], 2]]), tensor("C", "int8", [["dim", "n"]], "w")]
    dims = [{"name": "n", "param": "A", "axis": 0, "scale": 3, "offset": 2}]
    kernel, _ = make(params=params, dims=dims, outputs=["C"])
    for _ in range(2):
        assert kernel(np.zeros(14, np.int8)).shape == (4,)
    for wrong in (13, 1):
        with pytest.raises(errors.ArgumentShapeError, match=rf"A\.shape\[0\].*{wrong} == 3 \* n \+ 2 for a whole n"):
            kernel(np.zeros(wrong, np.int8))


def test_a_dim_known_only_from_an_output(make: Maker) -> None:
    params = [tensor("A", "int8", [4]), tensor("C", "int8", [["dim", "n"]], "w")]
    kernel, calls = make(params=params, dims=[{"name": "n", "param": "C", "axis": 0}], outputs=["C"])
    c = np.zeros(9, np.int8)
    assert kernel(np.zeros(4, np.int8), c) is c
    with pytest.raises(errors.OutputError, match="dim n is known only from C, which this call left out; pass C"):
        kernel(np.zeros(4, np.int8))
    assert len(calls) == 1


STRIDED = {
    "params": [
        tensor("A", "float32", [["dim", "m"], ["dim", "k"]], strides=[["dim", "s"], 1]),
        tensor("B", "float32", [["dim", "s"]]),
    ],
    "dims": [
        {"name": "m", "param": "A", "axis": 0},
        {"name": "k", "param": "A", "axis": 1},
        {"name": "s", "param": "A", "axis": 0, "of": "strides"},
    ],
    "outputs": [],
}


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_strides_bind_dims_and_are_checked(make: Maker, library: str) -> None:
    kernel, calls = make(**STRIDED)
    wrap = torch.from_numpy if library == "torch" else np.asarray
    base = wrap(f32(4, 10))
    for _ in range(2):
        kernel(base[:, :6], wrap(f32(10)))
    assert len(calls) == 2
    with pytest.raises(
        errors.ArgumentStrideError, match=r"A\.strides\[1\].*2 == 1, which is 1.*Found strides \(10, 2\)"
    ):
        kernel(base[:, ::2], wrap(f32(10)))
    with pytest.raises(
        errors.ArgumentShapeError, match=r"B\.shape\[0\].*9 == s, which is 10 \(s = 10 from A\.strides\[0\]\)"
    ):
        kernel(base[:, :6], wrap(f32(9)))
    kernel(base[:, :1], wrap(f32(10)))  # the stride of an extent of one does not matter


def test_an_unused_parameter_takes_none(make: Maker) -> None:
    kernel, calls = make(params=[tensor("A", "float32", [4], "none"), tensor("B", "float32", [4])], dims=[], outputs=[])
    kernel(None, f32(4))
    a = f32(4)
    kernel(a, f32(4))
    assert [c[1][0] for c in calls] == [0, numpy_address(a)]


def test_an_unused_tensor_is_recognised_as_any_other(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    params = [
        tensor("A", "float32", [["dim", "n"]], "none"),
        tensor("B", "float32", [["dim", "m"]], "none"),
        tensor("C", "float32", [["dim", "n"]]),
    ]
    dims = [{"name": "n", "param": "C", "axis": 0}, {"name": "m", "param": "B", "axis": 0}]
    kernel, calls = make(params=params, dims=dims, outputs=[])
    a, b, c = torch.zeros(4), torch.zeros(3), torch.zeros(4)
    kernel(a, b, c)
    monkeypatch.setattr(kernel._binder, "bind", lambda args: pytest.fail("the complete check ran again"))
    kernel(a, b, c)
    kernel(None, b, c)
    assert [call[1][0] for call in calls] == [a.data_ptr(), a.data_ptr(), 0]
    monkeypatch.undo()
    for wrong in ((torch.zeros(5), b, c), (torch.zeros(4).double(), b, c)):
        with pytest.raises((errors.ArgumentShapeError, errors.ArgumentDtypeError)):
            kernel(*wrong)
    with pytest.raises(errors.OutputError, match="dim m is known only from B"):
        kernel(a, None, c)


def test_pointers_are_addresses_or_tensors(make: Maker) -> None:
    kernel, calls = make(params=[{"name": "P", "kind": "pointer", "dtype": "int8"}], dims=[], outputs=[])
    a = np.zeros(3)
    kernel(4096)
    kernel(a)
    assert [c[1] for c in calls] == [[4096], [numpy_address(a)]]
    with pytest.raises(errors.ArgumentTypeError):
        kernel("x")


def test_checks_variants_workspaces_and_several_launches(make: Maker) -> None:
    launch = {
        "binary": "add.o",
        "symbol": "first",
        "grid": [["dim", "n"], 2, 1],
        "block": [128, 1, 1],
        "shared": ["*", ["dim", "n"], 4],
    }
    second = {
        "binary": "add.o",
        "symbol": "second",
        "args": [["workspace", 0], ["value", "int32", ["+", ["param", "s"], 1]]],
    }
    aligned = {"binary": "add.o", "symbol": "aligned", "args": [["param", "A"]]}
    kernel, calls = make(
        params=[tensor("A", "int8", [["dim", "n"]]), scalar("s", "int32")],
        outputs=[],
        checks=[{"expr": ["<", ["param", "s"], 9], "code": "small-s", "message": "s must be below 9"}],
        workspace=[{"bytes": ["*", ["dim", "n"], 8], "zero": True}],
        variants=[
            {"guard": ["==", ["floormod", ["dim", "n"], 16], 0], "launches": [aligned]},
            {"guard": [">", ["dim", "n"], 2], "launches": [launch, second]},
        ],
    )
    kernel(np.zeros(32, np.int8), 1)
    assert [c[0] for c in calls] == ["aligned"]
    calls.clear()
    kernel(np.zeros(5, np.int8), 1)
    assert [(c[0], c[2:]) for c in calls] == [
        ("first", ((5, 2, 1), (128, 1, 1), 20)),
        ("second", ((1, 1, 1), (1, 1, 1), 0)),
    ]
    assert calls[1][1][0] != 0
    assert calls[1][1][1] == 2
    with pytest.raises(
        errors.CheckFailed, match=r"add: s must be below 9 \[small-s\]: s < 9 is false for n = 5, s = 9"
    ):
        kernel(np.zeros(5, np.int8), 9)
    with pytest.raises(errors.NoVariantError, match=r"was not compiled for n = 1, s = 0: no variant's guard holds"):
        kernel(np.zeros(1, np.int8), 0)


def test_hostile_names_do_not_enter_the_generated_text(make: Maker) -> None:
    hostile = "__import__"
    kernel, calls = make(
        name=f"x'''+{hostile}('os').getcwd()#",
        params=[tensor(hostile, "int8", [["dim", "len"]])],
        dims=[{"name": "len", "param": hostile, "axis": 0}],
        outputs=[],
    )
    kernel(np.zeros(3, np.int8))
    assert len(calls) == 1
    assert hostile not in kernel.source


def test_common_calls_never_reach_the_complete_check(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = [tensor("A", "int4", [["dim", "n"]]), scalar("x", "float32"), scalar("b", "bool")]
    scaled = [tensor("A", "bfloat16", [["+", ["*", 3, ["dim", "n"]], 2]])]
    bf16 = ml_dtypes.bfloat16
    cases: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = [
        ({}, [(f32(3, 64), f32(3, 64)), (torch.zeros(3, 64), torch.zeros(3, 64), torch.zeros(3, 64))]),
        (
            {"params": packed, "outputs": []},
            [(np.zeros(3, np.uint8), 1.0, True), (torch.zeros(3, dtype=torch.int8), 1, 0)],
        ),
        (
            {
                "params": scaled,
                "dims": [{"name": "n", "param": "A", "axis": 0, "scale": 3, "offset": 2}],
                "outputs": [],
            },
            [(np.zeros(5, bf16),), (torch.zeros(8, dtype=torch.bfloat16),)],
        ),
        (STRIDED, [(f32(4, 10)[:, :6], f32(10)), (torch.zeros(4, 10)[:, :6], torch.zeros(10))]),
    ]
    for fields, calls in cases:
        kernel, _ = make(**fields)
        for call in calls:
            kernel(*call)
        monkeypatch.setattr(
            kernel._binder, "bind", lambda args: pytest.fail("the fast path did not recognise the call")
        )
        for call in calls:
            kernel(*call)


# -- prepared ----------------------------------------------------------------------------------------------------------


def test_prepared_calls_read_pointers_only(make: Maker) -> None:
    params = [tensor("A", "int8", [["dim", "n"]]), scalar("s", "int32"), tensor("C", "int8", [["dim", "n"]], "w")]
    kernel, calls = make(params=params, outputs=["C"])
    a, c = np.zeros(7, np.int8), np.zeros(7, np.int8)
    full = kernel.prepare(a, 5, c)
    short = kernel.prepare(a, 5)
    assert calls == []
    other = torch.zeros(7, dtype=torch.int8)
    assert full(other, c) is c
    assert short(a).shape == (7,)
    assert full(4096, 8192) == 8192
    assert [call[1][:2] for call in calls] == [[other.data_ptr(), 5], [numpy_address(a), 5], [4096, 5]]
    with pytest.raises(errors.ArgumentCountError, match="takes 2 tensors"):
        full(a)
    with pytest.raises(errors.ArgumentTypeError):
        short("x")


def test_prepare_checks_and_prepared_calls_keep_alignment(make: Maker) -> None:
    kernel, _ = make()
    with pytest.raises(errors.ArgumentShapeError):
        kernel.prepare(f32(3, 63), f32(3, 64))
    run = kernel.prepare(f32(10, 64), f32(10, 64))
    with pytest.raises(errors.ArgumentAlignmentError, match=r"add\.B"):
        run(f32(10, 64), unaligned())


def test_calls_from_many_threads(make: Maker) -> None:
    from concurrent.futures import ThreadPoolExecutor

    kernel, calls = make()

    def one(n: int) -> bool:
        a = f32(n, 64)
        c = kernel(a, a)
        return bool(c.shape == (n, 64))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(1, 200)))
    assert len(calls) == 199


def test_a_call_without_a_variant_goes_to_the_kernel_that_has_one(make: Maker) -> None:
    params = [tensor("A", "int8", [["dim", "n"]]), scalar("s", "int32"), tensor("C", "int8", [["dim", "n"]], "w")]
    dims = [{"name": "n", "param": "A", "axis": 0}]
    common = {"params": params, "dims": dims, "outputs": ["C"]}
    launch = {"binary": "add.o", "symbol": "general", "grid": [1, 1, 1], "block": [1, 1, 1], "args": [["param", "C"]]}
    guard = ["==", ["floormod", ["address", "A"], 16], 0]
    fast, fast_calls = make(**common, variants=[{"guard": guard, "launches": [{**launch, "symbol": "fast"}]}])
    general, general_calls = make(**common, variants=[{"guard": None, "launches": [launch]}])
    asked: list[int] = []
    fast.complete = lambda: asked.append(1) or general
    memory = np.zeros(64 + 16, np.int8)
    start = -memory.ctypes.data % 16
    aligned, odd = memory[start : start + 32], memory[start + 1 : start + 33]
    out = fast(aligned, 3)
    assert out.shape == (32,)
    assert (len(fast_calls), len(general_calls), asked) == (1, 0, [])
    out = fast(odd, 3)  # the output was allocated once, and is the one that the other kernel wrote
    assert out.shape == (32,)
    assert (len(fast_calls), len(general_calls), asked) == (1, 1, [1])
    assert general_calls[0][1] == [out.ctypes.data]
    call = fast.prepare(odd, 3, out)
    assert asked == [1, 1]
    assert call(odd, out) is out
    assert (len(fast_calls), len(general_calls)) == (1, 2)
    call = fast.prepare(aligned, 3, out)
    call(odd, out)  # prepared for another address: still never the wrong code
    assert (len(fast_calls), len(general_calls)) == (1, 3)
