"""Calls of the Mamba-2 operators as values."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongDtype, WrongShape, WrongStride, WrongValue

DTYPES = ("float16", "bfloat16", "float32")
STATE_DTYPES = ("float16", "bfloat16", "float32")
CHUNK_SIZES = (64, 128, 256)
LARGEST = 256  # headdim and dstate: a tile of either has them whole


@dataclass(frozen=True)
class Model:
    """Sizes that shape the kernels. `heads_per_group` heads share B and C."""

    dtype: str
    chunk_size: int
    headdim: int
    dstate: int
    heads_per_group: int

    @classmethod
    def of(cls, name: str, dtype: torch.dtype, chunk_size: int, sizes: tuple[int, int, int, int]) -> Model:
        """`sizes` are nheads, headdim, ngroups, dstate. Raises WrongShape, WrongDtype, WrongValue."""
        nheads, headdim, ngroups, dstate = sizes
        if name_of(dtype) not in DTYPES:
            raise WrongDtype(f"{name}: x is {dtype}; expected one of {', '.join(DTYPES)}: x.to(torch.bfloat16)")
        if chunk_size not in CHUNK_SIZES:
            raise WrongValue(f"{name}: chunk_size is {chunk_size}; expected 64, 128 or 256")
        for what, size in (("headdim", headdim), ("dstate", dstate)):
            if size % 8 or not 8 <= size <= LARGEST:
                raise WrongShape(f"{name}: {what} is {size}; expected a multiple of 8 up to {LARGEST}: pad with zeros")
        if nheads and (not ngroups or nheads % ngroups):
            raise WrongShape(f"{name}: {nheads} heads in {ngroups} groups; nheads must be a multiple of ngroups")
        return cls(name_of(dtype), chunk_size, headdim, dstate, nheads // max(ngroups, 1))


def expect(name: str, what: str, tensor: torch.Tensor, shape: tuple[int, ...], *dtypes: torch.dtype) -> None:
    """Raises WrongShape or WrongDtype unless the tensor is as the others make it."""
    if tuple(tensor.shape) != shape:
        raise WrongShape(f"{name}: {what} has shape {tuple(tensor.shape)}; the other operands ask for {shape}")
    if tensor.dtype not in dtypes:
        expected = " or ".join(map(str, dict.fromkeys(dtypes)))
        raise WrongDtype(f"{name}: {what} is {tensor.dtype}; expected {expected}: {what}.to({dtypes[0]})")


def rank(name: str, what: str, tensor: torch.Tensor, dimensions: str) -> None:
    """Raises WrongShape unless the tensor has as many dimensions as are named."""
    if tensor.ndim != len(dimensions.split(", ")):
        raise WrongShape(f"{name}: {what} has shape {tuple(tensor.shape)}; expected ({dimensions})")


@dataclass(frozen=True)
class ChunkStateProblem:
    """`chunk_state`."""

    model: Model
    out_dtype: str

    @classmethod
    def of(
        cls,
        B: torch.Tensor,
        x: torch.Tensor,
        dt: torch.Tensor,
        dA_cumsum: torch.Tensor,
        *,
        out_dtype: torch.dtype = torch.float32,
    ) -> ChunkStateProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        name = "chunk_state"
        rank(name, "x", x, "batch, seqlen, nheads, headdim")
        rank(name, "B", B, "batch, seqlen, ngroups, dstate")
        rank(name, "dt", dt, "batch, nheads, nchunks, chunk_size")
        batch, seqlen, nheads, headdim = x.shape
        model = Model.of(name, x.dtype, dt.shape[3], (nheads, headdim, *B.shape[2:]))
        expect(name, "B", B, (batch, seqlen, *B.shape[2:]), x.dtype)
        _steps(name, dt, dA_cumsum, (batch, nheads, -(-seqlen // model.chunk_size), model.chunk_size))
        if name_of(out_dtype) not in STATE_DTYPES:
            raise WrongDtype(f"{name}: out_dtype is {out_dtype}; expected one of {', '.join(STATE_DTYPES)}")
        return cls(model, name_of(out_dtype))


@dataclass(frozen=True)
class ChunkScanProblem:
    """`chunk_scan`; `skip`: with D, `gate`: with z."""

    model: Model
    skip: bool
    gate: bool

    @classmethod
    def of(
        cls,
        cb: torch.Tensor,
        x: torch.Tensor,
        dt: torch.Tensor,
        dA_cumsum: torch.Tensor,
        C: torch.Tensor,
        states: torch.Tensor,
        D: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
    ) -> ChunkScanProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        name = "chunk_scan"
        rank(name, "x", x, "batch, seqlen, nheads, headdim")
        rank(name, "C", C, "batch, seqlen, ngroups, dstate")
        rank(name, "dt", dt, "batch, nheads, nchunks, chunk_size")
        batch, seqlen, nheads, headdim = x.shape
        ngroups, dstate = C.shape[2:]
        model = Model.of(name, x.dtype, dt.shape[3], (nheads, headdim, ngroups, dstate))
        nchunks, size = -(-seqlen // model.chunk_size), model.chunk_size
        expect(name, "C", C, (batch, seqlen, ngroups, dstate), x.dtype)
        _steps(name, dt, dA_cumsum, (batch, nheads, nchunks, size))
        expect(name, "cb", cb, (batch, nchunks, ngroups, size, size), x.dtype)
        expect(name, "states", states, (batch, nchunks, nheads, headdim, dstate), x.dtype)
        _skip_and_gate(name, x, D, z)
        return cls(model, D is not None, z is not None)


@dataclass(frozen=True)
class ScanProblem:
    """`ssd_scan`; `initial`: from given states, `packed`: several sequences one after the other."""

    model: Model
    dt_dtype: str
    softplus: bool
    skip: bool
    gate: bool
    initial: bool
    packed: bool

    @classmethod
    def of(
        cls,
        x: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        *,
        chunk_size: int = 256,
        D: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None,
        dt_softplus: bool = False,
        initial_states: torch.Tensor | None = None,
        cu_seqlens: torch.Tensor | None = None,
        return_final_states: bool = False,
    ) -> ScanProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        name = "ssd_scan"
        floats = (torch.float32, torch.float16, torch.bfloat16)
        rank(name, "x", x, "batch, seqlen, nheads, headdim")
        rank(name, "B", B, "batch, seqlen, ngroups, dstate")
        batch, seqlen, nheads, headdim = x.shape
        ngroups, dstate = B.shape[2:]
        model = Model.of(name, x.dtype, chunk_size, (nheads, headdim, ngroups, dstate))
        expect(name, "dt", dt, (batch, seqlen, nheads), x.dtype, torch.float32)
        expect(name, "A", A, (nheads,), *floats)
        for what, tensor in (("B", B), ("C", C)):
            expect(name, what, tensor, (batch, seqlen, ngroups, dstate), x.dtype)
        _skip_and_gate(name, x, D, z)
        if dt_bias is not None:
            expect(name, "dt_bias", dt_bias, (nheads,), *floats)
        sequences = batch
        if cu_seqlens is not None:
            sequences = lengths(name, cu_seqlens, batch, seqlen)
        if initial_states is not None:
            expect(name, "initial_states", initial_states, (sequences, nheads, headdim, dstate), *floats)
        flags = (D is not None, z is not None, initial_states is not None, cu_seqlens is not None)
        return cls(model, name_of(dt.dtype), dt_softplus, *flags)


@dataclass(frozen=True)
class StepProblem:
    """`ssd_step`; the model's chunk_size means nothing here."""

    model: Model
    dt_dtype: str
    softplus: bool
    skip: bool
    gate: bool

    @classmethod
    def of(
        cls,
        state: torch.Tensor,
        x: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        *,
        D: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None,
        dt_softplus: bool = False,
    ) -> StepProblem:
        """Raises WrongShape, WrongDtype, WrongStride."""
        name = "ssd_step"
        floats = (torch.float32, torch.float16, torch.bfloat16)
        if x.ndim != 3 or B.ndim != 3:
            raise WrongShape(
                f"{name}: x has shape {tuple(x.shape)}, B {tuple(B.shape)}; expected (batch, nheads, headdim) and "
                "(batch, ngroups, dstate)"
            )
        batch, nheads, headdim = x.shape
        ngroups, dstate = B.shape[1:]
        model = Model.of(name, x.dtype, CHUNK_SIZES[0], (nheads, headdim, ngroups, dstate))
        expect(name, "state", state, (batch, nheads, headdim, dstate), torch.float32)
        expect(name, "dt", dt, (batch, nheads), x.dtype, torch.float32)
        expect(name, "A", A, (nheads,), *floats)
        for what, tensor in (("B", B), ("C", C)):
            expect(name, what, tensor, (batch, ngroups, dstate), x.dtype)
        if D is not None:
            expect(name, "D", D, (nheads,), *floats)
        if z is not None:
            expect(name, "z", z, tuple(x.shape), x.dtype)
        if dt_bias is not None:
            expect(name, "dt_bias", dt_bias, (nheads,), *floats)
        if not state.is_contiguous():
            raise WrongStride(f"{name}: state has strides {state.stride()} and is written; pass a contiguous one")
        return cls(model, name_of(dt.dtype), dt_softplus, D is not None, z is not None)


