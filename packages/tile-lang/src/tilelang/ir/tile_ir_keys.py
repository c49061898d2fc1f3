"""Annotation keys of the tile IR, apart from `tile_ir` so that naming one does not import TVM."""

PARALLEL = "tl.parallel"
PIPELINED = "tl.pipelined"
PIPELINE_ORDER = "tl.order"
PIPELINE_STAGE = "tl.stage"
KERNEL = "tl.kernel"
