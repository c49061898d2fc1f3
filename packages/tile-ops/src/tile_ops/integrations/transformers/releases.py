"""Which releases of transformers these integrations know; to import this with another one is an ImportError."""

from __future__ import annotations

import transformers

#: The tests pass with 5.22, 5.23 and 5.24. Of 5.14 DeepSeek-V3's logits were wrong by 60 %, which nothing would tell.
OLDEST = (5, 22)


def check(found: str) -> None:
    """Raises ImportError if this is the version of an older release."""
    if tuple(int(number) for number in found.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"tile_ops.integrations.transformers knows transformers {oldest} and newer, and this is {found}, whose models "
            f"may compute something else: pip install 'transformers>={oldest}'"
        )


check(transformers.__version__)
