"""What a code object says of its kernels: registers, spills, scratch, LDS.

The figures stand in a note of the ELF file, of type NT_AMDGPU_METADATA and owner "AMDGPU", as msgpack ("Code Object V5
Metadata" in LLVM's "User Guide for AMDGPU Backend", https://llvm.org/docs/AMDGPUUsage.html).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from . import messagepack

_NOTE_SEGMENT = 4  # PT_NOTE
_METADATA = 32  # NT_AMDGPU_METADATA
_FIELDS = {
    "registers": ".vgpr_count",  # with the accumulators
    "accumulators": ".agpr_count",
    "scalar_registers": ".sgpr_count",
    "scratch": ".private_segment_fixed_size",  # bytes of one lane
    "shared": ".group_segment_fixed_size",  # bytes of LDS, without what a launch adds
}


def kernels(code_object: bytes) -> list[dict[str, Any]]:
    """The metadata of each kernel, with LLVM's keys. ValueError for what is no code object."""
    for owner, kind, content in _notes(code_object):
        if owner == b"AMDGPU" and kind == _METADATA:
            found = messagepack.unpack(content)
            return list(found["amdhsa.kernels"]) if isinstance(found, dict) else []
    raise ValueError("it holds no metadata of kernels")


def resources(code_object: bytes) -> dict[str, dict[str, int]]:
    """Kernel name -> registers, accumulators, scalar_registers, spills (registers of both kinds), scratch, shared."""
    found = {}
    for kernel in kernels(code_object):
        used = {name: int(kernel.get(key, 0)) for name, key in _FIELDS.items()}
        used["spills"] = int(kernel.get(".vgpr_spill_count", 0)) + int(kernel.get(".sgpr_spill_count", 0))
        found[str(kernel[".name"])] = used
    return found


def _notes(elf: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """(owner, type, content) of each note in the note segments of a 64-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is no 64-bit little-endian ELF file")
    try:
        (table,) = struct.unpack_from("<Q", elf, 32)
        size, count = struct.unpack_from("<HH", elf, 54)
        for n in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", elf, table + n * size)
            end = offset + length
            while kind == _NOTE_SEGMENT and offset + 12 <= end:
                name_size, content_size, note = struct.unpack_from("<III", elf, offset)
                name = offset + 12
                content = name + -(-name_size // 4) * 4
                yield elf[name : name + name_size].rstrip(b"\0"), note, elf[content : content + content_size]
                offset = content + -(-content_size // 4) * 4
    except struct.error as error:
        raise ValueError(f"its headers are cut short: {error}") from error
