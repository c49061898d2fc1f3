"""Names of architectures in declarations: `gfx942` is that one, `sm_80+` and `x86-64-v3+` are those and later ones.

`sm_90a` names what that architecture alone has: neither sm_90 nor anything later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"(gfx|sm_|x86-64-v)(\d+[0-9a-f]*?)([af]?)(\+?)")
_ONE = re.compile(r"sm_\d+[af]")


def _parts(name: str) -> tuple[str, str, bool]:
    """(family, number, whether later ones are meant): `sm_90a` is `sm_90` here; gfx numbers are hexadecimal."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no architecture. Write for example 'sm_80+' or 'gfx942'.")
    family, number, suffix, later = found.groups()
    return family, number + suffix if family == "gfx" else number, bool(later)


def runs_on(architectures: Iterable[str], name: str) -> bool:
    """Whether the architecture `name` is among the declared ones."""
    family, number, _ = _parts(name)
    for entry in architectures:
        of, since, later = _parts(entry)
        if _ONE.fullmatch(entry):
            if entry == name:
                return True
            continue
        if of == family and (number == since or (later and int(number, 16) >= int(since, 16))):
            return True
    return False


def in_words(architectures: Iterable[str]) -> str:
    """`sm_80 and newer, gfx942`."""
    return ", ".join(f"{a.removesuffix('+')} and newer" if a.endswith("+") else a for a in architectures)


def check(architectures: Iterable[str]) -> None:
    """ValueError for a name that is none."""
    for entry in architectures:
        _parts(entry)
