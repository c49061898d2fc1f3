"""How a function on tensors becomes an operator of `torch.ops.tile_ops`.

`torch.library.custom_op` says the same in fewer words, but passes every call through four functions of Python (29 us of a
call, where this takes 7, and 66 where autograd records it, where this takes 10: benchmarks/operators.py --host). Here torch
calls the implementation itself, and where nothing would come between, an eager call does so without torch.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.autograd.profiler as profiler
from torch._functorch.utils import enable_single_level_autograd_function

from .again import WATCHERS, Again, changed
from .autocast import KEYS, Rule, converted, floats
from .errors import WrongDevice, WrongShape
from .kernel.target import device_of
from .operands import refuse_other_types

_LIBRARY = torch.library.Library("tile_ops", "FRAGMENT")
_AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)

_BELOW_AUTOGRAD = torch._C._after_autograd_keyset
#: Where torch notes which tensors are views.
_VIEWS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)


#: Recorded calls in turn that native code did not know, after which it is asked together with what else may stand between: what
#: was begun for one of them (5 us) is in vain.
MOST_MISSED = 8


class _Unknown(Exception):
    """Such a call."""


class _Dispatching(threading.local):
    """The keys of the call that torch's dispatcher makes now, for the function that records it."""

    keys: Any = None


_dispatching = _Dispatching()


