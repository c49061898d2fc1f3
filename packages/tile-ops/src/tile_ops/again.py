"""Calls that come again: what an implementation did for the first is done for those that differ in nothing but content.

An implementation launches kernels by `Call.run` (or tells `launched`) and says with `offer` that this was all it did: then the
next call of the same operation with such arguments allocates the results and launches them, without the implementation.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from types import FunctionType
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch._C._dynamo.guards import (  # type: ignore[attr-defined]
    TensorGuards,
    _empty_strided_cpu,
    _empty_strided_cuda,
)

from tile_runtime.again import Known, KnownCalls, known_calls
from tile_runtime.native import length_word

from .kernel import Resolved
from .kernel.target import EXECUTION, settings
from .scratch import scratch

#: Bytes: what addresses are multiples of, so that the variant of each kernel is the one of the first call.
ALIGNMENT = 16

Launches = list[tuple[Resolved, tuple[torch.Tensor | None, ...]]]
#: A place among the operands and its bytes, and another such place.
Apart = tuple[int, int, int, int]

#: Where native code counts calls of `changed`, as it does those of kernels.
_COUNTED = ctypes.c_uint64()


@dataclass(frozen=True)
class Offer:
    """What `offer` was told."""

    results: tuple[torch.Tensor, ...]
    temporary: tuple[torch.Tensor, ...]
    scratch: tuple[torch.Tensor, int] | None
    still: Callable[[], bool] | None
    constants: tuple[torch.Tensor, ...]


class _Record(threading.local):
    """What the call of this thread that runs now has launched, and whether that was all."""

    launches: Launches | None = None
    offered: Offer | None = None


_record = _Record()
#: As long as the calls, of all threads, that are recorded.
recording: list[None] = []
#: What sees each call and the guards of operands do not tell of (modes, the profiler), and what it says when it is not there.
WATCHERS: tuple[tuple[Callable[[], object], object], ...] = (
    (torch._C._len_torch_dispatch_stack, 0),
    (torch._C._len_torch_function_stack, 0),
    (torch.autograd._profiler_enabled, False),
)
#: What native code asks for: the guards of operands tell of a dispatch mode, but not of those by which torch traces (of fakes,
#: of proxies), nor of function modes; what the profiler says is also an entry of its module, and so is the level of forward
#: derivatives, as one on tensors with a tangent is refused.
_ENTRIES: list[tuple[dict[Any, Any], str | bytes, object]] = [
    (vars(torch.autograd.profiler), "_is_profiler_enabled", False),
    (vars(forward_ad), "_current_level", -1),
]
_CONDITIONS: list[tuple[Callable[[], object], object]] = []
_NUMBERS: list[tuple[int, int]] = []


def _depth(symbol: str) -> int | None:
    """The address of what in torch's libraries tells how many modes are active; None where there is nothing of this name."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(torch._C.__file__), symbol), ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None


# Asking torch's C++ costs 3 ns, by its Python functions 55, by the entry of its module 20.
if (_function_modes := _depth("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv")) is not None:
    _NUMBERS.append((_function_modes, 0))
else:
    _CONDITIONS.append((torch._C._len_torch_function_stack, 0))
if (_dispatch_modes := _depth("_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv")) is not None:
    _NUMBERS.append((_dispatch_modes, 0))
else:
    _ENTRIES.append((vars(torch.utils._python_dispatch), "_is_in_torch_dispatch_mode", False))


def aligned(*tensors: torch.Tensor | None) -> bool:
    """Whether the address of each that is there is a multiple of ALIGNMENT."""
    return not any(x.data_ptr() % ALIGNMENT for x in tensors if x is not None)


def launched(kernel: Resolved, *tensors: torch.Tensor | None) -> None:
    """A prepared kernel has been launched on these operands."""
    if _record.launches is not None:
        _record.launches.append((kernel, tensors))


def hidden() -> None:
    """A kernel has been launched in a way that does not come again."""
    _record.launches = None


def changed(operand: torch.Tensor) -> None:
    """An operation has written this operand: autograd must know."""
    if not operand.is_inference():
        torch.autograd.graph.increment_version(operand)


