"""Writes the native twin of a launcher (launch_source.py): LLVM text specialised to one manifest.

Two functions with the signature of a METH_FASTCALL method (https://docs.python.org/3/c-api/structures.html),

    PyObject *tl_launch(PyObject *self, PyObject *const *args, Py_ssize_t count)      plain calls: checks everything
    PyObject *tl_prepared(...)                                                        prepared ones: reads addresses

recognise the common call, all arguments given and all of them torch tensors and plain numbers, check it, and launch.
Whatever they do not recognise goes to the Python launcher, unread: it explains, allocates, and knows the rest. Tensors are
read through the C functions of torch's `__dlpack_c_exchange_api__` (DLPack 1.3, dlpack.h, DLPackExchangeAPI).

`self` is a bytes object of 8-byte words: the address of the state table, the Python launcher, and for prepared calls the
dims and scalars. The state table (`State`) is shared by both functions; native.py fills it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import tensor_map
from .dtypes import DTYPES, integer_range
from .expression import Expression
from .llvm_text import Text
from .manifest import Launch, Manifest, Param
from .native_expressions import native_expression
from .native_interface import (
    HEADER_BYTES,
    LAUNCH,
    MAP_TYPE,
    PREPARED,
    Emit,
    EncodeMap,
    NativeArgument,
    NativeMap,
    NativeSite,
    NotNative,
    State,
    type_words,
)

_DECLARATIONS = """\
source_filename = "entry.ll"
target triple = "x86_64-unknown-linux-gnu"

declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare i64 @PyLong_AsLongLong(ptr)
declare double @PyLong_AsDouble(ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare double @llvm.fabs.f64(double)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
@PyLong_Type = external global i8
@PyFloat_Type = external global i8
@PyBool_Type = external global i8
@_Py_NoneStruct = external global i8
"""
IMPORTS = tuple(
    line.partition("@")[2].partition("(")[0].partition(" ")[0]
    for line in _DECLARATIONS.splitlines()
    if "@" in line and "llvm." not in line
)
"""What the text refers to: functions and objects of the Python C interface."""

LARGEST_FLOAT = "0x47EFFFFFE0000000"  # as LLVM writes a double


def native_text(
    manifest: Manifest,
    emit: Emit,
    room: Callable[[Launch, Sequence[NativeArgument]], int],
    encode: EncodeMap | None = None,
) -> str:
    """The text of both functions. Raises NotNative for a kernel that needs the Python launcher at every call."""
    if manifest.workspace:
        raise NotNative("it needs memory for each call")
    if not any(p.kind == "tensor" and p.access != "none" for p in manifest.params):
        raise NotNative("no tensor says where to run")
    functions = [_Function(manifest, emit, room, encode, prepared).text() for prepared in (False, True)]
    return "\n".join([_DECLARATIONS, *functions])


class _Function:
    """Writes one of the two functions."""

    def __init__(
        self,
        manifest: Manifest,
        emit: Emit,
        room: Callable[[Launch, Sequence[NativeArgument]], int],
        encode: EncodeMap | None,
        prepared: bool,
    ) -> None:
        self.manifest, self.emit, self.room, self.prepared = manifest, emit, room, prepared
        self.encode = encode
        self.out = Text()
        self.dims: dict[str, str] = {}
        self.scalars: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        self.objects: dict[str, str] = {}
        self.extents: dict[tuple[str, str, int], str] = {}
        self.first = ""
        self.room_needed = 16

    def text(self) -> str:
        params = self.manifest.params
        passed = [p for p in params if not (self.prepared and p.kind == "scalar")]
        out = self.out
        out.put(f"%table.word = getelementptr i8, ptr %self, i64 {HEADER_BYTES}")
        out.put("%table = load ptr, ptr %table.word")
        for name, word in (("tensor", State.TENSOR_TYPE), ("parameter", State.PARAMETER_TYPE)):
            out.put(f"%{name}.word = getelementptr i64, ptr %table, i64 {word}")
            out.put(f"%{name}.type = load ptr, ptr %{name}.word")
        out.put(f"%reader.word = getelementptr i64, ptr %table, i64 {State.TENSOR_READER}")
        out.put("%reader = load ptr, ptr %reader.word")
        out.need(out.compare("eq", "%count", len(passed)))
        for position, param in enumerate(passed):
            self.objects[param.name] = out.load("%args", 8 * position, "ptr", "object")
        for param in passed:
            self._read(param)
        self._fixed() if self.prepared else self._bind_dims()
        for param in passed:
            if self._may_be_none(param):
                self._read_if_there(param)
        if not self.prepared:
            self._check()
        self._run()
        head = f"define ptr @{PREPARED if self.prepared else LAUNCH}(ptr %self, ptr %args, i64 %count) {{"
        start = [
            "entry:",
            "  %tensor = alloca [48 x i8], align 16",
            f"  %memory = alloca [{self.room_needed} x i8], align 16",
        ]
        return "\n".join([head, *start, *out.lines, *_ENDING, "}", ""])

    # -- arguments ---------------------------------------------------------------------------------------------------

    def _read(self, param: Param) -> None:
        if param.kind == "pointer":
            raise NotNative(f"{param.name} is a bare address")
        if param.kind == "scalar":
            self._read_scalar(param)
        elif self._may_be_none(param):
            return  # the dims are needed first
        elif DTYPES[param.dtype].per_byte > 1:
            raise NotNative(f"{param.name} is packed")
        else:
            self._read_tensor(param)

    def _may_be_none(self, param: Param) -> bool:
        """A tensor that the kernel does not use, nor any extent of it."""
        sources = {dim.param for dim in self.manifest.dims}
        return param.kind == "tensor" and param.access == "none" and param.name not in sources

    def _read_if_there(self, param: Param) -> None:
        """None, or a tensor that is checked as any other; of a packed type None alone."""
        out = self.out
        if DTYPES[param.dtype].per_byte > 1:
            out.need(out.compare("eq", self.objects[param.name], "@_Py_NoneStruct", "ptr"))
            self.addresses[param.name] = "0"
            return
        asking, absent, present, checked, on = (out.label(n) for n in ("asking", "absent", "present", "checked", "on"))
        out.put(f"br label %{asking}")
        out.block(asking)
        none = out.compare("eq", self.objects[param.name], "@_Py_NoneStruct", "ptr")
        out.put(f"br i1 {none}, label %{absent}, label %{present}")
        out.block(present)
        self._read_tensor(param)
        if not self.prepared:
            self._equations(param)
        out.put(f"br label %{checked}")
        out.block(checked)
        out.put(f"br label %{on}")
        out.block(absent)
        out.put(f"br label %{on}")
        out.block(on)
        address = out.value(f"phi i64 [ {self.addresses[param.name]}, %{checked} ], [ 0, %{absent} ]", "address")
        self.addresses[param.name] = address

    def _read_scalar(self, param: Param) -> None:
        out, obj, info = self.out, self.objects[param.name], DTYPES[param.dtype]
        kind = out.load(obj, 8, "ptr", "type")
        whole = out.compare("eq", kind, "@PyLong_Type", "ptr")
        if info.kind == "float":
            if param.dtype in ("float16", "bfloat16"):
                raise NotNative(f"{param.name} is a narrow float")
            real = out.compare("eq", kind, "@PyFloat_Type", "ptr")
            out.need(out.value(f"or i1 {real}, {whole}"))
            one, two, both = out.label("real"), out.label("whole"), out.label("number")
            out.put(f"br i1 {real}, label %{one}, label %{two}")
            out.block(one)
            a = out.value(f"call double @PyFloat_AsDouble(ptr {obj})")
            out.put(f"br label %{both}")
            out.block(two)
            b = out.value(f"call double @PyLong_AsDouble(ptr {obj})")
            out.put(f"br label %{both}")
            out.block(both)
            number = out.value(f"phi double [ {a}, %{one} ], [ {b}, %{two} ]")
            size = out.value(f"call double @llvm.fabs.f64(double {number})")
            if param.dtype != "float64":
                out.need(out.value(f"fcmp ole double {size}, {LARGEST_FLOAT}"), "unfit")
            failed = out.value(f"fcmp oeq double {number}, -1.0")
            self._no_error(failed)
            self.scalars[param.name] = number
            return
        if info.kind == "bool":
            whole = out.value(f"or i1 {whole}, {out.compare('eq', kind, '@PyBool_Type', 'ptr')}")
        out.need(whole)
        number = out.value(f"call i64 @PyLong_AsLongLong(ptr {obj})", "scalar")
        self._no_error(out.compare("eq", number, -1))
        low, high = integer_range(param.dtype)
        if (low, high) != (-(2**63), 2**63 - 1):
            out.need(out.compare("sge", number, low))
            out.need(out.compare("sle", number, min(high, 2**63 - 1)))
        self.scalars[param.name] = number

    def _no_error(self, suspicious: str) -> None:
        """A conversion that gave the value of errors: leave if there is an error."""
        out = self.out
        asking, on = out.label("asking"), out.label("converted")
        out.put(f"br i1 {suspicious}, label %{asking}, label %{on}")
        out.block(asking)
        error = out.value("call ptr @PyErr_Occurred()")
        fine = out.compare("eq", error, "null", "ptr")
        out.put(f"br i1 {fine}, label %{on}, label %unfit")
        out.block(on)

    def _read_tensor(self, param: Param) -> None:
        """DLTensor: data, {device type, device id}, {rank, code, bits, lanes}, shape, strides, byte offset: 8 bytes each."""
        out, obj, name = self.out, self.objects[param.name], param.name
        kind = out.load(obj, 8, "ptr", "type")
        plain = out.compare("eq", kind, "%tensor.type", "ptr")
        wrapped = out.compare("eq", kind, "%parameter.type", "ptr")
        out.need(out.value(f"or i1 {plain}, {wrapped}"))
        status = out.value(f"call i32 %reader(ptr {obj}, ptr %tensor)")
        out.need(out.compare("eq", status, 0, "i32"), "unfit")
        device = out.load("%tensor", 8, "i64", "device")
        if not self.first:
            self.first = device
            expected = out.load("%table", 8 * State.DEVICE_TYPE)
            out.need(out.compare("eq", out.value(f"and i64 {device}, 4294967295"), expected))
            out.put(f"%device.wide = lshr i64 {device}, 32")
            out.put("%device = trunc i64 %device.wide to i32")
            out.need(out.compare("ult", "%device.wide", 64))  # a bit for each in the words that say who is ready
        else:
            out.need(out.compare("eq", device, self.first))
        data, offset = out.load("%tensor", 0), out.load("%tensor", 40)
        address = self.addresses[name] = out.value(f"add i64 {data}, {offset}", "address")
        if param.align > 1:
            out.need(out.compare("eq", out.value(f"and i64 {address}, {param.align - 1}"), 0))
        if not self.prepared:
            self._read_shape(param)

    def _read_shape(self, param: Param) -> None:
        out, name, rank = self.out, param.name, len(param.shape)
        form = out.load("%tensor", 16, "i64", "form")
        matches = [out.compare("eq", form, word) for word in sorted(type_words(param, rank))]
        accepted = matches[0]
        for match in matches[1:]:
            accepted = out.value(f"or i1 {accepted}, {match}")
        out.need(accepted)
        if rank == 0:
            return
        for of, place in (("shape", 24), ("strides", 32)):
            array = out.load("%tensor", place, "ptr", of)
            out.need(out.compare("ne", array, "null", "ptr"))
            for axis in range(rank):
                self.extents[name, of, axis] = out.load(array, 8 * axis, "i64", "extent" if of == "shape" else "stride")
        if param.strides is None:
            self._contiguous(name, rank)
        elif DTYPES[param.dtype].kind == "float":
            # A view with a pending negation is an imaginary part: its strides are even. Only Python can ask for it.
            odd = self.extents[name, "strides", 0]
            for axis in range(1, rank):
                odd = out.value(f"or i64 {odd}, {self.extents[name, 'strides', axis]}")
            out.need(out.compare("ne", out.value(f"and i64 {odd}, 1"), 0))

    def _contiguous(self, name: str, rank: int) -> None:
        out, step = self.out, "1"
        for axis in reversed(range(rank)):
            extent, stride = self.extents[name, "shape", axis], self.extents[name, "strides", axis]
            alone, dense = out.compare("eq", extent, 1), out.compare("eq", stride, step)
            out.need(out.value(f"or i1 {alone}, {dense}"))
            if axis:  # torch steps over an extent of 0 as over one of 1
                least = out.value(f"call i64 @llvm.smax.i64(i64 {extent}, i64 1)")
                step = out.value(f"mul i64 {step}, {least}")

    # -- what must hold ----------------------------------------------------------------------------------------------

    def _fixed(self) -> None:
        """Dims and scalars of a prepared call, from `self`."""
        words = HEADER_BYTES + 16
        for k, dim in enumerate(self.manifest.dims):
            self.dims[dim.name] = self.out.load("%self", words + 8 * k, "i64", "dim")
        words += 8 * len(self.manifest.dims)
        for k, param in enumerate(p for p in self.manifest.params if p.kind == "scalar"):
            kind = "double" if DTYPES[param.dtype].kind == "float" else "i64"
            self.scalars[param.name] = self.out.load("%self", words + 8 * k, kind, "scalar")

    def _bind_dims(self) -> None:
        out = self.out
        for dim in self.manifest.dims:
            if (dim.param, dim.of, dim.axis) not in self.extents:
                raise NotNative(f"{dim.name} is read off {dim.param}, which is not read")
            value = self.extents[dim.param, dim.of, dim.axis]
            if (dim.scale, dim.offset) != (1, 0):
                moved = out.value(f"sub i64 {value}, {dim.offset}")
                out.need(out.compare("eq", out.value(f"srem i64 {moved}, {dim.scale}"), 0))
                value = out.value(f"sdiv i64 {moved}, {dim.scale}", "dim")
            if dim.of == "strides" or (dim.scale, dim.offset) != (1, 0):
                out.need(out.compare("sge", value, 0))
            self.dims[dim.name] = value

    def _check(self) -> None:
        out = self.out
        for param in self.manifest.params:
            if param.kind == "tensor" and not self._may_be_none(param):
                self._equations(param)
        for check in self.manifest.checks:
            out.need(out.compare("ne", self._expr(check.expr), 0))

    def _equations(self, param: Param) -> None:
        out = self.out
        for axis, expression in enumerate(param.shape):
            wanted, extent = self._expr(expression), self.extents[param.name, "shape", axis]
            if wanted != extent:
                out.need(out.compare("eq", extent, wanted))
        for axis, stride in enumerate(param.strides or ()):
            if stride is None:
                continue
            wanted, found = self._expr(stride), self.extents[param.name, "strides", axis]
            if wanted != found:
                single = out.compare("sle", self.extents[param.name, "shape", axis], 1)
                out.need(out.value(f"or i1 {single}, {out.compare('eq', found, wanted)}"))

    # -- launches ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        out = self.out
        reader = out.load("%table", 8 * State.STREAM_READER, "ptr", "reader")
        expected = out.value(f"trunc i64 {out.load('%table', 8 * State.DEVICE_TYPE)} to i32")
        status = out.value(f"call i32 {reader}(i32 {expected}, i32 %device, ptr %memory)")
        out.need(out.compare("eq", status, 0, "i32"), "unfit")
        out.put("%stream = load i64, ptr %memory")
        self._right_device()
        number = 0
        for variant in self.manifest.variants:
            following = out.label("variant")
            if variant.guard is not None:
                holds = out.compare("ne", self._expr(variant.guard), 0)
                inside = out.label("inside")
                out.put(f"br i1 {holds}, label %{inside}, label %{following}")
                out.block(inside)
            self._launches(variant.launches, number)
            number += len(variant.launches)
            if variant.guard is None:
                return
            out.block(following)
        out.put("br label %slow")

    def _right_device(self) -> None:
        """Where there are several devices, the tensors' one must be current."""
        out = self.out
        reader = out.load("%table", 8 * State.DEVICE_READER, "ptr", "reader")
        alone = out.compare("eq", reader, "null", "ptr")
        asking, on = out.label("asking"), out.label("here")
        out.put(f"br i1 {alone}, label %{on}, label %{asking}")
        out.block(asking)
        status = out.value(f"call i32 {reader}(ptr %memory)")
        current = out.load("%memory", 0, "i32")
        same = out.compare("eq", current, "%device", "i32")
        fine = out.value(f"and i1 {same}, {out.compare('eq', status, 0, 'i32')}")
        out.put(f"br i1 {fine}, label %{on}, label %slow")
        out.block(on)

    def _launches(self, launches: Sequence[Launch], number: int) -> None:
        out = self.out
        places = [8 * (State.LAUNCHES + State.WORDS_OF_LAUNCH * (number + i)) for i in range(len(launches))]
        for place in places:
            ready = out.load("%table", place + 8 * State.READY, "i64", "ready")
            out.need(out.compare("ne", out.value(f"and i64 {out.value(f'lshr i64 {ready}, %device.wide')}, 1"), 0))
        for launch, place in zip(launches, places, strict=True):
            grid = [self._expr(extent) for extent in launch.grid]
            empty = "false"
            for extent in grid:
                empty = out.value(f"or i1 {empty}, {out.compare('sle', extent, 0)}")
            filled, done = out.label("filled"), out.label("done")
            out.put(f"br i1 {empty}, label %{done}, label %{filled}")
            out.block(filled)
            arguments = tuple(self._argument(entry) for entry in launch.args)
            self.room_needed = max(self.room_needed, self.room(launch, arguments))
            block = [self._expr(extent) for extent in launch.block]
            self.emit(
                out,
                NativeSite(
                    launch,
                    place,
                    arguments,
                    (grid[0], grid[1], grid[2]),
                    (block[0], block[1], block[2]),
                    self._expr(launch.shared),
                ),
            )
            out.put(f"br label %{done}")
            out.block(done)
        self._result()

    def _argument(self, entry: tuple[object, ...]) -> NativeArgument:
        kind, *rest = entry
        if kind == "param":
            param = self.manifest.param(str(rest[0]))
            if param.kind != "scalar":
                return NativeArgument("i64", self.addresses[param.name], 8)
            return self._number(param.dtype, self.scalars[param.name])
        if kind == "dim":
            return NativeArgument("i64", self.dims[str(rest[0])], 8)
        if kind == "value":
            return self._number(str(rest[0]), self._expr(rest[1]))
        if kind == "tensormap" and self.encode is not None:
            return self._tensor_map(int(str(rest[0])))
        raise NotNative(f"a launch takes a {kind}")

    def _tensor_map(self, number: int) -> NativeArgument:
        assert self.encode is not None
        mapping = self.manifest.tensormaps[number]
        shape, strides = mapping.dimensions(self.manifest.param(mapping.param))
        size = DTYPES[mapping.dtype].itemsize
        steps = tuple(self.out.value(f"mul i64 {self._expr(stride)}, {size}") for stride in strides)
        extents = tuple(self._expr(extent) for extent in shape)
        self.room_needed = max(self.room_needed, 64)
        made = NativeMap(number, mapping, self.addresses[mapping.param], extents, steps)
        return NativeArgument(MAP_TYPE, self.encode(self.out, made), tensor_map.BYTES)

    def _number(self, dtype: str, value: str) -> NativeArgument:
        """A number in its own type; an integer that does not fit leaves for the launcher that says so."""
        out, info = self.out, DTYPES[dtype]
        if info.kind == "float":
            if info.itemsize == 8:
                return NativeArgument("double", value, 8)
            return NativeArgument("float", out.value(f"fptrunc double {value} to float"), 4)
        if info.itemsize == 8:
            return NativeArgument("i64", value, 8)
        kind = f"i{8 * info.itemsize}"
        narrow = out.value(f"trunc i64 {value} to {kind}")
        back = out.value(f"{'sext' if info.kind == 'int' else 'zext'} {kind} {narrow} to i64")
        out.need(out.compare("eq", back, value))
        return NativeArgument(kind, narrow, info.itemsize)

    def _expr(self, node: Expression) -> str:
        """An expression of the manifest as an i64."""
        return native_expression(self.out, node, {"dim": self.dims, "param": self.scalars, "address": self.addresses})

    def _result(self) -> None:
        """The output (several: a list), with a reference of its own; None if there is none."""
        out = self.out
        results = [self.objects[name] for name in self.manifest.outputs] or ["@_Py_NoneStruct"]
        for result in results:
            out.put(f"call void @Py_IncRef(ptr {result})")
        if len(results) == 1:
            out.put(f"ret ptr {results[0]}")
            return
        made = out.value(f"call ptr @PyList_New(i64 {len(results)})", "results")
        for i, result in enumerate(results):  # without memory PyList_New gives null, and SetItem reports an error
            out.put(f"call i32 @PyList_SetItem(ptr {made}, i64 {i}, ptr {result})")
        out.put(f"ret ptr {made}")


# unfit: a conversion failed and left a Python error; slow: the Python launcher, with the same arguments.
_ENDING = [
    "unfit:",
    "  call void @PyErr_Clear()",
    "  br label %slow",
    "slow:",
    f"  %slow.word = getelementptr i8, ptr %self, i64 {HEADER_BYTES + 8}",
    "  %slow.object = load ptr, ptr %slow.word",
    "  %slow.result = call ptr @PyObject_Vectorcall(ptr %slow.object, ptr %args, i64 %count, ptr null)",
    "  ret ptr %slow.result",
]
