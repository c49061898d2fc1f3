"""The CPU target: plain loops to x86-64 objects through LLVM (`codegen.build_object`), GEMM tiles (`gemm.emit_gemm`)."""
