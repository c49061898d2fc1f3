"""Annotation keys of the tile IR, apart from `tile_ir` so that naming one does not import TVM."""

PARALLEL = "tl.parallel"
PIPELINED = "tl.pipelined"
PIPELINE_ORDER = "tl.order"
PIPELINE_STAGE = "tl.stage"
INDEPENDENT = "tl.independent"  # of a loop: no two iterations write one element of a tensor
PROMISED = "promised"  # value of it: the user says so
KERNEL = "tl.kernel"
