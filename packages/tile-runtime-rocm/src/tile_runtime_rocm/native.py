"""HIP's part of the native entry: the packed arguments on the stack, the block that names them, one call of the runtime."""

from __future__ import annotations

from collections.abc import Sequence

from tile_runtime.llvm_text import Text
from tile_runtime.manifest import Launch, Manifest
from tile_runtime.native_interface import NativeArgument, NativeSite, NotNative, State
from tile_runtime.native_source import native_text

KDL_ROCM = 10  # DLDeviceType of dlpack.h
POINTER, SIZE, END = 1, 2, 3  # HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END
_BLOCK_BYTES = 6 * 8  # {1, address of the arguments, 2, address of their size, 3}, and the size


def text_of(manifest: Manifest) -> str | None:
    """LLVM text of the kernel's native entry; None for a kernel that only the Python launcher can call."""
    try:
        return native_text(manifest, emit, room)
    except NotNative:
        return None


def room(launch: Launch, arguments: Sequence[NativeArgument]) -> int:
    """Bytes for one launch."""
    end = _places(arguments)[1]
    return end + -end % 8 + _BLOCK_BYTES


def _places(arguments: Sequence[NativeArgument]) -> tuple[list[int], int]:
    """Where each argument lies, and where they end: each at a multiple of its size."""
    places, end = [], 0
    for argument in arguments:
        end += -end % argument.alignment
        places.append(end)
        end += argument.size
    return places, end


def emit(out: Text, site: NativeSite) -> None:
    """`hipModuleLaunchKernel(function, grid, block, shared, stream, NULL, extra)` without Python's lock; any other status
    than 0 goes to Python. The function in the state table is the one of the device that the launch is ready on."""
    places, size = _places(site.arguments)
    for extent in (*site.grid, *site.block, site.shared):
        if not extent.lstrip("-").isdigit():
            out.need(out.compare("ule", extent, 2**31 - 1))
    sizes = [out.value(f"trunc i64 {extent} to i32") for extent in (*site.grid, *site.block, site.shared)]
    end = 0
    for place, argument in zip(places, site.arguments, strict=True):
        if place > end:
            out.store(f"[{place - end} x i8]", "zeroinitializer", "%memory", end)
        end = place + argument.size
        out.store(argument.kind, argument.text, "%memory", place)
    block = size + -size % 8
    if block > end:
        out.store(f"[{block - end} x i8]", "zeroinitializer", "%memory", end)
    size_at = out.value(f"getelementptr i8, ptr %memory, i64 {block + 5 * 8}")
    words = (("i64", POINTER), ("ptr", "%memory"), ("i64", SIZE), ("ptr", size_at), ("i64", END), ("i64", size))
    for i, (kind, word) in enumerate(words):
        out.store(kind, word, "%memory", block + 8 * i)
    extra = out.value(f"getelementptr i8, ptr %memory, i64 {block}")
    stream = out.value("inttoptr i64 %stream to ptr")
    kernel = out.load("%table", site.state + 8 * State.KERNEL, "ptr", "kernel")
    launcher = out.load("%table", 8 * State.LAUNCHER, "ptr", "launcher")
    lock = out.value("call ptr @PyEval_SaveThread()", "lock")
    numbers = ", ".join(f"i32 {n}" for n in sizes)
    call = f"call i32 {launcher}(ptr {kernel}, {numbers}, ptr {stream}, ptr null, ptr {extra})"
    status = out.value(call, "status")
    out.put(f"call void @PyEval_RestoreThread(ptr {lock})")
    out.need(out.compare("eq", status, 0, "i32"))