def offer(
    *results: torch.Tensor,
    temporary: Sequence[torch.Tensor] = (),
    scratch: tuple[torch.Tensor, int] | None = None,
    still: Callable[[], bool] | None = None,
    constants: Sequence[torch.Tensor] = (),
) -> None:
    """All that this call did was to allocate `results`, which it returns, and `temporary`, to take `scratch` of so many elements,
    and to launch what is recorded; and so will others as long as `still` says so. All are dense; what they hold is what the
    kernels write. A result that is an operand which the operation writes is neither allocated nor returned. `constants`,
    which no kernel writes, are the same for such calls; not those that may be a CUDA graph's, whose memory holds nothing before
    it runs."""
    if any(x.is_cuda for x in constants) and torch.cuda.is_current_stream_capturing():
        return
    _record.offered = Offer(results, tuple(temporary), scratch, still, tuple(constants))


def taken() -> Offer | None:
    """What was offered of the call that runs now, which goes on: the whole is for it to offer, by `offer_whole`."""
    offered, _record.offered = _record.offered, None
    return offered


def offer_whole(*results: torch.Tensor, parts: Sequence[Offer | None], constants: Sequence[torch.Tensor] = ()) -> None:
    """`offer`, where the parts, as they were `taken`, are all that this call did beside allocating `results`."""
    known = [part for part in parts if part is not None and part.scratch is None]
    if len(known) < len(parts):
        return
    stills = [part.still for part in known if part.still is not None]
    offer(
        *results,
        temporary=[x for part in known for x in part.temporary],
        still=(lambda: all(still() for still in stills)) if stills else None,
        constants=[*constants, *(x for part in known for x in part.constants)],
    )


class Again:
    """The calls of an operation that are known, by the shapes of their first operands. `written` are the places of the
    arguments that it writes. Known calls are those of `public`, too, whose first parameters are `parameters`, their arguments,
    with the others at their defaults: native code answers them before Python starts to run it."""

    #: Shapes that are kept, and calls of such shapes; a model has few.
    MOST, MOST_ALIKE = 256, KnownCalls.MOST

    def __init__(
        self, written: Sequence[int] = (), public: FunctionType | None = None, parameters: Sequence[str] = ()
    ) -> None:
        self._written = tuple(written)
        self._known: dict[Any, list[Replay]] = {}
        self._quick: KnownCalls | None = None
        self._public, self._parameters = public, parameters
        self._global: tuple[dict[str, Any], str] | None = None
        #: What a known call gives (nothing: an empty tuple), by native code, else None.
        self.call: Callable[..., Any] = _unknown

    def replay(self, arguments: tuple[Any, ...]) -> Any:
        """The same by Python, where native code cannot be had or has forgotten a call. Modes are for the caller to ask."""
        for known in reversed(self._known.get(_key(arguments), ())):
            if (result := known(arguments)) is not None:
                hidden()  # from the implementation that may be calling
                return result
        return None

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """`function(*arguments)`, which is kept if it offers itself."""
        _record.launches, _record.offered = [], None
        recording.append(None)
        try:
            result = function(*arguments)
            if (offered := _record.offered) is not None:
                written = {id(arguments[i]) for i in self._written}
                offered = replace(offered, results=tuple(x for x in offered.results if id(x) not in written))
                if _same(result, offered.results):
                    replay = Replay.of(arguments, _record.launches, offered, self._written)
                    if replay is not None:
                        self._keep(_key(arguments), replay)
        finally:
            recording.pop()
            _record.launches = _record.offered = None
        return result

    def is_global(self, names: dict[str, Any], name: str) -> None:
        """`call` is also this global of a module, which Python finds 40 ns faster there."""
        self._global = names, name
        names[name] = self.call

    def forget(self) -> None:
        """No call is known."""
        self._known.clear()
        if self._quick is not None:
            self._quick.clear()

    def _keep(self, key: Any, replay: Replay) -> None:
        if self.call is _unknown:
            self._quick = known_calls()
            self.call = _unknown if self._quick is None else self._quick.call
            if self._global is not None:
                self.is_global(*self._global)
            if self._quick is not None and self._public is not None:
                self._quick.enter(self._public, self._parameters)
        if key not in self._known and len(self._known) >= self.MOST:
            self.forget()
        alike = self._known.setdefault(key, [])
        if len(alike) >= self.MOST_ALIKE:
            alike.clear()
        alike.append(replay)
        if self._quick is not None:
            self._quick.keep(replay.known())


