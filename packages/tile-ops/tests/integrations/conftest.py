"""What the tests with models share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tile_ops.kernel.resolve import _loaded


@pytest.fixture
def launches() -> Callable[..., int]:
    """`launches("attention")`: how often kernels of that family, or of one of its functions, have run."""

    def count(family: str, function: str | None = None) -> int:
        specs = [(kernel.spec, kernel.launches) for kernel in _loaded.values()]
        return sum(times for spec, times in specs if spec.family == family and function in (None, spec.function))

    return count
