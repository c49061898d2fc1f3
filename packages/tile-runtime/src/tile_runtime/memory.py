"""Memory for code and for what native code shares: private mappings, never writable and executable at once."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

PAGE = mmap.PAGESIZE
_MAP_32BIT = 0x40

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_mprotect = _libc.mprotect
_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_munmap = _libc.munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

READ, WRITE, EXECUTE = mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC


def round_up(size: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `size`."""
    return -(-size // multiple) * multiple


class Mapping:
    """`size` bytes (rounded up to pages), zeroed, readable and writable; unmapped when the object goes.

    A child of fork has its own copy. `low` asks for an address below 2 GiB, for code with 32-bit absolute addresses.
    Raises OSError if the system refuses.
    """

    def __init__(self, size: int, low: bool = False) -> None:
        self.size = max(PAGE, round_up(size, PAGE))
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_MAP_32BIT if low else 0)
        address = _mmap(None, self.size, READ | WRITE, flags, -1, 0)
        if address is None or address == ctypes.c_void_p(-1).value:
            _raise_errno(f"cannot map {self.size} bytes of memory")
        self.address: int = address
        # Not at exit: worker threads may still stand in mapped code then.
        weakref.finalize(self, _munmap, self.address, self.size).atexit = False

    def write(self, offset: int, data: bytes) -> None:
        """Copies `data` to `offset`; both ends must lie inside."""
        if offset < 0 or offset + len(data) > self.size:
            raise ValueError(f"{len(data)} bytes at {offset} do not fit a mapping of {self.size}")
        ctypes.memmove(self.address + offset, data, len(data))

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at `offset`."""
        return ctypes.string_at(self.address + offset, size)

    def protect(self, offset: int, size: int, rights: int) -> None:
        """Sets the rights of whole pages from `offset` on."""
        if size and _mprotect(self.address + offset, round_up(size, PAGE), rights) != 0:
            _raise_errno("cannot change the protection of mapped memory (is executable memory forbidden here?)")


def map_code(code: bytes) -> Mapping:
    """Position-independent machine code, executable and no longer writable."""
    mapping = Mapping(len(code))
    mapping.write(0, code)
    mapping.protect(0, mapping.size, READ | EXECUTE)
    return mapping


def _raise_errno(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")
