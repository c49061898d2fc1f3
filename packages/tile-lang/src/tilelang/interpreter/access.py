"""Reading and writing buffers from lanes and by regions: bounds, initialization and races are decided here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelang.interpreter import numerics
from tilelang.interpreter.errors import InterpreterError
from tilelang.interpreter.lanes import Lanes, Race, RaceTracker, conflicting_writes
from tilelang.interpreter.memory import Buffer
from tilelang.interpreter.numerics import Values
from tilelang.ops.atomic import update


class Memory:
    """The state of one block (or of the host): its lanes, its names, and access to its buffers."""

    def __init__(self, lanes: Lanes, block: tuple[int, ...] | None = None) -> None:
        self.lanes = lanes
        self.block = block
        self.span: Any = None  # of the statement being executed
        self.buffers: dict[Any, Buffer] = {}
        self.safe_values: dict[Buffer, Any] = {}
        # Inside a parallel loop: the tracker, and the storages that the loop stores to.
        self.races: RaceTracker | None = None
        self.watched: frozenset[int] = frozenset()

    def error(self, problem: str, **parts: str | None) -> InterpreterError:
        """An error at the current statement."""
        where = "" if self.block is None else f" (block {self._block_name()})"
        return InterpreterError(problem + where, span=self.span, **parts)

    def _block_name(self) -> str:
        assert self.block is not None
        return str(self.block[0]) if len(self.block) == 1 else str(self.block)

    # -- one element per lane ---------------------------------------------------------------------------------

    def read(self, buffer: Buffer, indices: Sequence[Values]) -> Values:
        """The element of each active lane; outside the buffer 0, or the buffer's safe value."""
        own = buffer.owner is self.lanes and buffer.storage.copies > 1
        spread = own or buffer.storage.serial in self.watched or any(len(i) > 1 for i in indices)
        lanes, picked, inner, shape = self._pick(buffer, indices, spread)
        result = self._outside(buffer, (len(lanes),))
        if len(picked):
            result[picked] = self._gather(buffer, inner, lanes[picked])
            if buffer.storage.serial in self.watched and self.races is not None:
                self._refuse(self.races.read(buffer, inner, lanes[picked]), buffer, inner)
        return result.reshape(*shape, *result.shape[1:])

    def write(self, buffer: Buffer, indices: Sequence[Values], value: Values) -> None:
        """Store the value of each active lane; elements outside the buffer are dropped."""
        private = buffer.owner is not None
        if private and buffer.owner is not self.lanes:
            raise self.error(
                f"{buffer.name} is written inside a parallel loop but belongs to one thread",
                found=f"{buffer.name} (scope {buffer.scope}) was allocated outside of the loop",
                expected="a buffer allocated in the loop's body, or one that the whole block sees",
                repair="allocate it inside T.Parallel, or use T.alloc_fragment",
            )
        watched = buffer.storage.serial in self.watched
        spread = watched or len(value) > 1 or any(len(i) > 1 for i in indices)
        if private:
            spread = spread or buffer.storage.copies > 1 or not self.lanes.mask.all()
            if spread:
                buffer.storage.split(self.lanes.count)
        lanes, picked, inner, shape = self._pick(buffer, indices, spread)
        if not len(picked):
            return
        trailing = value.shape[len(shape) :]
        values = np.broadcast_to(value, (*shape, *trailing)).reshape(-1, *trailing)[picked]
        values = numerics.convert(values, buffer.dtype)
        writers = lanes[picked]
        if spread and not private:
            codes = numerics.to_codes(values, buffer.dtype.scalar)
            self._refuse(conflicting_writes(buffer.places(inner)[:, 0], writers, codes), buffer, inner)
            if watched and self.races is not None:
                changed = codes != numerics.to_codes(buffer.gather(0, inner), buffer.dtype.scalar)
                changed = changed.any(axis=-1) if changed.ndim > 1 else changed
                self._refuse(self.races.write(buffer, inner, writers, changed), buffer, inner)
        buffer.scatter(writers if private and buffer.storage.copies > 1 else 0, inner, values)

    def atomic(self, buffer: Buffer, indices: Sequence[Values], op: str, value: Values) -> Values:
        """Every active lane updates its element, in the order of lanes; the old values."""
        lanes, picked, inner, _ = self._pick(buffer, indices, True)
        operands = np.broadcast_to(numerics.convert(value, buffer.dtype), (len(lanes),))[picked]
        result = np.zeros(len(lanes), buffer.dtype.as_numpy())
        if not len(picked):
            return result
        # Round r does every element's r-th update, so that lanes that meet at one element take turns.
        places = buffer.places(inner)[:, 0]
        order = np.argsort(places, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(places[order]) != 0])
        turns = np.empty(len(order), np.int64)
        turns[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
        for turn in range(int(turns.max()) + 1):
            now = np.flatnonzero(turns == turn)
            here = [i[now] for i in inner]
            # A plain store reads nothing, so it may be the first to write its element.
            old = buffer.gather(0, here) if op == "store" else self._gather(buffer, here, lanes[picked[now]])
            result[picked[now]] = old
            if op != "load":
                buffer.scatter(0, here, numerics.convert(update(op, old, operands[now]), buffer.dtype))
        return result

    def _pick(
        self, buffer: Buffer, indices: Sequence[Values], spread: bool
    ) -> tuple[Values, Values, list[Values], tuple[int, ...]]:
        """Which elements an access touches.

        Returns the lane of each access, the numbers of those that are active and inside the buffer, the indices
        of the latter, and the shape that the accesses have together: (lanes,), or (lanes, vector) for an index
        that is a vector.
        """
        if len(indices) != len(buffer.shape):
            raise self.error(f"{buffer.name} has {len(buffer.shape)} dimensions and got {len(indices)} indices")
        count = self.lanes.count if spread else 1
        active = self.lanes.mask if count == self.lanes.count else np.ones(1, bool)
        lanes = np.arange(count)
        vector = [i.shape[1] for i in indices if i.ndim == 2]
        shape = (count, *vector[:1])
        if vector:
            indices = [i if i.ndim == 2 else i[:, None] for i in indices]
            lanes, active = np.repeat(lanes, vector[0]), np.repeat(active, vector[0])
        flat = [
            (i if i.shape == shape else np.broadcast_to(i, shape)).reshape(-1).astype(np.int64, copy=False)
            for i in indices
        ]
        inside = active
        for index, extent in zip(flat, buffer.shape, strict=True):
            inside = inside & (index.view(np.uint64) < extent)  # what is below 0 is large as well
        picked = inside.nonzero()[0]
        return lanes, picked, [i[picked] for i in flat], shape

    def _gather(self, buffer: Buffer, indices: Sequence[Values], lanes: Values) -> Values:
        """Elements inside the buffer, checked to be written and, for foreign private memory, equal."""
        copies: Values | int = 0
        if buffer.storage.copies > 1:
            if buffer.owner is self.lanes:
                copies = lanes
            else:
                every = np.arange(buffer.storage.copies)[:, None]
                codes = numerics.to_codes(buffer.gather(every, [i[None] for i in indices]), buffer.dtype.scalar)
                self._expect_equal(codes == codes[:1], buffer)
        written = buffer.written(copies, indices)
        if written is not None and not written.all():
            bad = int(np.argmin(written))
            raise self._unwritten(buffer, [int(i[bad]) for i in indices], self._lane_name(int(lanes[bad])))
        return buffer.gather(copies, indices)

    def _outside(self, buffer: Buffer, shape: tuple[int, ...]) -> Values:
        """An array full of what `buffer` reads as outside its bounds."""
        vector = (buffer.dtype.lanes,) if buffer.dtype.lanes > 1 else ()
        result = np.zeros((*shape, *vector), buffer.dtype.as_numpy())
        if buffer in self.safe_values:
            result[...] = numerics.convert(np.asarray(self.safe_values[buffer]), buffer.dtype)
        return result

    # -- regions, by the whole block --------------------------------------------------------------------------

    def read_box(self, buffer: Buffer, starts: Sequence[int], sizes: Sequence[int]) -> Values:
        """A box of elements as a tile; outside the buffer 0, or the buffer's safe value."""
        result = self._outside(buffer, tuple(sizes))
        place, inner, inner_sizes = _clip(buffer, starts, sizes)
        if all(n > 0 for n in inner_sizes):
            written = buffer.box_written(inner, inner_sizes)
            if written is not None and not written.all():
                bad = np.unravel_index(int(np.argmin(written)), written.shape)
                raise self._unwritten(buffer, [a + int(b) for a, b in zip(inner, bad, strict=True)], None)
            copies = buffer.read_box(inner, inner_sizes)
            if len(copies) > 1:
                codes = numerics.to_codes(copies, buffer.dtype.scalar)
                self._expect_equal(codes == codes[:1], buffer)
            result[place] = copies[0]
        return result

    def write_box(self, buffer: Buffer, starts: Sequence[int], tile: Values) -> None:
        """Write a tile of the buffer's dtype; elements outside the buffer are dropped."""
        place, inner, inner_sizes = _clip(buffer, starts, tile.shape[: len(buffer.shape)])
        if all(n > 0 for n in inner_sizes):
            buffer.write_box(inner, tile[place])

    # -- errors -----------------------------------------------------------------------------------------------

    def _lane_name(self, lane: int) -> str | None:
        return self.lanes.name(lane) if self.lanes.count > 1 else None

    def _unwritten(self, buffer: Buffer, index: Sequence[int], lane: str | None) -> InterpreterError:
        return self.error(
            f"{_element(buffer, index)} is read, but nobody wrote it" + (f" ({lane})" if lane else ""),
            found=f"{buffer.name}: {buffer.dtype}{list(buffer.shape)} in scope {buffer.scope}, unwritten there",
            expected="on-chip memory is written before it is read",
            repair=f"T.clear({buffer.name}), T.fill, or a T.copy that covers the element",
        )

    def _expect_equal(self, equal: Values, buffer: Buffer) -> None:
        if not equal.all():
            raise self.error(
                f"{buffer.name} differs between threads, but the whole block reads it as one",
                found=f"{buffer.name} (scope {buffer.scope}) holds different values in different threads",
                expected="operands of tile operators and parallel loops are equal for all threads",
                repair="keep the value in shared memory or in a fragment",
            )

    def _refuse(self, race: Race | None, buffer: Buffer, indices: Sequence[Values]) -> None:
        if race is None:
            return
        index = [int(i[race.element]) for i in indices]
        me, other = self.lanes.name(race.lane), self.lanes.name(race.other)
        raise self.error(
            f"race on {_element(buffer, index)}: {me} {race.what} {other}",
            found=f"two lanes meet at {_element(buffer, index)}",
            expected="lanes run in any order: each writes its own elements and reads no other lane's",
            repair="give each lane its own element, use T.atomic_add, or split the loop in two",
        )


def _element(buffer: Buffer, index: Sequence[int]) -> str:
    return f"{buffer.name}[{', '.join(map(str, index))}]"


def _clip(
    buffer: Buffer, starts: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[slice, ...], list[int], list[int]]:
    """The part of a box that is inside: its place in the tile, its start and size in the buffer."""
    place, inner, inner_sizes = [], [], []
    for start, size, extent in zip(starts, sizes, buffer.shape, strict=True):
        low, high = max(start, 0), min(start + size, extent)
        high = max(low, high)
        place.append(slice(low - start, high - start))
        inner.append(low)
        inner_sizes.append(high - low)
    return tuple(place), inner, inner_sizes
