"""Assignment: names bind values, mutable scalars are stored to, elements are written in place."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.errors import AssignToParameter, InvalidArgument, UnsupportedConstruct
from tilelang.ir import tile_ir

X = np.arange(8, dtype=np.int32)


def test_name_binds_the_value_of_that_moment(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = A[1] + 1
            A[1] = 100
            y = x
            x = x * 10
            A[2] = x
            A[3] = y

    np.testing.assert_array_equal(interpret(kernel, X.copy())[1:4], [100, 20, 2])


def test_alloc_var_with_init_and_updates(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            total = T.alloc_var("int32", init=0)
            largest = T.alloc_var(T.int32, -1)
            count = T.alloc_var(dtype="int32")
            count = 0
            for i in T.serial(8):
                total += A[i]
                largest = T.max(largest, A[i])
                if A[i] % 3 == 0:
                    count += 1
            B[0] = total
            B[1] = largest
            B[2] = count
            B[3] = total * 2 + count

    np.testing.assert_array_equal(interpret(kernel, X, np.zeros(4, np.int32)), [28, 7, 3, 59])


def test_assigning_a_mutable_scalar_to_a_name_copies_its_value(interpret):
    @T.prim_func
    def kernel(B: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            x = T.alloc_var("int32", init=1)
            old = x
            x = 5
            B[0] = old
            B[1] = x

    np.testing.assert_array_equal(interpret(kernel, np.zeros(2, np.int32)), [1, 5])


def test_mutable_scalar_converts_what_it_gets(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((2,), "float32"), B: T.Tensor((2,), "float32")):
        with T.Kernel(1):
            x = T.alloc_var("int32", init=0)
            x = A[0]
            B[0] = x
            x += A[1]
            B[1] = x

    np.testing.assert_array_equal(interpret(kernel, np.float32([2.9, 1.6]), np.zeros(2, np.float32)), [2, 3])


def test_swap_of_mutable_scalars(interpret):
    @T.prim_func
    def fibonacci(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            a = T.alloc_var("int32", init=0)
            b = T.alloc_var("int32", init=1)
            for i in T.serial(8):
                A[i] = a
                a, b = b, a + b

    np.testing.assert_array_equal(interpret(fibonacci, np.zeros(8, np.int32)), [0, 1, 1, 2, 3, 5, 8, 13])


def test_swap_of_elements(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                A[i], A[7 - i] = A[7 - i], A[i]

    np.testing.assert_array_equal(interpret(kernel, X.copy()), X[::-1])


def test_swap_of_bound_names(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            a, b = A[1], A[2]
            a, b = b, a
            A[0] = a * 10 + b

    assert interpret(kernel, X.copy())[0] == 21


def test_nested_and_starred_targets(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            a, (b, c) = 1, (2, 3)
            first, *rest = [4, 5, 6]
            [d, e] = rest
            A[0] = a
            A[1] = b
            A[2] = c
            A[3] = first
            A[4] = d
            A[5] = e

    np.testing.assert_array_equal(interpret(kernel, X.copy())[:6], [1, 2, 3, 4, 5, 6])


def test_unpacking_of_wrong_length_is_an_error():
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            a, b = 1, 2, 3

    with pytest.raises(InvalidArgument, match="a tuple assignment does not fit"):
        T.prim_func(kernel)


AUGMENTED = [
    ("+=", lambda a: a + 3), ("-=", lambda a: a - 3), ("*=", lambda a: a * 3), ("//=", lambda a: a // 3),
    ("%=", lambda a: a % 3), ("&=", lambda a: a & 3), ("|=", lambda a: a | 3), ("^=", lambda a: a ^ 3),
    ("<<=", lambda a: a << 3), (">>=", lambda a: a >> 3), ("**=", lambda a: a**3),
]  # fmt: skip


def test_augmented_assignments_of_elements_and_mutable_scalars(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((2, 11), "int32")):
        with T.Kernel(1):
            A[0, 0] += 3
            A[0, 1] -= 3
            A[0, 2] *= 3
            A[0, 3] //= 3
            A[0, 4] %= 3
            A[0, 5] &= 3
            A[0, 6] |= 3
            A[0, 7] ^= 3
            A[0, 8] <<= 3
            A[0, 9] >>= 3
            A[0, 10] **= 3
            x = T.alloc_var("int32", init=-7)
            x += 3
            A[1, 0] = x
            x *= 3
            A[1, 1] = x
            x //= 5
            A[1, 2] = x
            x %= 2
            A[1, 3] = x

    result = interpret(kernel, np.full((2, 11), -7, np.int32))
    np.testing.assert_array_equal(result[0], [op(-7) for _, op in AUGMENTED])
    np.testing.assert_array_equal(result[1, :4], [-4, -12, -3, 1])


def test_augmented_assignment_evaluates_its_index_once():
    calls = []

    def place():
        calls.append(1)
        return 2

    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A[place()] += 1

    func = T.prim_func(kernel)
    assert len(calls) == 1
    assert "A[2]" in func.script()


def test_division_of_floats_in_place(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            for i in T.serial(4):
                A[i] /= 2

    np.testing.assert_array_equal(interpret(kernel, np.float32([1, 2, 3, 4])), [0.5, 1, 1.5, 2])


def test_annotated_assignment_converts(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            x: T.int32 = A[0]
            y: T.float32 = 7
            z: int = A[1] * 2
            B[0] = x
            B[1] = y / 2
            B[2] = z

    np.testing.assert_array_equal(
        interpret(kernel, np.float32([2.7, 1.9, 0, 0]), np.zeros(4, np.float32))[:3], [2, 3.5, 3]
    )


def test_annotation_alone_declares_nothing(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            x: T.int32
            x = A[1]
            A[0] = x

    assert interpret(kernel, X[:4].copy())[0] == 1


def test_lists_dicts_and_attributes_are_python(interpret):
    class Box:
        pass

    box = Box()

    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            parts = [0, 0]
            parts[1] = A[1] + 10
            parts[0] += 4
            table = {}
            table["x"] = A[2]
            box.size = 5
            A[0] = parts[0]
            A[1] = parts[1]
            A[2] = table["x"] * box.size
            A[3] = box.size

    np.testing.assert_array_equal(interpret(kernel, X[:4].copy()), [4, 11, 10, 5])


def test_buffer_name_may_be_bound_to_another_buffer(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            ping = T.alloc_shared((8,), "int32")
            pong = T.alloc_shared((8,), "int32")
            T.copy(A, ping)
            for step in [1, 2, 3]:
                for i in T.Parallel(8):
                    pong[i] = ping[i] + step
                ping, pong = pong, ping
            T.copy(ping, B)

    np.testing.assert_array_equal(interpret(kernel, X, np.zeros(8, np.int32)), X + 6)


def test_parameter_assigned_as_a_whole_is_an_error():
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A = 3

    with pytest.raises(AssignToParameter, match="A is a tensor parameter"):
        T.prim_func(kernel)


@pytest.mark.parametrize(
    ("statement", "construct"),
    [
        ("x = y = 1", "`a = b = c`"),
        ("del A", "`del`"),
        ("global g", "`global`"),
        ("yield A", "`yield`"),
        ("import math\n        try:\n            pass\n        finally:\n            pass", "`try`"),
    ],
)
def test_unsupported_statement_is_named(tmp_path, statement, construct):
    file = tmp_path / "kernel.py"
    file.write_text(
        "import tilelang.language as T\n"
        'def kernel(A: T.Tensor((8,), "int32")):\n'
        "    with T.Kernel(1):\n"
        f"        {statement}\n"
    )
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with pytest.raises(UnsupportedConstruct, match=construct):
        T.prim_func(space["kernel"])


def test_element_store_is_converted_to_the_buffers_type(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "int8")):
        with T.Kernel(1):
            for i in T.serial(4):
                B[i] = A[i]

    result = interpret(kernel, np.float32([1.9, -1.9, 300, -300]), np.zeros(4, np.int8))
    np.testing.assert_array_equal(result, [1, -1, 127, -128])


def test_assignment_reads_memory_once():
    from tvm import ir

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = A[3] * 2
            A[0] = x + x

    loads = [n for n in tile_ir.walk(kernel.body) if isinstance(n, ir.TensorLoad)]
    assert len(loads) == 1
