from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_runtime.errors import LoadError
from tile_runtime.shipped_code import compile_llvm
from tile_runtime_cpu.elf import Image
from tile_runtime_cpu.imports import IMPORTS, import_address

PRINT = {"tl_print": 1}


def call(image: Image, symbol: str, *args: int, result: Any = ctypes.c_int64) -> Any:
    return ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * len(args))(image.address(symbol))(*args)


def run(image: Image, symbol: str, out: Any, *dims: float) -> int:
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(out), 0)
    numbers = struct.pack("".join("d" if isinstance(d, float) else "q" for d in dims) or "0q", *dims)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)
    return int(entry(image.address(symbol))(ctypes.addressof(pointers), numbers, 0, 1))


def test_code_constants_and_libm(kernels: bytes) -> None:
    image = Image([("kernels.o", kernels)], PRINT)
    out = (ctypes.c_double * 4)()
    assert run(image, "scalars", out, 1.5, 2) == 0
    assert list(out) == pytest.approx([1.5, 2.0, 2.25, 54.598150])


def test_data_and_bss_are_writable_and_private_to_an_image(kernels: bytes) -> None:
    out = (ctypes.c_int64 * 2)()
    for _ in range(2):
        image = Image([("kernels.o", kernels)], PRINT)
        for i in range(3):
            assert run(image, "remember", out) == 0
            assert list(out) == [5 + i, i]


def test_code_is_never_writable_and_executable(kernels: bytes) -> None:
    image = Image([("kernels.o", kernels)], PRINT)
    rights = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            if start < image.memory.address + image.memory.size and end > image.memory.address:
                rights[max(start, image.memory.address)] = line.split()[1]
    assert sorted(rights.values()) == ["r--p", "r-xp", "rw-p"]
    assert rights[image.memory.address] == "r-xp"


def test_the_memory_is_given_back(kernels: bytes) -> None:
    image = Image([("kernels.o", kernels)], PRINT)
    address = f"{image.memory.address:x}-"
    with open("/proc/self/maps") as maps:
        assert address in maps.read()
    del image
    with open("/proc/self/maps") as maps:
        assert address not in maps.read()


def test_a_second_object_may_define_what_the_first_imports() -> None:
    user = compile_llvm("""
target triple = "x86_64-unknown-linux-gnu"
@shared_value = external global i64
declare i64 @helper(i64)
define i64 @use(i64 %x) {
  %y = call i64 @helper(i64 %x)
  %z = load i64, ptr @shared_value
  %s = add i64 %y, %z
  ret i64 %s
}""")
    library = compile_llvm("""
target triple = "x86_64-unknown-linux-gnu"
@shared_value = global i64 1000
define i64 @helper(i64 %x) {
  %y = mul i64 %x, 2
  ret i64 %y
}""")
    assert call(Image([("user.o", user), ("library.o", library)]), "use", 21) == 1042
    assert call(Image([("library.o", library), ("user.o", user)]), "use", 21) == 1042
    with pytest.raises(LoadError, match=r"user\.o: undefined symbol '(helper|shared_value)'.*IMPORTS"):
        Image([("user.o", user)])
    with pytest.raises(LoadError, match=r"the symbol (helper|shared_value) is also defined by a\.o"):
        Image([("a.o", library), ("b.o", library)])


@pytest.mark.parametrize("name", ["system", "printf", "mmap", "dlopen", "malloc", "syscall"])
def test_imports_outside_the_list_are_refused(name: str) -> None:
    data = compile_llvm(f"""
target triple = "x86_64-unknown-linux-gnu"
declare i64 @{name}(i64)
define i64 @use(i64 %x) {{
  %y = call i64 @{name}(i64 %x)
  ret i64 %y
}}""")
    with pytest.raises(LoadError, match=f"TLR006.*undefined symbol '{name}'"):
        Image([("k.o", data)])


def test_the_whole_list_is_in_this_c_library() -> None:
    newest = {"roundeven", "roundevenf", "exp10", "exp10f"}  # not in every C library: the import is refused there
    assert [name for name in sorted(IMPORTS - newest) if not import_address(name)] == []
    assert import_address("system") is None


def test_an_unknown_symbol_lists_what_there_is(kernels: bytes) -> None:
    with pytest.raises(LoadError, match=r"no object defines the symbol 'main' \(defined: counter, fails, fill"):
        Image([("kernels.o", kernels)], PRINT).address("main")


C = """
static const int numbers[4] = {1, 2, 3, 4};
int common_one, common_two[8];
int data = 40;
static int bss[100];
__attribute__((weak)) int weak(void) { return 1; }
int (*pointer)(void) = weak;
int get(int i) { bss[i] += numbers[i]; common_two[i & 7]++; return data + bss[i] + weak() + pointer() + common_one; }
"""


@pytest.mark.parametrize(
    "flags", [["-fPIC"], ["-fPIE"], ["-fno-pic", "-mcmodel=small"], ["-fPIC", "-fcommon"], ["-fPIC", "-fno-plt"]]
)
def test_relocations_of_gcc(gcc: Callable[..., bytes], flags: list[str]) -> None:
    image = Image([("c.o", gcc(C, *flags))])
    assert call(image, "get", 2, result=ctypes.c_int) == 45
    assert call(image, "get", 2, result=ctypes.c_int) == 48


def test_a_strong_definition_wins_over_a_weak_one(gcc: Callable[..., bytes]) -> None:
    weak, strong = gcc(C, "-fPIC"), gcc("int weak(void) { return 100; }", "-fPIC")
    for objects in ([("a", weak), ("b", strong)], [("b", strong), ("a", weak)]):
        assert call(Image(objects), "get", 0, result=ctypes.c_int) == 241


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__thread int x; int get(void) { return x; }", "thread-local"),
        ("static int x; __attribute__((constructor)) void f(void) { x = 1; }", "constructors"),
        (
            'int f(void) { return 1; } int g(void) __attribute__((ifunc("r"))); static void *r(void) { return f; }',
            "indirect function",
        ),
    ],
)
def test_what_is_not_supported_is_said(gcc: Callable[..., bytes], text: str, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        Image([("c.o", gcc(text, "-fPIC"))])


def test_other_files_are_refused() -> None:
    for data in (b"", b"\x7fELF", b"MZ" + bytes(100), bytes(64)):
        with pytest.raises(LoadError, match=r"x\.o is not"):
            Image([("x.o", data)])
    with open("/proc/self/exe", "rb") as file, pytest.raises(LoadError, match="not a relocatable x86-64 object"):
        Image([("x.o", file.read())])


@given(st.data())
def test_a_malformed_object_is_an_error_or_loads_but_never_reads_outside(kernels: bytes, data: st.DataObject) -> None:
    damaged = bytearray(kernels)
    for _ in range(data.draw(st.integers(1, 4))):
        # Headers and tables: damaged code would be as good as any other code
        position = data.draw(st.one_of(st.integers(0, 63), st.integers(len(damaged) // 2, len(damaged) - 1)))
        damaged[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(damaged))))
    with contextlib.suppress(LoadError):
        Image([("x.o", bytes(damaged[:cut]))], PRINT)