def _unknown(*_: Any) -> None:
    """What `Again` asks before it knows any call, and where native code cannot be had."""


def _same(result: Any, offered: tuple[torch.Tensor, ...]) -> bool:
    """Whether the implementation returns what was offered, and not something made of it."""
    given = result if isinstance(result, tuple) else () if result is None else (result,)
    return len(given) == len(offered) and all(x is y for x, y in zip(given, offered))


def _key(arguments: tuple[Any, ...]) -> Any:
    """Not all that a call is known by: `Replay` asks for the rest."""
    first, second = arguments[:2]
    return (first.shape, second.shape) if isinstance(second, torch.Tensor) else first.shape


def _leads(argument: Any) -> bool:
    """Whether native code goes on to the next argument to tell a call."""
    return argument is None or isinstance(argument, torch.Tensor)


def _addresses(operands: Sequence[torch.Tensor | None]) -> list[int]:
    return [0 if x is None else x.data_ptr() for x in operands]


def _bytes(x: torch.Tensor) -> int:
    """From its first element's beginning to its last one's end."""
    if not x.numel():
        return 0
    return (sum((size - 1) * stride for size, stride in zip(x.shape, x.stride())) + 1) * x.element_size()


def _beginnings(pool: Sequence[torch.Tensor | None]) -> dict[int, int]:
    """The places of tensors by their addresses, those of several left out: a prepared kernel that was given a view of one which
    begins where that does looks at nothing else of it."""
    addresses = [x.data_ptr() if x is not None and x.numel() else 0 for x in pool]
    return {address: i for i, address in enumerate(addresses) if address and addresses.count(address) == 1}


def _are_apart(addresses: Sequence[int], pairs: Sequence[Apart]) -> bool:
    """Whether the operands of no pair overlap."""
    return all(
        addresses[i] + length_i <= addresses[j] or addresses[j] + length_j <= addresses[i]
        for i, length_i, j, length_j in pairs
    )


