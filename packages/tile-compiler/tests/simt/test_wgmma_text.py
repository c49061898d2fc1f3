"""The text of products by warpgroups, as a person reads it."""

from __future__ import annotations

from typing import Any

from test_attention import attention
from test_gemm import product
from test_wgmma import BF16, INT8
from test_wgmma_waits import chain, printed_text


def text(func: Any) -> str:
    return str(printed_text(func).source)


def test_a_pipelined_product(golden: Any) -> None:
    golden(text(chain(3, 8)))


def test_attention(golden: Any) -> None:
    golden(text(attention(128, 128, 64, 64, 64, False, 2)))


def test_operands_that_lie_along_m_and_n(golden: Any) -> None:
    golden(text(product((128, 96, 32), BF16, 256, (True, False))))


def test_an_int8_product_with_a_in_registers(golden: Any) -> None:
    golden(text(product((64, 48, 64), INT8, 128, (False, True), "rs")))
