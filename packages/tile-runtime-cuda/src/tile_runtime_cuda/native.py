"""CUDA's part of the native entry: the packed block of packing.py on the stack, tensor maps out of a small table, and one
driver call."""

from __future__ import annotations

from collections.abc import Sequence

from tile_runtime.llvm_text import Text
from tile_runtime.manifest import Launch, Manifest
from tile_runtime.native_interface import (
    MAP_SLOT_BYTES,
    MAP_SLOTS,
    MAP_TYPE,
    NativeArgument,
    NativeMap,
    NativeSite,
    NotNative,
    State,
)
from tile_runtime.native_source import native_text
from tile_runtime.tensor_map import BYTES, DATA_TYPES, FILLS, INTERLEAVES, L2_PROMOTIONS, SWIZZLES

from .packing import ATTRIBUTE_BYTES, CONFIG_BYTES, attributes, params_start

KDL_CUDA = 2  # DLDeviceType of dlpack.h
_STREAM, _ATTRIBUTES, _ATTRIBUTE_COUNT = 32, 40, 48  # offsets in CUlaunchConfig, after seven 32-bit numbers
_HASH = -7046029254386353131  # 2^64 / the golden ratio, odd, as a signed number: spreads addresses over the slots


def text_of(manifest: Manifest) -> str | None:
    """LLVM text of the kernel's native entry; None for a kernel that only the Python launcher can call."""
    try:
        return native_text(manifest, emit, room, encode_map)
    except NotNative:
        return None


def room(launch: Launch, arguments: Sequence[NativeArgument]) -> int:
    """Bytes for one launch."""
    return params_start(_places(arguments)[1]) + 8 * len(arguments)


def _places(arguments: Sequence[NativeArgument]) -> tuple[list[int], int]:
    """Where each argument lies behind the configuration, and where they end."""
    places, end = [], 0
    for argument in arguments:
        end += -end % argument.alignment
        places.append(end)
        end += argument.size
    return places, end


def emit(out: Text, site: NativeSite) -> None:
    """`cuLaunchKernelEx(configuration, kernel, params, 0)`, without Python's lock; any other status than 0 goes to Python."""
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
    first = params_start(size)
    if first > CONFIG_BYTES + end:
        out.store(f"[{first - CONFIG_BYTES - end} x i8]", "zeroinitializer", "%memory", CONFIG_BYTES + end)
    for i, place in enumerate(places):
        out.store(
            "ptr", out.value(f"getelementptr i8, ptr %memory, i64 {CONFIG_BYTES + place}"), "%memory", first + 8 * i
        )
    params = out.value(f"getelementptr i8, ptr %memory, i64 {first}")
    kernel = out.load("%table", site.state + 8 * State.KERNEL, "ptr", "kernel")
    launcher = out.load("%table", 8 * State.LAUNCHER, "ptr", "launcher")
    lock = out.value("call ptr @PyEval_SaveThread()", "lock")
    status = out.value(f"call i32 {launcher}(ptr %memory, ptr {kernel}, ptr {params}, ptr null)", "status")
    out.put(f"call void @PyEval_RestoreThread(ptr {lock})")
    out.need(out.compare("eq", status, 0, "i32"))


def encode_map(out: Text, made: NativeMap) -> str:
    """The map out of the slot for the tensor's address; made again if the slot is of another tensor.

    A slot: the map, then the address (0: no map), extents and strides of the tensor that it is of. Python's lock is held.
    """
    mapping, rank = made.mapping, len(made.shape)
    out.need(out.compare("ne", made.address, 0))
    hashed = out.value(f"lshr i64 {out.value(f'mul i64 {made.address}, {_HASH}')}, {64 - MAP_SLOTS.bit_length() + 1}")
    distance = out.value(f"mul i64 {hashed}, {MAP_SLOT_BYTES}")
    offset = out.value(f"add i64 {distance}, {made.number * MAP_SLOTS * MAP_SLOT_BYTES}")
    maps = out.load("%table", 8 * State.MAPS, "ptr", "maps")
    slot = out.value(f"getelementptr i8, ptr {maps}, i64 {offset}", "slot")
    key = (made.address, *made.shape, *made.strides)
    same = "true"
    for i, word in enumerate(key):
        equal = out.compare("eq", out.load(slot, BYTES + 8 * i), word)
        same = out.value(f"and i1 {same}, {equal}")
    missing, ready = out.label("missing"), out.label("map")
    out.put(f"br i1 {same}, label %{ready}, label %{missing}")
    out.block(missing)
    for i, word in enumerate(("0", *key[1:])):
        out.store("i64", word, slot, BYTES + 8 * i)
    for i, extent in enumerate((*mapping.box, *(mapping.element_strides or (1,) * rank))):
        out.store("i32", extent, "%memory", 4 * i)
    place = [
        out.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        for pointer, offset in (
            (slot, BYTES + 8),
            (slot, BYTES + 8 * (1 + rank)),
            ("%memory", 0),
            ("%memory", 4 * rank),
        )
    ]
    modes = (
        INTERLEAVES.index(mapping.interleave),
        SWIZZLES.index(mapping.swizzle),
        L2_PROMOTIONS.index(mapping.l2_promotion),
        FILLS.index(mapping.fill),
    )
    arguments = [
        f"ptr {slot}",
        f"i32 {DATA_TYPES[mapping.dtype]}",
        f"i32 {rank}",
        f"i64 {made.address}",
        *(f"ptr {p}" for p in place),
        *(f"i32 {mode}" for mode in modes),
    ]
    encoder = out.load("%table", 8 * State.ENCODER, "ptr", "encoder")
    status = out.value(f"call i32 {encoder}({', '.join(arguments)})", "status")
    out.need(out.compare("eq", status, 0, "i32"))
    out.store("i64", made.address, slot, BYTES)
    out.put(f"br label %{ready}")
    out.block(ready)
    return out.load(slot, 0, MAP_TYPE, "map")


def constant_cluster(launch: Launch) -> tuple[int, int, int] | None:
    """The cluster of a launch, of which the manifest makes sure that it is constant."""
    if launch.cluster is None:
        return None
    x, y, z = (int(extent) for extent in launch.cluster if isinstance(extent, int))
    return x, y, z
