"""A matrix instruction by its opcode, for a type of operand that the architecture has no instruction for."""

import tilelang
import tilelang.language as T


@T.prim_func
def product(C: T.Tensor((32, 4), "float32")):
    with T.Kernel(1, threads=32):
        lane = T.get_thread_binding()
        a, b = T.alloc_local((16,), "float8_e4m3"), T.alloc_local((8,), "float8_e4m3")
        c = T.alloc_local((4,), "float32")
        T.clear(a)
        T.clear(b)
        T.clear(c)
        opcode = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
        T.ptx(opcode, T.address_of(c[0]), T.address_of(a[0]), T.address_of(b[0]))
        for i in T.serial(4):
            C[lane, i] = c[i]


tilelang.compile(product, target="cuda -arch=sm_80")


# --- what the user sees
# UnsupportedOnTarget: [TL203] T.ptx('mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32') on sm_80
#   --> instruction_that_the_architecture_lacks.py:17   T.ptx(opcode, T.address_of(c[0]), T.address_of(a[0]), T.address_of(b[0]))
#   expected: an architecture that has it: sm_89 and newer
#   try:      compile for one of these, or use T.gemm, which takes what the architecture has