class Operation:
    """The operator `tile_ops::name`; called as a function, it takes its arguments by position. One without a result gives None or
    an empty tuple.

    An operator that changes no operand has a backward, the one that `register_autograd` gives, else one that raises
    RuntimeError. A call without an operand that requires a gradient passes autograd by. One that writes an operand refuses
    such operands, as torch's `out=` does.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], mutates: Sequence[str], public: FunctionType | None
    ) -> None:
        self._name = f"tile_ops::{name}"
        schema = torch.library.infer_schema(function, mutates_args=tuple(mutates))
        _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        parameters = list(inspect.signature(function).parameters)
        written = [parameters.index(operand) for operand in mutates]
        self._function = _counting(function, written) if mutates else function
        self._mutates = bool(mutates)
        #: As of MOST_MISSED.
        self._missed = MOST_MISSED if mutates else 0
        #: `again.call(*arguments)`, where `traced()` is false, is the fast way to a result: None for calls that it does not know.
        self.again = Again(written, public, parameters)
        #: The calls that come by torch's dispatcher, compiled graphs' among them: tensors have other keys there.
        self._dispatched = Again(written)
        # For all devices: which ones there are kernels for is for the target to say (WrongDevice).
        _LIBRARY.impl(name, self._implementation, "CompositeExplicitAutograd")
        self._overload: Any = getattr(torch.ops.tile_ops, name).default
        if not mutates:
            self.register_autograd(self._refuse, setup_context=_keep_nothing)
            _LIBRARY.impl(name, self._differentiated, "Autograd", with_keyset=True)
            torch.library.register_vmap(self._name, self._one_by_one, lib=_LIBRARY)

    def __call__(self, *arguments: Any) -> Any:
        if traced():
            return self._overload(*arguments)
        # A function mode would see that the operand is asked.
        if _records() and type(arguments[0]) in _TENSORS and not _functions() and arguments[0].requires_grad:
            return self.recorded(arguments)
        known = self.again.call(*arguments)
        return self.unknown(arguments) if known is None else known

    def recorded(self, arguments: tuple[Any, ...]) -> Any:
        """A call that autograd records: if native code knows it, nothing else need be asked."""
        if self._missed < MOST_MISSED and not (profiler._is_profiler_enabled or _transforms()):
            try:
                result = self._known(*arguments)
                self._missed = 0
                return result
            except _Unknown:
                self._missed += 1
        return self.unknown(arguments)

    def unknown(self, arguments: tuple[Any, ...]) -> Any:
        """A call that native code does not know, or has not been asked for. Raises WrongType, too."""
        try:
            if _compiling():
                return self._overload(*arguments)
            if forward_ad._current_level >= 0:
                self._refuse_tangents(arguments)
            if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
                if self._mutates:
                    raise RuntimeError(
                        f"{self._name} writes an operand and has no backward; call it under torch.no_grad()"
                    )
                return self._recorded(*arguments) if _alone(arguments) else self._overload(*arguments)
            if not _watched() and (known := self.again.replay(arguments)) is not None:
                return known
            if _alone(arguments):
                return self.again.run(self._function, arguments)
            if _transforms() or torch._C._len_torch_function_stack() or not all(map(_plain, arguments)):
                return self._overload(*arguments)  # what comes of these operands may require gradients
            with torch._C._AutoDispatchBelowAutograd():
                return self._overload(*arguments)
        except (AttributeError, RuntimeError, TypeError):
            refuse_other_types(self._name.removeprefix("tile_ops::"), self._function, arguments)
            raise

    def _implementation(self, *arguments: Any) -> Any:
        """What torch's dispatcher calls."""
        known = self._dispatched.call(*arguments)
        if known is None:  # as under the profiler, which native code refuses
            known = self._dispatched.replay(arguments)
        if known is None:
            return self._dispatched.run(self._function, arguments)
        return None if isinstance(known, tuple) and not known else known

    def _differentiated(self, keys: Any, *arguments: Any) -> Any:
        """What torch's dispatcher calls for autograd, under transforms of torch.func for each of their levels."""
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
            _dispatching.keys = keys
            with enable_single_level_autograd_function():
                return self._redispatched(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return self._overload.redispatch(keys & _BELOW_AUTOGRAD, *arguments)

    def _one_by_one(self, info: Any, places: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        """What torch.vmap calls: `places` are the dimensions of samples; those of the results come first."""
        if not info.batch_size:
            raise WrongShape(f"{self._name.removeprefix('tile_ops::')}: torch.vmap over a dimension of size 0")
        results = [
            self(*(x if place is None else x.select(place, i) for x, place in zip(arguments, places)))
            for i in range(info.batch_size)
        ]
        if isinstance(results[0], tuple):
            return tuple(map(torch.stack, zip(*results))), (0,) * len(results[0])
        return torch.stack(results), 0

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` gives empty results of the right shapes, types and strides. Operands on several devices are refused:
        torch sends a call on a tensor of the CPU and one of "meta" here, and would return memory that nothing wrote."""

        def fake(*arguments: Any) -> Any:
            try:
                device_of(*(x for x in arguments if isinstance(x, torch.Tensor)))
            except WrongDevice as error:
                raise WrongDevice(f"{self._name.removeprefix('tile_ops::')}: {error}") from None
            return function(*arguments)

        torch.library.register_fake(self._name, fake, lib=_LIBRARY)
        return function

    def register_autocast(self, rule: Rule = floats) -> None:
        """Under autocast operands get the types that the rule says, of the one that it asks for there,
        `torch.get_autocast_dtype`: `torch.library.register_autocast` knows one type for all. The operator whose calls these are
        has the rule, too: `explain` reads it."""
        for device, key in KEYS.items():
            _LIBRARY.impl(self._name, self._converting(rule, device), key)

    def _converting(self, rule: Rule, device: str) -> Callable[..., Any]:
        names = list(inspect.signature(self._function).parameters)

        def convert(*arguments: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS):
                return self._overload(*converted(rule, dict(zip(names, arguments)), device).values())

        return convert

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., None]) -> None:
        """As `torch.library.register_autograd`, whose function torch.func's transforms refuse."""

        # Each keeps what the backward needs itself: a `setup_context` of its own autograd would call beside it (1 us).
        def known(ctx: Any, *arguments: Any) -> Any:
            result = self.again.call(*arguments)
            if result is None:
                raise _Unknown
            setup_context(ctx, arguments, result)
            return result

        def alone(ctx: Any, *arguments: Any) -> Any:
            result = self.again.call(*arguments)
            if result is None:
                result = _unattached(self.again.run(self._function, arguments))
            else:
                self._missed = 0
            setup_context(ctx, arguments, result)
            return result

        def redispatched(ctx: Any, *arguments: Any) -> Any:
            keys = _dispatching.keys & _BELOW_AUTOGRAD
            # Of nested transforms the next one records, too: an `autograd.Function` has switched that off.
            with torch._C._AutoDispatchBelowAutograd(), torch.set_grad_enabled(_transforms() is not None):
                result = _unattached(self._overload.redispatch(keys, *arguments))
            setup_context(ctx, arguments, result)
            return result

        self._known = self._recording(known, backward)
        #: A call where nothing else would come between (`_alone`), without the dispatcher's way there.
        self._recorded = self._recording(alone, backward)
        self._redispatched = self._recording(redispatched, backward)

    def _recording(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
        """`forward`, as autograd records it."""
        function = type(
            self._name.replace("::", "_"),
            (torch.autograd.Function,),
            {"forward": staticmethod(forward), "backward": staticmethod(backward)},
        )
        # The method of a node that autograd calls: torch's own would look for `backward` each time, and for `vjp` (1 us).
        function._backward_cls.apply = backward  # type: ignore[attr-defined]
        # `function.apply` asks whether a transform of torch.func is active (28 us): `_alone` has asked, and torch's dispatcher
        # calls for each level.
        apply: Any = vars(torch._C._FunctionBase)["apply"]
        bound: Callable[..., Any] = apply.__get__(None, function)
        return bound

    def _refuse_tangents(self, arguments: tuple[Any, ...]) -> None:
        """torch would give a result without a tangent, as if it did not depend on the operand."""
        if any(isinstance(x, torch.Tensor) and _has_tangent(x) for x in arguments):
            raise RuntimeError(
                f"{self._name} has no forward derivative (torch.func.jvp, jacfwd, forward_ad); call it on tensors without a "
                "tangent: x.detach(), or where it has a backward, use torch.autograd.grad"
            )

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError(f"{self._name} has no backward; call it on tensors that require no gradient: x.detach()")


def _has_tangent(x: torch.Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(x).tangent is not None
    except RuntimeError:  # within vmap torch cannot tell: torch.func.hessian is such a call
        return True


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """The context of an operator without backward."""


def _unattached(result: Any) -> Any:
    """Results that are views, of what the implementation made, as tensors of their own: autograd would refuse to let a user
    change a view that its function returned."""
    if isinstance(result, tuple):
        return tuple(map(_unattached, result))
    if isinstance(result, torch.Tensor) and result._is_view():
        with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(_VIEWS):
            return result.view_as(result)
    return result


#: Types of tensors that have no `__torch_dispatch__` of their own.
_TENSORS = {torch.Tensor, torch.nn.Parameter}
#: What else stands between a call and its implementation (beside `again.WATCHERS`), each false where it does not.
_autocast, _transforms = torch._C._is_any_autocast_enabled, torch._C._functorch.peek_interpreter_stack
_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_tracing = torch._C._get_tracing_state
_Tensor = torch.Tensor
_records = torch.is_grad_enabled
#: Whether torch.compile or torch.export traces.
_compiling = torch.compiler.is_compiling
#: Whether torch.compile reads this code instead of running it.
traced = torch.compiler.is_dynamo_compiling


_modes, _functions, _profiled = (watcher for watcher, _ in WATCHERS)  # in the order of `again.WATCHERS`


def _watched() -> bool:
    """Whether something sees each call that the guards of operands do not tell of."""
    return bool(_modes() or _functions() or _profiled())


def _alone(arguments: tuple[Any, ...]) -> bool:
    """Whether torch's dispatcher would do nothing but call the implementation, with these very operands: no mode is active (those
    of torch.export and FakeTensor are modes), no autocast, vmap, tracing or profiler, and no operand is a subclass, what a
    transform of torch.func left behind, on "meta", or a view that stands for other numbers than memory holds."""
    if _watched() or _autocast() or _transforms() or _tracing():
        return False
    for x in arguments:
        if x is None:
            continue
        if isinstance(x, _Tensor):
            if type(x) not in _TENSORS or _wrapped(x) or x.is_meta or x.is_neg() or x._is_zerotensor():
                return False
        elif isinstance(x, (list, tuple)):
            return False
    return True


def _plain(argument: Any) -> bool:
    """Whether an argument holds no other tensor: as a subclass may, or one that torch.func wraps, or a sequence."""
    if isinstance(argument, _Tensor):
        return type(argument) in _TENSORS and not _wrapped(argument)
    return not isinstance(argument, (list, tuple))


def _counting(function: Callable[..., Any], written: Sequence[int]) -> Callable[..., Any]:
    """`function`, after which autograd knows that these operands have changed."""

    @wraps(function)
    def implementation(*arguments: Any) -> Any:
        result = function(*arguments)
        for position in written:
            changed(arguments[position])
        return result

    return implementation


def operation(
    name: str, *, mutates: Sequence[str] = (), public: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Operation]:
    """Decorates the implementation of `tile_ops::name`: annotated, positional; `mutates` names operands it writes.

    `public` is a function whose first parameters are the implementation's, and which with the others at their defaults does
    nothing but call it: of such calls those that are known are answered before Python runs it."""
    assert public is None or isinstance(public, FunctionType)
    return lambda function: Operation(name, function, mutates, public)
