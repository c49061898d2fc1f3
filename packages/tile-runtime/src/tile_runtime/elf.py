"""Loads x86-64 relocatable objects (ET_REL) into this process: no linker, no files, no libtvm.

An Image is one namespace of objects: a second object may define what the first imports. Its memory is one region of
three parts, so that 32-bit distances always reach:

    code (and stubs for imports)  read + execute
    constants, address table      read
    data, .bss, common            read + write

Everything is written and relocated first; only then is code made executable and unwritable. Section and relocation
types follow the ELF-64 object file format and the x86-64 psABI (gitlab.com/x86-psABIs/x86-64-ABI), table 4.9.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Map
from dataclasses import dataclass, field

from .elf_object import COMMON, UNDEFINED, Object, Section, Symbol, parse
from .errors import LoadError
from .memory import EXECUTE, PAGE, READ, WRITE, Mapping, round_up

_CODE, _CONSTANTS, _DATA = range(3)
_RIGHTS = (READ | EXECUTE, READ, READ | WRITE)
_STUB_BYTES = 8  # jmp *slot(%rip), padded

_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_32, _R_32S, _R_PC64, _R_GOTPCRELX, _R_REX_GOTPCRELX = (
    1,
    2,
    4,
    9,
    10,
    11,
    24,
    41,
    42,
)
_RELATIVE = (_R_PC32, _R_PLT32)
_THROUGH_TABLE = (_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX)
_ABSOLUTE_32 = (_R_32, _R_32S)
_KNOWN = {0, _R_64, _R_PC64, *_RELATIVE, *_THROUGH_TABLE, *_ABSOLUTE_32}


@dataclass
class _Layout:
    """Where things go: offsets within the three parts."""

    sizes: list[int] = field(default_factory=lambda: [0, 0, 0])
    sections: dict[tuple[int, int], tuple[int, int]] = field(
        default_factory=dict
    )  # (object, section) -> (part, offset)
    commons: dict[str, int] = field(default_factory=dict)  # name -> offset in data
    stubs: dict[str, int] = field(default_factory=dict)  # import -> offset in code
    slots: dict[str | tuple[int, int], int] = field(default_factory=dict)  # symbol -> offset in constants

    def place(self, part: int, size: int, align: int) -> int:
        offset = round_up(self.sizes[part], max(1, align))
        self.sizes[part] = offset + size
        return offset


class Image:
    """Loaded objects. `objects` are (name for messages, bytes). They may import `symbols`, which are addresses, and what
    `resolve` finds. Raises LoadError for anything unexpected, before any of the code can run."""

    allowed = "the names that the loader gives it"
    """What an object may import, for messages."""

    def __init__(
        self,
        objects: Sequence[tuple[str, bytes]],
        symbols: Map[str, int] | None = None,
        resolve: Callable[[str], int | None] = lambda name: None,
    ) -> None:
        self._objects = [parse(name, data) for name, data in objects]
        self._given = dict(symbols or {})
        self._resolve = resolve
        self._defined = self._global_definitions()
        self._imported: dict[str, int] = {}
        self._layout = self._plan()
        self.memory = self._map()
        self._write()

    def address(self, symbol: str) -> int:
        """Address of a global symbol that an object defines. LoadError if there is none of that name."""
        if symbol not in self._defined:
            names = ", ".join(sorted(self._defined)[:20]) or "none"
            raise LoadError(f"no object defines the symbol {symbol[:200]!r} (defined: {names})")
        return self._symbol_address(*self._defined[symbol])

    # -- planning ----------------------------------------------------------------------------------------------------

    def _global_definitions(self) -> dict[str, tuple[int, Symbol]]:
        found: dict[str, tuple[int, Symbol]] = {}
        for o, obj in enumerate(self._objects):
            for symbol in obj.symbols:
                if symbol.local or symbol.section == UNDEFINED or not symbol.name:
                    continue
                other = found.get(symbol.name)
                if other is None or (self._strength(symbol) > self._strength(other[1])):
                    found[symbol.name] = (o, symbol)
                elif self._strength(symbol) == self._strength(other[1]) == 2:
                    raise LoadError(
                        f"{obj.name}: the symbol {symbol.name} is also defined by {self._objects[other[0]].name}"
                    )
        return found

    @staticmethod
    def _strength(symbol: Symbol) -> int:
        return 0 if symbol.section == COMMON else 1 if symbol.weak else 2

    def _plan(self) -> _Layout:
        layout = _Layout()
        for o, obj in enumerate(self._objects):
            for section in obj.sections.values():
                part = _CODE if section.executable else _DATA if section.writable else _CONSTANTS
                layout.sections[o, section.index] = (part, layout.place(part, section.size, section.align))
        for name, (_, symbol) in self._defined.items():
            if symbol.section == COMMON:
                layout.commons[name] = layout.place(_DATA, symbol.size, symbol.value)
        for o, obj in enumerate(self._objects):
            for relocation in obj.relocations:
                if relocation.kind not in _KNOWN:
                    raise LoadError(
                        f"{obj.name}: relocation type {relocation.kind} is not supported; compile with -fPIC"
                    )
                symbol = obj.symbols[relocation.symbol]
                outside = self._is_import(symbol)
                if outside and relocation.kind in _RELATIVE and symbol.name not in layout.stubs:
                    layout.stubs[symbol.name] = layout.place(_CODE, _STUB_BYTES, _STUB_BYTES)
                if relocation.kind in _THROUGH_TABLE or (outside and relocation.kind in _RELATIVE):
                    key = self._slot_key(o, relocation.symbol)
                    if key not in layout.slots:
                        layout.slots[key] = layout.place(_CONSTANTS, 8, 8)
        return layout

    def _slot_key(self, o: int, index: int) -> str | tuple[int, int]:
        symbol = self._objects[o].symbols[index]
        return (o, index) if symbol.local else symbol.name

    def _is_import(self, symbol: Symbol) -> bool:
        return symbol.section == UNDEFINED and bool(symbol.name) and symbol.name not in self._defined

    def _map(self) -> Mapping:
        low = any(r.kind in _ABSOLUTE_32 for obj in self._objects for r in obj.relocations)
        sizes = [round_up(size, PAGE) for size in self._layout.sizes]
        self._starts = (0, sizes[0], sizes[0] + sizes[1])
        try:
            return Mapping(sum(sizes), low=low)
        except OSError as error:
            raise LoadError(f"cannot load {', '.join(obj.name for obj in self._objects)}: {error}") from None

    # -- addresses ---------------------------------------------------------------------------------------------------

    def _at(self, part: int, offset: int) -> int:
        return self.memory.address + self._starts[part] + offset

    def _section_address(self, o: int, index: int) -> int:
        try:
            return self._at(*self._layout.sections[o, index])
        except KeyError:
            raise LoadError(f"{self._objects[o].name}: a symbol lies in section {index}, which is not loaded") from None

    def _symbol_address(self, o: int, symbol: Symbol) -> int:
        if symbol.section == UNDEFINED:
            if not symbol.name:
                return 0
            if symbol.name in self._defined:
                return self._symbol_address(*self._defined[symbol.name])
            return self._import(o, symbol)
        if symbol.section == COMMON:
            return self._at(_DATA, self._layout.commons[symbol.name])
        if symbol.absolute:
            return symbol.value
        if not symbol.local and not symbol.weak:
            return self._section_address(o, symbol.section) + symbol.value
        if not symbol.local and self._defined[symbol.name][1] is not symbol:  # a weak definition that lost
            return self._symbol_address(*self._defined[symbol.name])
        return self._section_address(o, symbol.section) + symbol.value

    def _import(self, o: int, symbol: Symbol) -> int:
        name = symbol.name
        if name not in self._imported:
            address = self._given.get(name) or self._resolve(name)
            if address is None and not symbol.weak:
                raise LoadError(
                    f"{self._objects[o].name}: undefined symbol {name[:200]!r}; it may import only {self.allowed}"
                )
            self._imported[name] = address or 0
        return self._imported[name]

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        for o, obj in enumerate(self._objects):
            for section in obj.sections.values():
                self._put(self._section_address(o, section.index), section.content)
        for key, offset in self._layout.slots.items():
            o, symbol = self._slot_symbol(key)
            self._put(self._at(_CONSTANTS, offset), struct.pack("<Q", self._symbol_address(o, symbol)))
        for name, offset in self._layout.stubs.items():
            here = self._at(_CODE, offset)
            distance = self._at(_CONSTANTS, self._layout.slots[name]) - (here + 6)
            self._put(here, b"\xff\x25" + struct.pack("<i", distance))
        for o, obj in enumerate(self._objects):
            for relocation in obj.relocations:
                if relocation.kind:
                    self._relocate(
                        o,
                        obj,
                        relocation.section,
                        relocation.offset,
                        relocation.kind,
                        relocation.symbol,
                        relocation.addend,
                    )
        for part, rights in enumerate(_RIGHTS):
            self.memory.protect(self._starts[part], self._layout.sizes[part], rights)

    def _slot_symbol(self, key: str | tuple[int, int]) -> tuple[int, Symbol]:
        if isinstance(key, tuple):
            return key[0], self._objects[key[0]].symbols[key[1]]
        if key in self._defined:
            return self._defined[key]
        return next((o, s) for o, obj in enumerate(self._objects) for s in obj.symbols if s.name == key and not s.local)

    def _relocate(self, o: int, obj: Object, section: Section, offset: int, kind: int, index: int, addend: int) -> None:
        place = self._section_address(o, section.index) + offset
        symbol = obj.symbols[index]
        if kind in _THROUGH_TABLE:
            value = self._at(_CONSTANTS, self._layout.slots[self._slot_key(o, index)])
        elif kind in _RELATIVE and self._is_import(symbol):
            self._symbol_address(o, symbol)  # complains if the name is not importable
            value = self._at(_CODE, self._layout.stubs[symbol.name])
        else:
            value = self._symbol_address(o, symbol)
        value += addend
        if kind == _R_64:
            packed = struct.pack("<Q", value & (2**64 - 1))
        elif kind == _R_PC64:
            packed = struct.pack("<q", value - place)
        else:
            signed = value if kind in _ABSOLUTE_32 else value - place
            fits = 0 <= signed < 2**32 if kind == _R_32 else -(2**31) <= signed < 2**31
            if not fits:
                raise LoadError(
                    f"{obj.name}: a relocation of type {kind} against {symbol.name or 'a section'} does not reach"
                )
            packed = struct.pack("<I", signed & 0xFFFFFFFF)
        if offset + len(packed) > section.size:
            raise LoadError(f"{obj.name}: a relocation lies outside its section {section.name}")
        self._put(place, packed)

    def _put(self, address: int, data: bytes) -> None:
        self.memory.write(address - self.memory.address, data)
