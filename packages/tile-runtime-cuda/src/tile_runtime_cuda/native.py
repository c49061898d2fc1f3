"""CUDA's part of the native entry: the packed block of packing.py on the stack, and one driver call."""

from __future__ import annotations

from collections.abc import Sequence

from tile_runtime.manifest import Launch, Manifest
from tile_runtime.native_source import NativeArgument, NativeSite, NotNative, State, Text, native_text

from .packing import ATTRIBUTE_BYTES, BUFFER_POINTER, BUFFER_SIZE, CONFIG_BYTES, attributes

KDL_CUDA = 2  # DLDeviceType of dlpack.h
_STREAM, _ATTRIBUTES, _ATTRIBUTE_COUNT = 32, 40, 48  # offsets in CUlaunchConfig, after seven 32-bit numbers
_EXTRA_WORDS = 6


def text_of(manifest: Manifest) -> str | None:
    """LLVM text of the kernel's native entry; None for a kernel that only the Python launcher can call."""
    try:
        return native_text(manifest, emit, room)
    except NotNative:
        return None


def room(launch: Launch, arguments: Sequence[NativeArgument]) -> int:
    """Bytes for one launch."""
    return _extra(arguments) + 8 * _EXTRA_WORDS


def _places(arguments: Sequence[NativeArgument]) -> tuple[list[int], int]:
    """Where each argument lies behind the configuration, and where they end."""
    places, end = [], 0
    for argument in arguments:
        end += -end % argument.size
        places.append(end)
        end += argument.size
    return places, end


def _extra(arguments: Sequence[NativeArgument]) -> int:
    end = CONFIG_BYTES + _places(arguments)[1]
    return end + -end % 8


def emit(out: Text, site: NativeSite) -> None:
    """`cuLaunchKernelEx(configuration, kernel, 0, extra)`, without Python's lock; any other status than 0 goes to Python."""
    launch, (places, size) = site.launch, _places(site.arguments)
    for i, extent in enumerate((*site.grid, *site.block, site.shared)):
        if not extent.lstrip("-").isdigit():
            out.need(out.compare("ule", extent, 2**31 - 1))
        out.store("i32", out.value(f"trunc i64 {extent} to i32"), "%memory", 4 * i)
    block = attributes(launch, constant_cluster(launch))
    out.store("i64", "%stream", "%memory", _STREAM)
    out.store("i64", out.load("%table", site.state + 8 * State.ATTRIBUTES), "%memory", _ATTRIBUTES)
    out.store("i32", len(block) // ATTRIBUTE_BYTES, "%memory", _ATTRIBUTE_COUNT)
    end = 0
    for place, argument in zip(places, site.arguments, strict=True):
        if place > end:
            out.store(f"[{place - end} x i8]", "zeroinitializer", "%memory", CONFIG_BYTES + end)
        end = place + argument.size
        out.store(argument.kind, argument.text, "%memory", CONFIG_BYTES + place)
    extra = _extra(site.arguments)
    buffer = out.value(f"getelementptr i8, ptr %memory, i64 {CONFIG_BYTES}")
    length = out.value(f"getelementptr i8, ptr %memory, i64 {extra + 8 * (_EXTRA_WORDS - 1)}")
    words = [("i64", BUFFER_POINTER), ("ptr", buffer), ("i64", BUFFER_SIZE), ("ptr", length), ("i64", 0), ("i64", size)]
    for i, (kind, word) in enumerate(words):
        out.store(kind, word, "%memory", extra + 8 * i)
    start = out.value(f"getelementptr i8, ptr %memory, i64 {extra}")
    kernel = out.load("%table", site.state + 8 * State.KERNEL, "ptr", "kernel")
    launcher = out.load("%table", 8 * State.LAUNCHER, "ptr", "launcher")
    lock = out.value("call ptr @PyEval_SaveThread()", "lock")
    status = out.value(f"call i32 {launcher}(ptr %memory, ptr {kernel}, ptr null, ptr {start})", "status")
    out.put(f"call void @PyEval_RestoreThread(ptr {lock})")
    out.need(out.compare("eq", status, 0, "i32"))


def constant_cluster(launch: Launch) -> tuple[int, int, int] | None:
    """The cluster of a launch, of which the manifest makes sure that it is constant."""
    if launch.cluster is None:
        return None
    x, y, z = (int(extent) for extent in launch.cluster if isinstance(extent, int))
    return x, y, z
