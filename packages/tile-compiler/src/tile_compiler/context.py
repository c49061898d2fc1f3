"""What one compilation carries from pass to pass, beside the IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tile_compiler.errors import where
from tile_compiler.loops.turned import Turn


@dataclass
class Report:
    """What the compiler decided and what it had to assume, for `kernel.report()` and the manifest.

    `notes` are (file:line, text) pairs about decisions; `assumed` are texts about facts that were not proven. `kernels`
    holds what a target says of each kernel, by its index; `device_compiler` its name and seconds.
    """

    notes: list[tuple[str, str]] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    kernels: dict[int, dict[str, Any]] = field(default_factory=dict)
    device_compiler: dict[str, Any] = field(default_factory=dict)

    def note(self, span: Any, text: str) -> None:
        self.add(where(span), text)

    def add(self, at: str, text: str) -> None:
        """A note on `at`, which is `file:line`."""
        if (at, text) not in self.notes:
            self.notes.append((at, text))

    def assume(self, span: Any, text: str) -> None:
        entry = f"{where(span)}: {text}" if where(span) else text
        if entry not in self.assumed:
            self.assumed.append(entry)

    def to_json(self) -> dict[str, Any]:
        return {"notes": [{"at": at, "text": text} for at, text in self.notes], "assumed": list(self.assumed)}


def plain_options(options: Any) -> dict[str, Any]:
    """Options by their text keys: of a `tilelang.options.Options`, a mapping, or None."""
    if options is None:
        return {}
    configs = getattr(options, "pass_configs", options)
    return {str(getattr(k, "value", k)): v for k, v in dict(configs).items()}


Operand = tuple[Any, tuple[Any, ...], int, int]
"""(buffer, origin, dimension that rows run along, dimension that columns run along)"""


@dataclass(frozen=True)
class Ahead:
    """A tile of a tensor that the next round of a loop will read: `rows` of `row_bytes`, `stride` bytes apart (int64).

    `address(row, byte)`: of a place in the tile; of one in the tensor where the tile leaves it. `in_place`: the product
    itself reads it from the tensor, else a copy does. `of_a`: it is the left operand's.
    """

    address: Callable[[Any, Any], Any]
    stride: Any
    rows: int
    row_bytes: int
    in_place: bool = False
    of_a: bool = False


@dataclass(frozen=True)
class Fetch:
    """So many bytes (int64) in one piece from an address on, for `T.prefetch`."""

    address: Any
    size: Any


@dataclass(frozen=True)
class TileProduct:
    """C (m, n) = (0 if clear else C) + A (m, k) @ B (k, n) over tiles on chip or as `in_place` of the context has it.

    `temporary(shape, dtype, name)` gives a new on-chip buffer. `ahead`: what the operands' next tiles are made from. `limits` for
    m, n and k, or None: rows and columns of C from there on may be left as they are, and all products are zero. `leaves`: tiles
    of tensors end there; what lies beyond is neither read nor written. `prepared`: a condition, or None for never: what was made
    of B, which lies in a tensor, in the last round of the loop around is what this round would make.
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    clear: Any
    temporary: Callable[..., Any]
    span: Any = None
    ahead: tuple[Ahead, ...] = ()
    limits: tuple[Any, Any, Any] = (None, None, None)
    leaves: tuple[bool, bool, bool] = (False, False, False)
    prepared: Any = None


@dataclass(frozen=True)
class InTensors:
    """A product some of whose tiles lie in tensors: the element types of A, B and C, which of A and B are transposed, the rows of
    C, the depth of A and B, and which of the three are on chip."""

    types: tuple[str, str, str]
    turned: tuple[bool, bool]
    rows: int
    depth: int
    on_chip: tuple[bool, bool, bool]


@dataclass
class CompileContext:
    """One compilation: the target's features (its own type, e.g. `CpuFeatures`), the options, the growing report.

    `tile_product` is the target's own lowering of a tile product; it may return None to decline. `in_place`: of
    which of A, B and C it takes tiles of tensors too, with rows in one piece, which may leave their tensors.
    `turned_copy` is its lowering of a copy that turns a matrix, which may decline as well; `fetch` that of `T.prefetch`.
    `prints` and `errors` are filled by the lowering of `T.print` and `T.device_assert`: one list of entries for
    each kernel index (see docs/internals/runtime.md, launches). `tiles`: where the elements of the user's tile are, for
    the buffer that holds them in the final form: a Layout (shared memory), a Fragment (registers), or None (a thread's
    own array).
    """

    features: Any = None
    tile_product: Callable[[TileProduct], Any] | None = None
    in_place: Callable[[InTensors], tuple[bool, bool, bool]] | None = None
    turned_copy: Callable[[Turn], Any] | None = None
    fetch: Callable[[Fetch], Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    report: Report = field(default_factory=Report)
    prints: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    errors: dict[int, list[str]] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)  # texts of T.import_source
    alignments: dict[str, int] = field(default_factory=dict)  # of parameters, in bytes, where more than the element's
    filled: set[str] = field(default_factory=set)  # parameters that have elements, as tensor maps need
    variants: bool = False  # whether a launcher may choose between codes that assume more or less of a call
    narrow: bool = False  # no tensor has more than 2^31 - 1 elements
    tiles: dict[Any, Any] = field(default_factory=dict)
    text_only: bool = False  # no binary is wanted: the emulator runs the text

    def print_count(self) -> int:
        """The number of print sites so far, over all kernels: sites are unique in a binary."""
        return sum(len(table) for table in self.prints.values())

    @property
    def vector_bytes(self) -> int:
        """Width in bytes of the vectors that loops are cut into; 64 where the target does not say."""
        return 64 if self.features is None else int(self.features.vector_bits) // 8
