"""The IR keeps the user's names, and each statement the line it was written on."""

import inspect

import tilelang.language as T
from tilelang.ir import tile_ir


def names_of_buffers(func):
    from tvm import tirx

    return [str(n.buffer.name) for n in tile_ir.walk(func.body) if isinstance(n, tirx.AllocBuffer)]


def test_buffers_take_the_names_of_their_assignments():
    @T.prim_func
    def kernel(Query: T.Tensor((8, 8), "float16"), n: T.int32):
        with T.Kernel(2, 3, threads=32) as (column, row):
            Q_shared = T.alloc_shared((8, 8), "float16")
            scores = T.alloc_fragment((8, 8), "float32")
            a, b = T.alloc_local((4,), "float32"), T.alloc_local((4,), "float32")
            count = T.alloc_var("int32", init=0)
            T.copy(Query, Q_shared)

    assert [str(p.name) for p in kernel.params] == ["Query", "n"]
    assert names_of_buffers(kernel) == ["Q_shared", "scores", "a", "b", "count"]
    launch = tile_ir.kernels(kernel)[0]
    assert [str(v.name) for v, _ in launch.grid] == ["column", "row"]


def test_equal_names_are_made_unique():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "float16")):
        with T.Kernel(1):
            tiles = [T.alloc_shared((8,), "float16") for _ in range(3)]
            tile = T.alloc_shared((8,), "float16")
            tile = T.alloc_shared((8,), "float16")
            T.clear(A)

    names = names_of_buffers(kernel)
    assert names[0] == "tiles"
    assert names[3:] == ["tile", "tile_1"]
    assert len(set(names)) == 5


def test_loop_variables_and_bound_names_keep_their_names():
    from tvm import tirx

    @T.prim_func
    def kernel(A: T.Tensor((8, 8), "int32")):
        with T.Kernel(1):
            for row, column in T.Parallel(8, 8):
                A[row, column] = 0
            for step in T.serial(8):
                first = A[step, 0]
                A[step, 1] = first

    loops = [str(n.loop_var.name) for n in tile_ir.walk(kernel.body) if isinstance(n, tirx.For)]
    binds = [str(n.var.name) for n in tile_ir.walk(kernel.body) if isinstance(n, tirx.Bind)]
    assert loops == ["row", "column", "step"]
    assert binds == ["first"]


def test_views_take_the_name_of_their_assignment():
    from tvm import tirx

    @T.prim_func
    def kernel(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1):
            flat = T.reshape(A, (64,))
            T.clear(flat)

    views = [str(n.buffer.name) for n in tile_ir.walk(kernel.body) if isinstance(n, tirx.DeclBuffer)]
    assert views == ["flat"]


def test_every_statement_knows_its_line():
    from tvm import tirx

    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32"), n: T.int32):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((8,), "float32")
            T.copy(A, tile)
            for i in T.serial(8):
                if n > 3:
                    tile[i] = tile[i] + 1
            for i in T.Parallel(8):
                tile[i] *= 2
            x = tile[0]
            while n < 0:
                tile[0] = x
            T.copy(
                tile,
                A,
            )

    source, first = inspect.getsourcelines(test_every_statement_knows_its_line)

    def text(node):
        assert str(node.span.source_name.name) == __file__
        return source[int(node.span.line) - first].strip()

    found = {}
    for node in tile_ir.walk(kernel.body):
        if isinstance(node, (tirx.AllocBuffer, tirx.For, tirx.IfThenElse, tirx.BufferStore, tirx.While, tirx.Bind)):
            found.setdefault(type(node).__name__, []).append(text(node))
        elif tile_ir.tile_call(node) is not None:
            found.setdefault("operators", []).append(text(node))
    assert found["AllocBuffer"] == ['tile = T.alloc_shared((8,), "float32")']
    assert found["operators"] == ["T.copy(A, tile)", "T.copy("]
    assert found["For"] == ["for i in T.serial(8):", "for i in T.Parallel(8):"]
    assert found["IfThenElse"] == ["if n > 3:"]
    assert found["While"] == ["while n < 0:"]
    assert found["Bind"] == ["x = tile[0]"]
    assert found["BufferStore"] == ["tile[i] = tile[i] + 1", "tile[i] *= 2", "tile[0] = x"]


def test_function_records_its_name_source_and_parameters():
    import json

    @T.prim_func
    def my_kernel(A: T.Tensor((8,), "tfloat32"), n: T.int8):
        with T.Kernel(1):
            T.clear(A)

    assert str(my_kernel.attrs["global_symbol"]) == "my_kernel"
    described = json.loads(str(my_kernel.attrs["tl.params"]))
    assert described == [{"name": "A", "dtype": "tfloat32"}, {"name": "n", "dtype": "int8"}]
    assert json.loads(str(my_kernel.attrs["tl.source"]))["file"] == __file__


def test_shapes_dtypes_and_strides_can_be_asked_at_compile_time():
    seen = {}
    m = T.dynamic("m")

    def kernel(A: T.Tensor((m, 8, 4), "float16"), B: T.StridedTensor((8, 4), (16, 1), "float32")):
        with T.Kernel(1):
            tile = T.alloc_shared((8, 4), "float32")
            seen["rank"] = A.ndim
            seen["width"] = A.shape[2] * 2
            seen["dtype"] = (A.dtype, tile.dtype == T.float32, A.dtype.bits)
            seen["strides"] = (A.strides, B.strides)
            seen["scope"] = tile.scope
            T.clear(tile)

    T.prim_func(kernel)
    assert seen["rank"] == 3
    assert seen["width"] == 8
    assert seen["dtype"] == ("float16", True, 16)
    assert seen["strides"] == ((32, 4, 1), (16, 1))
    assert seen["scope"] == "shared.dyn"
