"""What ptxas says of code that it made slower than it was written: matrix instructions one by one, limits ignored.

A note names a kernel and a line of the PTX text. Which line of the source that is, `.loc` directives tell, which
`--generate-line-info` leaves in the PTX (PTX ISA, "Debugging Directives: .loc").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NOTE = re.compile(r"\((C75\d\d)\) (?:Potential Performance Loss: )?(.+)")
_KERNEL = re.compile(r",? in (?:the )?function '([^']+)'")
_LINE = re.compile(r",? in line (\d+)")
_PLACE = re.compile(r"\s*\.loc\s+1\s+(\d+)|.*inlined_at\s+1\s+(\d+)")


@dataclass(frozen=True)
class Note:
    """`code` as C7510, `text` without places; `symbol`: the kernel, "" if it is not said; `line` of the source or the PTX, 0
    if that is not known."""

    code: str
    text: str
    symbol: str
    line: int


def notes_of(log: str) -> list[Note]:
    """The notes in a log of ptxas, each once, with lines of the PTX."""
    found: dict[Note, None] = {}
    for code, text in _NOTE.findall(log):
        kernel, line = _KERNEL.search(text), _LINE.search(text)
        plain = _LINE.sub("", _KERNEL.sub("", text)).strip()
        found.setdefault(Note(code, plain, kernel[1] if kernel else "", int(line[1]) if line else 0))
    return list(found)


def in_source(note: Note, ptx: str) -> Note:
    """The note with the line of the source file that comes first in the PTX, where line information stands in it."""
    lines = ptx.splitlines()[: note.line]
    places = (_PLACE.match(line) for line in reversed(lines))
    place = next((int(p[1] or p[2]) for p in places if p), 0)
    return Note(note.code, note.text, note.symbol, place)