class Replay:
    """A call: guards of its operands' types, shapes, strides, devices and of torch's modes; its other arguments; the results
    and temporaries to allocate; and the kernels, each with the places of its operands among arguments and allocations. What is
    `written` of the operands is apart from the others."""

    def __init__(
        self,
        leading: int,
        written: Sequence[int],
        apart: Sequence[Apart],
        same: tuple[tuple[int, int], ...],
        arguments: tuple[Any, ...],
        made: list[torch.Tensor],
        nothing: tuple[torch.Tensor | None, ...],
        steps: Sequence[tuple[Resolved, tuple[int, ...]]],
        offer: Offer,
    ) -> None:
        self._leading, self._same, self._rest = leading, same, arguments[leading:]
        self._written, self._apart = written, apart
        left_out = {i for i, _ in same}
        self._guarded = [i for i, x in enumerate(arguments[:leading]) if x is not None and i not in left_out]
        self._guards = TensorGuards(
            *(arguments[i] for i in self._guarded), dynamic_dims_sizes=None, dynamic_dims_strides=None
        )
        self._shapes = [None if x is None else tuple(x.shape) for x in arguments[:leading]]
        self._differentiable = any(x is not None and x.requires_grad for x in arguments[:leading])
        self._results, self._nothing, self._still = len(offer.results), nothing, offer.still
        self._made = [_maker(x) for x in made]
        if offer.scratch is not None:
            self._made.append((scratch, (offer.scratch[1],)))
        self._steps = steps
        self._operands = [(kernel, itemgetter(*places)) for kernel, places in steps]
        self._settings = settings() if arguments[0].is_cpu else None

    @classmethod
    def of(
        cls,
        arguments: tuple[Any, ...],
        launches: Launches | None,
        offer: Offer,
        written: Sequence[int] = (),
    ) -> Replay | None:
        """None where an operand follows an argument that is neither an operand nor None, what is written overlaps with another
        one, or kernels took anything else than operands and allocations."""
        count = next((i for i, x in enumerate(arguments) if not _leads(x)), len(arguments))
        if any(isinstance(x, torch.Tensor) for x in arguments[count:]) or not launches:
            return None
        made = [*offer.results, *offer.temporary]
        if not aligned(*arguments[:count]) or any(i >= count for i in written):
            return None
        pool = [*arguments[:count], *made] + ([] if offer.scratch is None else [offer.scratch[0]])
        addresses, lengths = _addresses(arguments[:count]), [0 if x is None else _bytes(x) for x in pool]
        apart = [
            (i, lengths[i], j, lengths[j])
            for i in written
            for j, x in enumerate(arguments[:count])
            if i != j and x is not None
        ]
        if not _are_apart(addresses, apart):
            return None
        places = {id(x): i for i, x in enumerate(pool)}
        beginnings = _beginnings(pool)
        present = [(i, x) for i, x in enumerate(arguments[:count]) if x is not None]
        same = tuple((i, places[id(x)]) for i, x in present if places[id(x)] != i)
        constant = {x.data_ptr() for x in offer.constants}
        nothing: list[torch.Tensor | None] = []  # constants, and what kernels take for an operand that is not there
        steps = []
        for kernel, operands in launches:
            for x in operands:
                if id(x) in places:
                    continue
                if x is not None and x.numel() and x.data_ptr() in beginnings:
                    place = places[id(x)] = beginnings[x.data_ptr()]
                    if _bytes(x) > lengths[place]:  # a result that is a part of what a kernel writes, say
                        return None
                    continue
                if x is not None and x.numel() and x.data_ptr() not in constant:
                    return None
                places[id(x)] = len(pool) + len(nothing)
                # An empty one may be a view, of a result even, and keep what that keeps.
                nothing.append(x if x is None or x.numel() else torch.empty(x.shape, dtype=x.dtype, device=x.device))
            steps.append((kernel, tuple(places[id(x)] for x in operands)))
        return cls(count, written, apart, same, arguments, made, tuple(nothing), steps, offer)

    def known(self) -> Known:
        """The same for native code."""
        conditions, entries = [*_CONDITIONS], [*_ENTRIES]
        if self._differentiable:
            conditions.append((torch.is_grad_enabled, False))
        environment, key = EXECUTION
        if self._settings is not None and key in environment:
            conditions.append((settings, self._settings))
        elif self._settings is not None:
            entries.append((environment, key, None))
        if self._still is not None:
            conditions.append((self._still, True))
        noted = [(changed, ctypes.addressof(_COUNTED), (place,)) for place in self._written]
        return Known(
            shapes=self._shapes,
            others=self._rest,
            same=self._same,
            check=self._guards.check,
            guarded=self._guarded,
            conditions=conditions,
            entries=entries,
            numbers=_NUMBERS,
            words=[(length_word(recording), 0)],  # a call within one that is recorded must be seen
            made=self._made,
            results=self._results,
            held=self._nothing,
            steps=[*((kernel.kernel, kernel.counter, places) for kernel, places in self._steps), *noted],
            alignment=ALIGNMENT,
            apart=self._apart,
        )

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        """The results; None if this is another call."""
        operands = arguments[: self._leading]
        if any((x is None) is not (shape is None) for x, shape in zip(operands, self._shapes)):
            return None
        if self._same and any(arguments[i] is not arguments[j] for i, j in self._same):
            return None
        if not self._guards.check(*(operands[i] for i in self._guarded)) or arguments[self._leading :] != self._rest:
            return None
        if self._differentiable and torch.is_grad_enabled():
            return None
        if self._settings is not None and settings() != self._settings:
            return None
        if self._still is not None and not self._still():
            return None
        addresses = _addresses(operands)
        if any(address % ALIGNMENT for address in addresses) or not _are_apart(addresses, self._apart):
            return None
        made = [make(*one) for make, one in self._made]
        pool: tuple[torch.Tensor | None, ...] = (*operands, *made, *self._nothing)
        for kernel, places in self._operands:
            kernel(*places(pool))
        for place in self._written:
            changed(operands[place])
        return made[0] if self._results == 1 else tuple(made[: self._results])


def _maker(like: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    """What makes a dense tensor like this one, of undefined content: a function and its arguments."""
    shape, dtype, device = tuple(like.shape), like.dtype, like.device
    if like.is_cpu:
        return _empty_strided_cpu, (shape, like.stride(), dtype)
    if like.is_cuda and torch.cuda.device_count() == 1:  # that one is current
        return _empty_strided_cuda, (shape, like.stride(), dtype)
    return partial(torch.empty_strided, shape, like.stride(), dtype=dtype, device=device), ()
