"""What this CPU can do, asked with CPUID and XGETBV (bits: Intel SDM vol. 2A, CPUID; AMD APM vol. 3, appendix E).

Feature names are LLVM's. Levels are those of the x86-64 psABI, one more for bf16 and int8 dot products, and one for
these with the tile registers of AMX.

Tile registers are 8 KiB of state for each thread, which Linux gives to a process that asks for it (since 5.16;
Documentation/arch/x86/xstate.rst). `features` asks, and AMX counts as present if the answer is yes.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable

from tile_runtime.memory import map_code

# void cpuid(uint32 leaf, uint32 subleaf, uint32 out[4]): push rbx; mov eax,edi; mov ecx,esi; mov r8,rdx; cpuid;
# mov [r8],eax; mov [r8+4],ebx; mov [r8+8],ecx; mov [r8+12],edx; pop rbx; ret
_CPUID = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")
# uint64 xgetbv(uint32 register): mov ecx,edi; xgetbv; shl rdx,32; or rax,rdx; ret
_XGETBV = bytes.fromhex("89f9 0f01d0 48c1e220 4809d0 c3")

_EAX, _EBX, _ECX, _EDX = range(4)
_SSE, _AVX, _AVX512, _AMX = 0b10, 0b110, 0b11100110, 0b11 << 17
#: name: (leaf, subleaf, register, bit, state bits that the operating system must save)
_BITS = {
    "sse3": (1, 0, _ECX, 0, _SSE), "ssse3": (1, 0, _ECX, 9, _SSE), "cx16": (1, 0, _ECX, 13, 0),
    "sse4.1": (1, 0, _ECX, 19, _SSE), "sse4.2": (1, 0, _ECX, 20, _SSE), "popcnt": (1, 0, _ECX, 23, 0),
    "fma": (1, 0, _ECX, 12, _AVX), "movbe": (1, 0, _ECX, 22, 0), "avx": (1, 0, _ECX, 28, _AVX),
    "f16c": (1, 0, _ECX, 29, _AVX),
    "bmi": (7, 0, _EBX, 3, 0), "avx2": (7, 0, _EBX, 5, _AVX), "bmi2": (7, 0, _EBX, 8, 0),
    "avx512f": (7, 0, _EBX, 16, _AVX512), "avx512dq": (7, 0, _EBX, 17, _AVX512), "avx512cd": (7, 0, _EBX, 28, _AVX512),
    "avx512bw": (7, 0, _EBX, 30, _AVX512), "avx512vl": (7, 0, _EBX, 31, _AVX512),
    "avx512vbmi": (7, 0, _ECX, 1, _AVX512), "avx512vnni": (7, 0, _ECX, 11, _AVX512),
    "avx512fp16": (7, 0, _EDX, 23, _AVX512), "amx-bf16": (7, 0, _EDX, 22, _AMX), "amx-tile": (7, 0, _EDX, 24, _AMX),
    "amx-int8": (7, 0, _EDX, 25, _AMX),
    "avxvnni": (7, 1, _EAX, 4, _AVX), "avx512bf16": (7, 1, _EAX, 5, _AVX512),
    "rdtscp": (0x80000001, 0, _EDX, 27, 0),
    "sahf": (0x80000001, 0, _ECX, 0, 0), "lzcnt": (0x80000001, 0, _ECX, 5, 0),
}  # fmt: skip

_V2 = ("cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_TILES = ("amx-tile", "amx-bf16", "amx-int8")
#: Levels, lowest first, and the features each one promises.
LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "x86-64-v4+bf16+vnni": (*_V4, "avx512bf16", "avx512vnni"),
    "x86-64-v4+bf16+vnni+amx": (*_V4, "avx512bf16", "avx512vnni", *_TILES),
}


@functools.lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """LLVM names of the features that CPU and operating system offer. Empty on anything but x86-64."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return frozenset()
    code = [map_code(_CPUID), map_code(_XGETBV)]
    ask = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(code[0].address)
    state_of = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32)(code[1].address)
    found = _decode(_leaf_reader(ask), state_of)
    return found if found.isdisjoint(_TILES) or _may_use_tiles() else found.difference(_TILES)


def _may_use_tiles() -> bool:
    """Asks the kernel for tile registers, for all threads of this process: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)."""
    try:
        return ctypes.CDLL(None).syscall(158, 0x1023, ctypes.c_long(18)) == 0
    except (OSError, AttributeError):
        return False


def _leaf_reader(ask: Callable[[int, int, object], None]) -> Callable[[int, int], tuple[int, ...]]:
    @functools.cache
    def leaf(number: int, sub: int) -> tuple[int, ...]:
        out = (ctypes.c_uint32 * 4)()
        ask(number, sub, ctypes.addressof(out))
        return tuple(out)

    return leaf


def _decode(leaf: Callable[[int, int], tuple[int, ...]], state_of: Callable[[int], int]) -> frozenset[str]:
    """Reads the feature bits. A leaf beyond the highest one has undefined content and counts as absent."""
    highest = {0: leaf(0, 0)[_EAX], 0x80000000: leaf(0x80000000, 0)[_EAX]}
    saved = state_of(0) if leaf(1, 0)[_ECX] >> 27 & 1 else _SSE  # OSXSAVE: XGETBV exists
    found = set()
    for name, (number, sub, register, bit, state) in _BITS.items():
        if number > highest[number & 0x80000000] or (sub and leaf(number, 0)[_EAX] < sub):
            continue
        if leaf(number, sub)[register] >> bit & 1 and saved & state == state:
            found.add(name)
    return frozenset(found)


def level() -> str:
    """The highest level this machine fulfils: the arch name for code compiled on it. "" if it is no x86-64."""
    have = features()
    fulfilled = [name for name, needed in LEVELS.items() if have.issuperset(needed)]
    return fulfilled[-1] if have else ""


def missing(arch: str, extra: tuple[str, ...] = ()) -> list[str]:
    """Features that code for `arch` (a level) with `extra` features needs and this machine lacks.

    An unknown arch is answered with its own name: code of unknown demands is not run.
    """
    if arch and arch not in LEVELS:
        return [f"level {arch} (known: {', '.join(LEVELS)})"]
    return sorted({*LEVELS.get(arch, ()), *extra} - features())
