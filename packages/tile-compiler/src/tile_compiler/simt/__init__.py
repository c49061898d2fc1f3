"""From tile IR to thread-level IR for GPUs (`docs/internals/simt-ir.md`): layouts, lowering, pipelines, barriers."""