def lengths(name: str, cu_seqlens: torch.Tensor, batch: int, seqlen: int) -> int:
    """How many sequences lie in a packed batch. Values are looked at on the CPU only: on a GPU that would wait for it."""
    if batch != 1:
        raise WrongShape(f"{name}: cu_seqlens is given and batch is {batch}; packed sequences lie in a batch of 1")
    if cu_seqlens.ndim != 1 or not len(cu_seqlens):
        raise WrongShape(
            f"{name}: cu_seqlens has shape {tuple(cu_seqlens.shape)}; expected (sequences + 1,): cumulative lengths from 0 on"
        )
    if cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise WrongDtype(f"{name}: cu_seqlens is {cu_seqlens.dtype}; torch.int32 is expected: cu_seqlens.int()")
    check_lengths(name, cu_seqlens, seqlen)
    return len(cu_seqlens) - 1


def check_lengths(name: str, cu_seqlens: torch.Tensor, seqlen: int) -> None:
    """Raises WrongValue where the lengths of a CPU's sequences are not those of the batch."""
    if type(cu_seqlens) is torch.Tensor and cu_seqlens.device.type == "cpu":
        values = cu_seqlens.tolist()
        if values[0] != 0 or values[-1] != seqlen or sorted(values) != values:
            raise WrongValue(f"{name}: cu_seqlens is {values}; expected an increasing row from 0 to seqlen, {seqlen}")


def _steps(name: str, dt: torch.Tensor, dA_cumsum: torch.Tensor, shape: tuple[int, ...]) -> None:
    expect(name, "dt", dt, shape, torch.float32)
    expect(name, "dA_cumsum", dA_cumsum, shape, torch.float32)


def _skip_and_gate(name: str, x: torch.Tensor, D: torch.Tensor | None, z: torch.Tensor | None) -> None:
    if D is not None:
        expect(name, "D", D, (x.shape[2],), torch.float32, torch.float16, torch.bfloat16)
    if z is not None:
        expect(name, "z", z, tuple(x.shape), x.dtype)
