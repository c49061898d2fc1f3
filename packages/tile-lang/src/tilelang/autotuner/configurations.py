"""The configurations to choose from, as a list of dicts, whatever form the user gave them in."""

from __future__ import annotations

import enum
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilelang.errors import BadConfigurations

Config = dict[str, Any]


def configurations(configs: Any, names: Sequence[str]) -> list[Config]:
    """The list that `configs` stands for: a list of dicts for itself, a dict of lists for the product of its lists.

    `names` are the function's parameters: BadConfigurations for a key that is none of them, and for an empty list.
    """
    found = product(configs) if isinstance(configs, Mapping) else configs
    if not isinstance(found, Iterable) or isinstance(found, (str, bytes)):
        raise _not_configurations(found)
    listed: list[Config] = []
    for config in found:
        if not isinstance(config, Mapping):
            raise _not_configurations(config)
        if config not in listed:
            listed.append(dict(config))
    if not listed:
        raise BadConfigurations(
            "there are no configurations to choose from",
            found=f"configs={_short(configs)} gives an empty list",
            expected="at least one dict of parameters",
            repair='configs={"block_M": [64, 128], "num_stages": [2, 3]}',
        )
    unknown = [n for config in listed for n in config if n not in names]
    if unknown:
        raise BadConfigurations(
            f"the tuned function has no parameter {unknown[0]!r}",
            found=f"a configuration with the keys {', '.join(listed[0])}",
            expected=f"keys among {', '.join(names)}",
            repair=f"add the parameter {unknown[0]} to the function, or take it out of the configurations",
        )
    if len({frozenset(config) for config in listed}) > 1:
        odd = next(config for config in listed if set(config) != set(listed[0]))
        raise BadConfigurations(
            "the configurations set different parameters",
            found=f"{listed[0]} and {odd}",
            expected="the same keys in each",
            repair="give every configuration a value for every parameter that one of them sets",
        )
    return listed


def product(lists: Mapping[str, Any]) -> list[Config]:
    """{"a": [1, 2], "b": 3} -> [{"a": 1, "b": 3}, {"a": 2, "b": 3}]"""
    values = [v if isinstance(v, (list, tuple, range)) else [v] for v in lists.values()]
    return [dict(zip(lists, each)) for each in itertools.product(*values)]


def called(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What a function of the user's gives: it is called with those of a call's arguments that it has parameters for."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return function(**arguments)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return function(*arguments.values())
    missing = [p.name for p in parameters if p.name not in arguments and p.default is p.empty]
    if missing:
        raise BadConfigurations(
            f"the function that gives the configurations has a parameter {missing[0]!r} that the call has no value for",
            found=f"{getattr(function, '__name__', 'configs')}{inspect.signature(function)}",
            expected=f"parameters among {', '.join(arguments) or 'none'}",
            repair=f"give {missing[0]} a default, or name it as the tuned function's parameter is named",
        )
    return function(**{p.name: arguments[p.name] for p in parameters if p.name in arguments})


def _not_configurations(found: Any) -> BadConfigurations:
    return BadConfigurations(
        "configs is nothing to choose from",
        found=_short(found),
        expected="a list of dicts, a dict of lists, a function that returns one of them, or autotuner.Space",
        repair='configs={"block_M": [64, 128], "num_stages": [2, 3]}',
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def plain(value: Any) -> Any:
    """A value of a configuration as JSON has it. Types of elements and policies become their names."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return getattr(value, "__name__", None) or str(value)


def plain_config(config: Mapping[str, Any]) -> Config:
    """A configuration as a results file has it; two of a tuned function are the same if these are."""
    return {name: plain(value) for name, value in config.items()}


def words(config: Mapping[str, Any]) -> str:
    """block_M=128, threads=256"""
    return ", ".join(f"{name}={plain(value)}" for name, value in config.items())
