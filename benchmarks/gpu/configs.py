"""The configurations of our kernels: which one is measured for a case, and which ones a sweep tries. Made to be edited.

`BEST` has what won on the device, by (group, label) or by group; `SWEEPS` what `--sweep` compiles and measures as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from cases import BYTES, Attention, Case, Gemm, Gemv, Mla


@dataclass(frozen=True)
class GemmConfig:
    """Tile, stages of the pipeline, threads; `panel` blocks wide walks through the grid, 0 for rows. `cluster`: so many blocks
    along the columns and the rows of C share the tiles that they have in common.

    `blocks` > 0: so many stay and work through all tiles, in groups of `panel` rows. `staged`: they store through
    shared memory.
    """

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    stages: int = 3
    threads: int = 256
    panel: int = 8
    blocks: int = 0
    staged: bool = False
    cluster: tuple[int, int] = (1, 1)

    @property
    def name(self) -> str:
        stay = f"-b{self.blocks}{'-staged' if self.staged else ''}" if self.blocks else ""
        stay += f"-c{self.cluster[0]}x{self.cluster[1]}" if self.cluster != (1, 1) else ""
        return f"{self.block_m}x{self.block_n}x{self.block_k}-{self.stages}-{self.threads}-p{self.panel}{stay}"


@dataclass(frozen=True)
class GemvConfig:
    """Rows and columns of W that a block reads at once, its threads.

    `stages` > 0: through shared memory, that deep. `once`: the loads of W tell the caches that nobody reads it again.
    """

    block_n: int = 2
    block_k: int = 2048
    threads: int = 128
    stages: int = 0
    once: bool = True

    @property
    def name(self) -> str:
        how = f"-s{self.stages}" if self.stages else "" if self.once else "-kept"
        return f"{self.block_n}x{self.block_k}-{self.threads}{how}"


@dataclass(frozen=True)
class AttentionConfig:
    """Queries and keys of a block's tile, stages of the pipeline, threads; how many blocks stay for many tiles (0: one
    for each tile), of how many heads they take tiles at a time, how far a row's maximum may be behind, how many blocks of
    a cluster share keys and values."""

    block_m: int = 128
    block_n: int = 128
    stages: int = 2
    threads: int = 256
    blocks: int = 0
    section: int = 16
    lag: int = 0
    pair: int = 1

    @property
    def name(self) -> str:
        lag, pair = f"-lag{self.lag}" if self.lag else "", f"-c{self.pair}" if self.pair > 1 else ""
        stay = f"-b{self.blocks}-h{self.section}{lag}{pair}" if self.blocks else ""
        return f"{self.block_m}x{self.block_n}-{self.stages}-{self.threads}{stay}"


@dataclass(frozen=True)
class MlaConfig:
    """Heads and keys of a block's tile, stages; `pairs`: the kernel that takes two tiles of keys in each step."""

    block_h: int = 64
    block_n: int = 64
    stages: int = 2
    threads: int = 256
    pairs: bool = False

    @property
    def name(self) -> str:
        return f"{self.block_h}x{self.block_n}-{self.stages}-{self.threads}{'-pairs' if self.pairs else ''}"


Config = GemmConfig | GemvConfig | AttentionConfig | MlaConfig

BEST: dict[str | tuple[str, str], tuple[Config, ...]] = {
    # A block for each tile in the text, which the compiler lets stay where that pays, and a text of blocks that stay.
    "gemm": (GemmConfig(128, 256, 64, 4, panel=16), GemmConfig(128, 256, 64, 3, panel=8, blocks=132, staged=True)),
    ("gemm", "M0"): (GemmConfig(128, 256, 64, 4, panel=4),),  # no more tiles than multiprocessors
    "fp8": (GemmConfig(128, 256, 128, 4, panel=16), GemmConfig(128, 256, 128, 4, panel=16, blocks=132)),
    "types": (GemmConfig(128, 256, 128, 4), GemmConfig(128, 256, 64, 4), GemmConfig(128, 256, 32, 4)),
    "gemv": (GemvConfig(2, 2048, 256), GemvConfig(2, 2048, 256, once=False)),
    ("gemv", "V5"): (GemvConfig(1, 9216, 128), GemvConfig(1, 9216, 128, once=False)),
    "attention": (AttentionConfig(128, 128, 2),),
    ("attention", "FA2"): (AttentionConfig(128, 128, 2), AttentionConfig(128, 128, 2, blocks=132, section=32)),
    ("attention", "FA4"): (AttentionConfig(128, 128, 2), AttentionConfig(128, 128, 2, blocks=132, section=8, lag=8)),
    ("attention", "FA3"): (AttentionConfig(128, 128, 2, blocks=132, section=4, lag=8, pair=2),),
    **{
        ("attention", label): (
            AttentionConfig(128, 128, 2),
            AttentionConfig(128, 128, 2, blocks=132),
            AttentionConfig(128, 128, 2, blocks=132, lag=8),
            AttentionConfig(128, 176, 2, blocks=132, section=4, lag=8, pair=2),
        )
        for label in ("L", "GQA")
    },
    ("attention", "D64"): (
        AttentionConfig(128, 128, 2),
        AttentionConfig(128, 128, 2, blocks=132),
        AttentionConfig(128, 128, 2, blocks=132, section=4, lag=8, pair=2),
    ),
    ("attention", "D256"): (AttentionConfig(128, 64, 2),),
    "mla": (MlaConfig(64, 64, 2), MlaConfig(64, 64, 1, 384, pairs=True)),  # the paper's, and two tiles at once
}

