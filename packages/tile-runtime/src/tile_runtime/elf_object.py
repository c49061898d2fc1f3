"""Parses one x86-64 relocatable object: the sections that are loaded, symbols, relocations. Checks every bound.

Objects come from artifacts whose hashes hold, but hashes only say that a file is whole: a malformed one must give a
LoadError, never a read or write outside it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .errors import LoadError

UNDEFINED, _ABSOLUTE, COMMON, _EXTENDED = 0, 0xFFF1, 0xFFF2, 0xFFFF

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL = 1, 2, 4, 8, 9
_CONSTRUCTORS = (14, 15, 16)  # init, fini and preinit arrays
_UNWIND = 0x70000001
_WRITE, _ALLOC, _EXEC, _TLS = 1, 2, 4, 0x400
_MAX_BYTES = 1 << 30
_TYPE_TLS, _TYPE_IFUNC = 6, 10


@dataclass(frozen=True)
class Section:
    """A section that takes part in the image. `content` is shorter than `size` for .bss."""

    index: int
    name: str
    size: int
    align: int
    content: bytes
    writable: bool
    executable: bool


@dataclass(frozen=True)
class Symbol:
    """`value` is an offset in `section`, an address if `absolute`, the alignment if the section is COMMON."""

    name: str
    section: int
    value: int
    size: int
    local: bool
    weak: bool
    absolute: bool


@dataclass(frozen=True)
class Relocation:
    """Patch `section` at `offset` with what `kind` makes of the symbol (an index) plus `addend`."""

    section: Section
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Object:
    """A parsed object; `sections` by index, only those that are loaded."""

    name: str
    sections: dict[int, Section]
    symbols: list[Symbol]
    relocations: list[Relocation]


@dataclass(frozen=True)
class _RawSection:
    name: int
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


def parse(name: str, data: bytes) -> Object:
    """The object in `data`; `name` is for messages. Raises LoadError."""
    try:
        return _parse(name, data)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise LoadError(f"{name} is not a sound ELF object: a table lies outside the file") from None


def _parse(name: str, data: bytes) -> Object:
    if data[:6] != b"\x7fELF\x02\x01":
        raise LoadError(f"{name} is not a 64-bit little-endian ELF file")
    fields = _HEADER.unpack_from(data)
    kind, machine, table, entry_size, count, names = fields[1], fields[2], fields[6], fields[11], fields[12], fields[13]
    if kind != 1 or machine != 62:
        raise LoadError(f"{name} is not a relocatable x86-64 object (ELF type {kind}, machine {machine})")
    if entry_size != _SECTION.size or table + count * entry_size > len(data):
        raise LoadError(f"{name} is not a sound ELF object: its section table lies outside the file")
    raw = [_raw_section(_SECTION.unpack_from(data, table + i * entry_size)) for i in range(count)]
    for section in raw:
        if section.kind != _NOBITS and section.kind and section.offset + section.size > len(data):
            raise LoadError(f"{name} is not a sound ELF object: a section lies outside the file")
    sections = _loaded_sections(name, data, raw, raw[names])
    tables = [i for i, s in enumerate(raw) if s.kind == _SYMTAB]
    if len(tables) > 1:
        raise LoadError(f"{name} has {len(tables)} symbol tables")
    symbols = _symbols(name, data, raw, tables[0], sections) if tables else []
    relocations = _relocations(name, data, raw, sections, len(symbols))
    return Object(name, sections, symbols, relocations)


def _raw_section(f: tuple[int, ...]) -> _RawSection:
    return _RawSection(f[0], f[1], f[2], f[4], f[5], f[6], f[7], f[8], f[9])


def _text(data: bytes, table: _RawSection, offset: int) -> str:
    start, end = table.offset + offset, table.offset + table.size
    stop = data.index(b"\0", start, end) if start < end and b"\0" in data[start:end] else end
    return data[start:stop].decode("utf-8")


def _loaded_sections(name: str, data: bytes, raw: list[_RawSection], names: _RawSection) -> dict[int, Section]:
    found: dict[int, Section] = {}
    total = 0
    for i, s in enumerate(raw):
        title = _text(data, names, s.name) if s.kind else ""
        # Unwind tables describe the code to a C++ exception, which never crosses it.
        if not s.flags & _ALLOC or s.kind == _UNWIND or title == ".eh_frame" or s.size == 0:
            continue
        if s.flags & _TLS:
            raise LoadError(f"{name}: section {title} holds thread-local data, which is not supported")
        if s.kind in _CONSTRUCTORS:
            raise LoadError(f"{name}: section {title} holds constructors, which are not run")
        total += s.size
        if total > _MAX_BYTES or s.align > 1 << 12 or s.align & (s.align - 1):
            raise LoadError(f"{name}: section {title} has size {s.size} and alignment {s.align}, beyond the limits")
        content = b"" if s.kind == _NOBITS else data[s.offset : s.offset + s.size]
        found[i] = Section(i, title, s.size, s.align, content, bool(s.flags & _WRITE), bool(s.flags & _EXEC))
    return found


def _symbols(name: str, data: bytes, raw: list[_RawSection], table: int, sections: dict[int, Section]) -> list[Symbol]:
    s = raw[table]
    names = raw[s.link]
    found = []
    for i in range(s.size // _SYMBOL.size):
        title, info, _, index, value, size = _SYMBOL.unpack_from(data, s.offset + i * _SYMBOL.size)
        text = _text(data, names, title)
        kind, bind = info & 15, info >> 4
        if kind in (_TYPE_TLS, _TYPE_IFUNC) or index == _EXTENDED:
            raise LoadError(f"{name}: symbol {text} is thread-local, an indirect function, or beyond 65279 sections")
        if index in sections and value > sections[index].size:
            raise LoadError(f"{name}: symbol {text} lies outside its section")
        if index == COMMON and (size > _MAX_BYTES or value > 1 << 12):
            raise LoadError(f"{name}: common symbol {text} has size {size} and alignment {value}, beyond the limits")
        found.append(Symbol(text, index, value, size, bind == 0, bind == 2, index == _ABSOLUTE))
    return found


def _relocations(
    name: str, data: bytes, raw: list[_RawSection], sections: dict[int, Section], symbols: int
) -> list[Relocation]:
    found = []
    for s in raw:
        if s.kind == _REL:
            raise LoadError(f"{name}: relocations without addends are not x86-64's")
        if s.kind != _RELA or s.info not in sections:
            continue
        for i in range(s.size // _RELOCATION.size):
            offset, info, addend = _RELOCATION.unpack_from(data, s.offset + i * _RELOCATION.size)
            if info >> 32 >= symbols or offset >= sections[s.info].size:
                raise LoadError(f"{name}: a relocation of section {sections[s.info].name} points outside")
            found.append(Relocation(sections[s.info], offset, info & 0xFFFFFFFF, info >> 32, addend))
    return found
