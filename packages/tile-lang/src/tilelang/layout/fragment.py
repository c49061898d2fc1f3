"""`Fragment`: which thread holds each element of a register tile, and in which of its registers.

Paper, section 4.1: a layout with two outputs, f: K^n -> K^2 (thread, local index), and four primitives that build a
block's fragment from an instruction's: repeat, repeat_on_thread, replicate, condense. An element may be held by
several threads: `replicate` copies, numbered by a further input `rep`. Any extents, waves of 32 or 64 threads, and
tiles that leave threads or registers empty are allowed.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.layout.evaluation import as_shape, contiguous_run, first_collision, linear_index, over_tile, point
from tilelang.layout.expr import REPLICA, Const, IndexExpr, Json, Placeholder, as_expr, expr_from_json, placeholders
from tilelang.layout.expr import substitute as substituted
from tilelang.layout.fit import expr_of_values
from tilelang.layout.layout import Layout, repeat_counts, reshaped_indices
from tilelang.layout.simplify import simplify

_REP = Placeholder(REPLICA)


class Fragment:
    """A register tile distributed over threads. Immutable; equal if every element is held in the same places.

    Either `forward_fn(i, j[, rep])` returns `(thread, local index)`, or `forward_thread_fn(i, j[, rep])` and
    `forward_index_fn(i, j)` return one each. `rep` is passed if `replicate > 1`. Without an index function the
    elements of each thread are numbered in row-major order. `threads` is the size of the thread group if it is
    larger than the highest thread that holds something.

    Raises TypeError if a function does not take the indices or return integer expressions, ValueError if a thread
    or register number is negative or `threads` is too small.
    """

    def __init__(
        self,
        shape: Any,
        forward_fn: Callable[..., Any] | None = None,
        forward_thread_fn: Callable[..., Any] | None = None,
        replicate: int = 1,
        forward_index_fn: Callable[..., Any] | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        extents = as_shape(shape)
        (copies,) = as_shape(replicate, "number of replicas")
        variables = placeholders(len(extents))
        if forward_fn is not None:
            if forward_thread_fn is not None or forward_index_fn is not None:
                raise TypeError(
                    "A Fragment was given forward_fn together with forward_thread_fn or forward_index_fn, which say "
                    "the same. Give either forward_fn, or the other two."
                )
            both = _call(forward_fn, variables, copies)
            if not isinstance(both, (tuple, list)) or len(both) != 2:
                raise TypeError(
                    f"forward_fn of a Fragment must return (thread, local index), but it returned {both!r}. "
                    "Return a pair."
                )
            thread, index = _single(both[0], "thread"), _single(both[1], "local index")
        elif forward_thread_fn is not None:
            thread = _single(_call(forward_thread_fn, variables, copies), "thread")
            if forward_index_fn is not None:
                index = _single(_call(forward_index_fn, variables, 1), "local index")
            else:
                index = _numbered_per_thread(thread, extents)
        else:
            raise TypeError(
                "A Fragment needs to know which thread holds an element, but neither forward_fn nor "
                "forward_thread_fn was given. Pass forward_thread_fn=lambda i, j: ..."
            )
        self._set(extents, thread, index, copies, threads)
        if forward_fn is None and forward_index_fn is None and copies > 1:
            fault = self.condense_rep_var().cover_fault()
            if fault is not None:
                raise ValueError(
                    f"The fragment of shape {extents} has no forward_index_fn, and numbering the elements of each "
                    f"thread in order fails across replicas. {fault} Pass forward_index_fn=lambda i, j: ..."
                )
        for what, values in (("thread", self._threads_of), ("local index", self._indices_of)):
            if values.min() >= 0:
                continue
            where = np.unravel_index(int(values.argmin()), values.shape)[-len(extents) :]
            raise ValueError(
                f"The fragment puts element {point(where)} at {what} {int(values.min())}, but numbers start at 0. "
                "Add an offset to the function."
            )
        if threads is not None and threads <= self._threads_of.max():
            raise ValueError(
                f"The fragment uses thread {int(self._threads_of.max())}, but threads={threads} was given. "
                f"Give at least {int(self._threads_of.max()) + 1}, or leave it out."
            )

    @classmethod
    def from_exprs(
        cls, shape: Any, thread: IndexExpr, index: IndexExpr, replicate: int = 1, threads: int | None = None
    ) -> Fragment:
        """A fragment from expressions in `placeholders(rank)` and `rep`; values are not checked."""
        fragment = cls.__new__(cls)
        fragment._set(as_shape(shape), thread, index, replicate, threads)
        return fragment

    def _set(
        self, shape: tuple[int, ...], thread: IndexExpr, index: IndexExpr, replicate: int, threads: int | None
    ) -> None:
        self._shape = shape
        self._variables = placeholders(len(shape))
        self._replicate = replicate
        self._extents: Mapping[str, int] = {v.name: n for v, n in zip(self._variables, shape, strict=True)}
        self._rep_extents: Mapping[str, int] = {REPLICA: replicate, **self._extents}
        self._thread = simplify(thread, self._rep_extents)
        self._index = simplify(index, self._extents)
        self._given_threads = threads

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the logical index, in elements."""
        return self._shape

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The same as `shape`."""
        return self._shape

    @property
    def thread_expr(self) -> IndexExpr:
        """The thread, in `placeholders(rank)` and `rep`."""
        return self._thread

    @property
    def index_expr(self) -> IndexExpr:
        """The register, in `placeholders(rank)`."""
        return self._index

    @property
    def replicate_size(self) -> int:
        """Copies of each element."""
        return self._replicate

    @cached_property
    def thread_extent(self) -> int:
        """Threads of the group: one more than the highest in use, or what `threads=` said."""
        return self._given_threads or int(self._threads_of.max()) + 1

    @property
    def num_threads(self) -> int:
        """The same as `thread_extent`."""
        return self.thread_extent

    @cached_property
    def local_size(self) -> int:
        """Registers of each thread, in elements."""
        return int(self._indices_of.max()) + 1

    @property
    def registers(self) -> int:
        """The same as `local_size`."""
        return self.local_size

    @cached_property
    def _threads_of(self) -> npt.NDArray[np.int64]:
        """Threads by (rep, *element)."""
        return over_tile(self._thread, self._rep_extents)

    @cached_property
    def _indices_of(self) -> npt.NDArray[np.int64]:
        """Registers by element."""
        return over_tile(self._index, self._extents)

    def _named(self, indices: Sequence[Any]) -> dict[str, Any]:
        if len(indices) != len(self.shape):
            raise ValueError(
                f"A fragment of shape {self.shape} was called with {len(indices)} indices; "
                f"give {len(self.shape)}, one per dimension."
            )
        return dict(zip(self._extents, indices, strict=True))

    def thread(self, *indices: Any, rep: Any = 0) -> Any:
        """The thread that holds copy `rep` of an element; ints, numpy arrays and expressions are accepted."""
        return self._thread.evaluate({**self._named(indices), REPLICA: rep})

    def index(self, *indices: Any) -> Any:
        """The register that holds an element, the same in each of its threads."""
        return self._index.evaluate(self._named(indices))

    def __call__(self, *indices: Any, rep: Any = 0) -> tuple[Any, Any]:
        return self.thread(*indices, rep=rep), self.index(*indices)

    def map_forward_thread(self, indices: Sequence[Any], rep: Any = 0) -> Any:
        """`thread` on a sequence of indices."""
        return self.thread(*indices, rep=rep)

    def map_forward_index(self, indices: Sequence[Any]) -> tuple[Any]:
        """`index` on a sequence of indices, as a tuple like a layout's."""
        return (self.index(*indices),)

    def owners(self, *indices: int) -> tuple[int, ...]:
        """The threads that hold an element, ascending, each once."""
        copies = self.thread(*indices, rep=np.arange(self._replicate))
        return tuple(np.unique(copies).tolist())

    def repeat(self, repeats: Any, repeat_on_thread: bool = False, lower_dim_first: bool = True) -> Fragment:
        """Tile the fragment: `repeats[d]` copies along dimension d, each in further registers of the same threads.

        `index' = index(x % shape) + local_size * copy`. With `repeat_on_thread` each copy goes to further threads
        instead: `thread' = thread(x % shape) + thread_extent * copy`. Copies are numbered with the last dimension
        fastest, or the first if `lower_dim_first` is False.
        """
        times = repeat_counts(repeats, self.shape)
        inside = {v.name: v % n for v, n in zip(self._variables, self.shape, strict=True)}
        tiles = [v // n for v, n in zip(self._variables, self.shape, strict=True)]
        order = slice(None) if lower_dim_first else slice(None, None, -1)
        copy = as_expr(linear_index(tiles[order], times[order]))
        thread, index = substituted(self._thread, inside), substituted(self._index, inside)
        if repeat_on_thread:
            thread = thread + copy * self.thread_extent
        else:
            index = index + copy * self.local_size
        shape = tuple(n * t for n, t in zip(self.shape, times, strict=True))
        threads = self.thread_extent * (math.prod(times) if repeat_on_thread else 1)
        return Fragment.from_exprs(shape, thread, index, self._replicate, threads)

    def repeat_on_thread(self, repeats: Any, lower_dim_first: bool = True) -> Fragment:
        """`repeat` over further threads: more warps, a larger tile, as many registers."""
        return self.repeat(repeats, repeat_on_thread=True, lower_dim_first=lower_dim_first)

    def replicate(self, n: int) -> Fragment:
        """The tile held `n` times: by this fragment's threads, and again by each further group of as many."""
        (times,) = as_shape(n, "number of replicas")
        old = self._replicate
        thread = substituted(self._thread, {REPLICA: _REP % old}) + _REP // old * self.thread_extent
        return Fragment.from_exprs(self.shape, thread, self._index, old * times, self.thread_extent * times)

    def condense_rep_var(self) -> Fragment:
        """Drop replicas that repeat another: the same places, with `rep` numbering only different ones."""
        per_replica = self._threads_of.reshape(self._replicate, -1)
        _, first = np.unique(per_replica, axis=0, return_index=True)
        if len(first) == self._replicate:
            return self
        kept = expr_of_values(np.sort(first).astype(np.int64), [_REP])
        thread = substituted(self._thread, {REPLICA: kept})
        return Fragment.from_exprs(self.shape, thread, self._index, len(first), self._given_threads)

    def condense(self) -> Fragment:
        """The same as `condense_rep_var`."""
        return self.condense_rep_var()

    def reshape(self, shape: Any) -> Fragment:
        """The same places under another logical shape of as many elements (row-major renumbering)."""
        new = as_shape(shape)
        named = dict(zip(self._extents, reshaped_indices(new, self.shape), strict=True))
        thread, index = substituted(self._thread, named), substituted(self._index, named)
        return Fragment.from_exprs(new, thread, index, self._replicate, self._given_threads)

    def cover_fault(self) -> str | None:
        """Why the fragment is not a proper distribution, as a sentence; None if it is one.

        Proper: each element is held by exactly `replicate_size` threads, and each (thread, register) holds at most
        one element. Threads and registers may stay empty.
        """
        return self._fault

    @cached_property
    def _fault(self) -> str | None:
        slots = (self._threads_of * self.local_size + self._indices_of).ravel()
        clash = first_collision(slots)
        if clash is None:
            return None
        shape = (self._replicate, *self.shape)
        (rep_a, *a), (rep_b, *b) = (np.unravel_index(c, shape) for c in clash)
        thread, register = divmod(int(slots[clash[0]]), self.local_size)
        if a == b:
            return (
                f"Replicas {int(rep_a)} and {int(rep_b)} of element {point(a)} are both in thread {thread}, so it "
                f"is held by fewer than {self._replicate} threads. Call condense_rep_var(), or make the thread "
                "depend on rep."
            )
        return (
            f"Elements {point(a)} and {point(b)} are both in register {register} of thread {thread}. "
            "Give them different threads or registers."
        )

    def covers(self) -> bool:
        """Whether each element is held exactly `replicate_size` times and no register holds two elements."""
        return self.cover_fault() is None

    def inverse(self) -> Layout:
        """The layout (thread, register) -> logical index; empty registers map to -1, ..., -1.

        ValueError with `cover_fault()` if a register holds two elements.
        """
        fault = self.condense_rep_var().cover_fault()
        if fault is not None:
            raise ValueError(f"The fragment of shape {self.shape} has no inverse. {fault}")
        places = (self.thread_extent, self.local_size)
        slots = self._threads_of * self.local_size + self._indices_of
        logical = np.full((len(self.shape), math.prod(places)), -1, dtype=np.int64)
        for copy in slots.reshape(self._replicate, -1):
            logical[:, copy] = np.indices(self.shape).reshape(len(self.shape), -1)
        variables = placeholders(2)
        return Layout.from_exprs(places, [expr_of_values(table.reshape(places), variables) for table in logical])

    def vector_width(self, axis: int = -1, limit: int | None = None) -> int:
        """Neighbours along `axis` that each thread holds in consecutive, aligned registers: a power of two."""
        # Threads lie a power of two apart, larger than any run, so that no run passes from one thread to the next.
        pitch = 1 << max(self.local_size, *self.shape).bit_length()
        slots = self._threads_of * pitch + self._indices_of
        return contiguous_run(slots, axis if axis < 0 else axis + 1, limit)

    @cached_property
    def _placement(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Threads with the replicas in ascending order, and registers: equal exactly if the fragments are."""
        return np.sort(self._threads_of, axis=0), self._indices_of

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fragment):
            return NotImplemented
        if self is other:
            return True
        if (self.shape, self._replicate) != (other.shape, other._replicate):
            return False
        if self.thread_extent != other.thread_extent:
            return False
        if (self._thread.key, self._index.key) == (other._thread.key, other._index.key):
            return True
        return all(np.array_equal(a, b) for a, b in zip(self._placement, other._placement, strict=True))

    def __hash__(self) -> int:
        corners = itertools.product(*((0, n - 1) for n in self.shape))
        places = tuple((self.owners(*corner), self.index(*corner)) for corner in corners)
        return hash((self.shape, self._replicate, places))

    def to_json(self) -> Json:
        """Plain values that `from_json` reads back."""
        return {
            "kind": "fragment",
            "shape": list(self.shape),
            "thread": self._thread.to_json(),
            "index": self._index.to_json(),
            "replicate": self._replicate,
            "threads": self.thread_extent,
        }

    @classmethod
    def from_json(cls, data: Json) -> Fragment:
        """The fragment that `to_json` wrote; ValueError if `data` is something else."""
        try:
            if data["kind"] != "fragment":
                raise KeyError
            thread, index = expr_from_json(data["thread"]), expr_from_json(data["index"])
            return cls.from_exprs(data["shape"], thread, index, data["replicate"], data["threads"])
        except (KeyError, TypeError):
            raise ValueError(
                f"Expected a stored fragment, but {data!r} was found. Write it with Fragment.to_json()."
            ) from None

    def __repr__(self) -> str:
        return (
            f"Fragment({self.shape}, ({', '.join(self._extents)}) -> thread {self._thread}, index {self._index}, "
            f"replicate={self._replicate}, threads={self.thread_extent}, registers={self.local_size})"
        )


def _call(function: Callable[..., Any], variables: tuple[Placeholder, ...], replicate: int) -> Any:
    """Call an index function; it gets the replica's number if there are several, or if it insists on one more."""
    arguments: tuple[Any, ...] = variables
    if replicate > 1:
        arguments = (*variables, _REP)
    else:
        try:
            inspect.signature(function).bind(*variables)
        except TypeError:
            arguments = (*variables, Const(0))
        except ValueError:
            pass  # a builtin without a signature: just call it
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        names = ", ".join(v.name for v in variables) + (", rep" if replicate > 1 else "")
        raise TypeError(
            f"An index function of a Fragment with {len(variables)} dimensions and replicate={replicate} must take "
            f"({names}). Change its arguments."
        ) from None
    except ValueError:
        pass
    return function(*arguments)


def _single(value: Any, what: str) -> IndexExpr:
    """One expression; a list of one is accepted as upstream does."""
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise TypeError(
                f"A Fragment's {what} must be one number, but {len(value)} were returned. "
                "Combine them into one, row-major."
            )
        value = value[0]
    return as_expr(value)


def _numbered_per_thread(thread: IndexExpr, shape: tuple[int, ...]) -> IndexExpr:
    """Registers in row-major order among the elements of each thread (seen in replica 0)."""
    variables = placeholders(len(shape))
    extents = {v.name: n for v, n in zip(variables, shape, strict=True)}
    owners = over_tile(substituted(thread, {REPLICA: Const(0)}), extents).ravel()
    order = np.argsort(owners, kind="stable")
    ranked = owners[order]
    first = np.searchsorted(ranked, ranked)
    registers = np.empty(len(owners), dtype=np.int64)
    registers[order] = np.arange(len(owners)) - first
    return expr_of_values(registers.reshape(shape), variables)