SWEEPS: dict[str, tuple[Config, ...]] = {
    "gemm": (
        GemmConfig(128, 256, 64, 3),
        GemmConfig(256, 128, 64, 4),
        GemmConfig(128, 256, 64, 4),
        GemmConfig(128, 256, 64, 4, panel=16),
        GemmConfig(128, 256, 64, 4, panel=8, blocks=132),
        GemmConfig(128, 256, 64, 4, panel=16, blocks=132),
        GemmConfig(128, 256, 64, 3, panel=8, blocks=132, staged=True, cluster=(1, 2)),
        GemmConfig(128, 256, 64, 3, panel=16, blocks=132, staged=True, cluster=(1, 2)),
        GemmConfig(128, 256, 64, 4, panel=16, blocks=132, cluster=(1, 2)),
        GemmConfig(128, 256, 64, 4, panel=16, cluster=(1, 2)),
        GemmConfig(128, 256, 64, 4, panel=16, cluster=(2, 1)),
        GemmConfig(128, 256, 64, 4, panel=8, cluster=(1, 2)),
        GemmConfig(128, 256, 64, 4, panel=4, cluster=(1, 2)),
        GemmConfig(256, 128, 64, 4, panel=8, cluster=(2, 1)),
        GemmConfig(128, 192, 64, 4),
        GemmConfig(128, 128, 64, 5),
        GemmConfig(128, 128, 128, 3),
        GemmConfig(128, 128, 32, 3, 128),
        GemmConfig(128, 128, 64, 3, 128, panel=8),  # the best one of mma.sync
    ),
    "fp8": (
        GemmConfig(128, 256, 128, 4),
        GemmConfig(256, 128, 128, 4),
        GemmConfig(128, 128, 128, 4),
        GemmConfig(128, 256, 128, 3),
        GemmConfig(128, 256, 128, 4, panel=16),
        GemmConfig(128, 256, 128, 3, panel=8, blocks=132, staged=True),
    ),
    "types": (GemmConfig(128, 256, 64, 3), GemmConfig(128, 128, 64, 3)),
    "gemv": (
        GemvConfig(1, 4096, 512),
        GemvConfig(1, 8192, 512),
        GemvConfig(2, 4096, 512),
        GemvConfig(4, 4096, 512),
        GemvConfig(1, 4096, 256),
        GemvConfig(2, 4096, 256),
        GemvConfig(4, 2048, 256),
        GemvConfig(1, 8192, 1024),
        GemvConfig(2, 8192, 1024),
        GemvConfig(4, 8192, 1024),
        GemvConfig(2, 2048, 128),
        GemvConfig(4, 1024, 128),
        GemvConfig(1, 9216, 128),
        GemvConfig(1, 4096, 512, once=False),
        GemvConfig(4, 2048, 256, once=False),
        GemvConfig(8, 1024, 128, 6),
        GemvConfig(4, 2048, 256, 6),
        GemvConfig(4, 4096, 256, 5),
    ),
    "attention": (
        AttentionConfig(128, 128, 2, blocks=132, section=8),
        AttentionConfig(128, 128, 2, blocks=132, section=32),
        AttentionConfig(128, 160, 2, blocks=132, section=4, lag=8, pair=2),
        AttentionConfig(128, 176, 2),
        AttentionConfig(192, 128, 2, 384),
        AttentionConfig(128, 64, 2),
        AttentionConfig(128, 96, 2),
        AttentionConfig(128, 80, 2),
        AttentionConfig(64, 64, 2, 128),
        AttentionConfig(128, 48, 2, 128),  # the best one of mma.sync that does not spill
    ),
    "mla": (
        MlaConfig(64, 32, 2),
        MlaConfig(64, 64, 1),
    ),
}


def configs(group: str, case: Case, sweep: bool = False) -> tuple[Config, ...]:
    """What is measured for a case; with `sweep` everything that its group tries, too."""
    best = BEST.get((group, case.label)) or BEST[group]
    tried = (*best, *SWEEPS[group]) if sweep else best
    return tuple(dict.fromkeys(c for c in tried if suits(case, c)))


def suits(case: Case, config: Config) -> bool:
    """Whether a configuration can serve the case: its tiles fit the registers and the shared memory of a block."""
    if isinstance(case, Gemm):
        assert isinstance(config, GemmConfig)
        tile = (config.block_m + config.block_n) * config.block_k * BYTES[case.dtype]
        kept = config.block_m * config.block_n * BYTES[case.out_dtype] if config.staged else 0
        return tile * config.stages + kept <= SHARED_BYTES and config.block_m * config.block_n <= 128 * config.threads
    if isinstance(case, Gemv):
        assert isinstance(config, GemvConfig)
        return config.block_k <= case.k
    if isinstance(case, Attention):
        assert isinstance(config, AttentionConfig)
        tiles = (config.block_m + 2 * config.stages * config.block_n) * case.dim * BYTES[case.dtype]
        registers = config.block_m * (case.dim + 1.5 * config.block_n) / config.threads
        if config.pair > 1 and case.causal:
            return False  # tiles of unequal length, which share nothing
        return tiles <= SHARED_BYTES and registers <= REGISTERS
    assert isinstance(case, Mla)
    return True


SHARED_BYTES = 227 << 10
REGISTERS = 224  # of a thread's 255, those that tiles may take
