"""What the tests with models share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tile_ops.kernel.resolve import _loaded


@pytest.fixture
def launches() -> Callable[[str], int]:
    """`launches("attention")`: how often kernels of that family have run."""
    return lambda family: sum(kernel.launches for kernel in _loaded.values() if kernel.spec.family == family)
