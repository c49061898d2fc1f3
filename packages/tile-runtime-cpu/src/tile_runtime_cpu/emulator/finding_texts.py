"""What a finding says, in the order of the numbers that the emulator's runtime gives."""

from __future__ import annotations

#: Name of each kind (runtime/state.h, enum Kind, in its order), what it says, what to do.
KINDS: list[tuple[str, str, str]] = [
    (
        "uninitialized-read",
        "reads {where}, which nobody has written",
        "write it first, or wait for the copy that does (a wait, then a barrier)",
    ),
    (
        "race-read-after-write",
        "reads {where}, which {other} wrote{other_line} with no barrier in between",
        "add tl::sync_threads() between the write and this read",
    ),
    (
        "race-write-after-write",
        "writes {where}, over what {other} wrote{other_line} with no barrier in between",
        "add tl::sync_threads() between the two writes, or let one thread write",
    ),
    (
        "race-write-after-read",
        "writes {where}, which {other} has read with no barrier in between",
        "add tl::sync_threads() after the reads, before this write",
    ),
    (
        "read-in-flight",
        "reads {where} while an asynchronous copy of {other}{other_line} into it has not been waited for",
        "wait for it before ({wait}), then a barrier",
    ),
    (
        "write-in-flight",
        "writes {where} while an asynchronous copy of {other}{other_line} into it has not been waited for",
        "wait for that copy first, then a barrier",
    ),
    (
        "race-between-blocks",
        "accesses {where}, which another block{block} accesses too, one of them writing{other_line}",
        "let each element belong to one block, or use atomics on all sides; blocks have no order within a launch",
    ),
    ("out-of-bounds", "accesses {where}", "guard the access with a predicate"),
    ("read-only", "writes {where}, an input", "declare the parameter as an output"),
    ("misaligned", "accesses {where}, an address that is not a multiple of {size}", "use a narrower vector, or align"),
    (
        "divergence",
        "calls {operation} while lane {lane} of the same warp is in {other_operation}{other_line}",
        "let all lanes of a warp take the same way around operations of the whole warp",
    ),
    ("deadlock", "waits forever", "let every thread reach the same barriers"),
    ("device-assert", "fails assertion {code}", "see the statement"),
    ("fault", "makes the processor stop with {signal}", "look for a division by zero or an endless recursion"),
    ("timeout", "does not come to an end", "let the loop end, or launch with a longer timeout_seconds"),
    ("limit", "passes more barriers than the emulator can count (1048575)", "use a smaller problem"),
    (
        "exited-lane",
        "calls {operation}, but a lane of its warp has left the kernel",
        "let all lanes of a warp stay until its last operation",
    ),
    (
        "barrier-count",
        "calls barrier {code} with a number of threads that differs from the other callers' or exceeds the block's",
        "give all callers of a barrier the same count",
    ),
    (
        "not-uniform",
        "gives tl::load_to_lds another address of shared memory than {other} of its wave",
        "let all lanes of a wave give the same address: the hardware adds lane * bytes to it",
    ),
    (
        "partial-wave",
        "calls a matrix instruction in a wave of fewer than 64 threads",
        "let the number of threads of a block be a multiple of 64",
    ),
    (
        "mbarrier-not-initialized",
        "uses {where} as an mbarrier, {mbarrier}",
        "let one thread call tl::mbarrier_init once, then tl::fence_mbarrier_init() and a barrier of the block or cluster",
    ),
    (
        "mbarrier-over-arrival",
        "{over_arrival}",
        "wait for the phase's end before arriving again (is a wait on the empty mbarrier missing?), or initialize it with "
        "the right count",
    ),
    (
        "mbarrier-as-data",
        "accesses {where}, an mbarrier, like data",
        "leave mbarriers to their functions until tl::mbarrier_inval",
    ),
    (
        "mbarrier-transaction-count",
        "brings the outstanding bytes of {where}, an mbarrier, to {code}",
        "keep them below 2^20: expect the bytes of one phase only",
    ),
    (
        "missing-proxy-fence",
        "lets an asynchronous operation use {where}, which {other} used{other_line} through ordinary accesses",
        "let each such thread call tl::fence_proxy_async() after its accesses and before the barrier (after mbarrier_init: "
        "tl::fence_mbarrier_init())",
    ),
    (
        "write-under-asynchronous-read",
        "writes {where} while an asynchronous operation that {other} started may still read it",
        "wait first: tl::wgmma_wait before a stage is released, tl::bulk_wait_read before a store's buffer is reused",
    ),
    (
        "register-in-flight",
        "touches registers that a wgmma under way uses",
        "call tl::wgmma_wait for its group before",
    ),
    (
        "missing-wgmma-fence",
        "issues a wgmma whose accumulator or registers ordinary instructions have touched",
        "call tl::wgmma_fence() after the last such instruction, before the wgmma",
    ),
    ("bad-wgmma", "{bad_wgmma}", "see the statement"),
    (
        "register-limit",
        "lets each thread give up registers that it does not have: it has {code}",
        "decrease to less than it has; the sum over the block's warpgroups is fixed at launch",
    ),
    (
        "exit-in-flight",
        "ends while an asynchronous copy that uses shared memory is under way",
        "wait for it: on its mbarrier, or by tl::bulk_wait_read<0>() in the thread that issued it",
    ),
    (
        "block-has-ended",
        "uses shared memory of block {code} of its cluster, which may have left the kernel by then",
        "end with tl::cluster_sync(), so that no block leaves while others need it",
    ),
    ("bad-tensor-map", "{bad_map}", "give the kernel the tensor map that the statement expects"),
    (
        "bad-coordinates",
        "gives a bulk copy {coordinate}",
        "begin boxes at multiples of 16 bytes, and those that are written inside the tensor; copy others without it",
    ),
    (
        "incomplete-barrier",
        "arrives at barrier {code}, which never has all its arrivals",
        "let every thread that the barrier counts come by, to wait or to arrive, as often as the others",
    ),
]

#: What to do about it in a program of which the text was generated.
USER_ADVICE = {
    "uninitialized-read": "T.clear or T.fill it, or a T.copy that covers the element, before this line",
    "race-read-after-write": "T.sync_threads() between the two, where all threads of the block come by",
    "race-write-after-write": "T.sync_threads() between the two, or let one thread write",
    "race-write-after-read": "T.sync_threads() after the reads, where all threads of the block come by",
    "read-in-flight": "the compiler places this wait: please report it; num_stages=0 makes the copy synchronous",
    "write-in-flight": "the compiler places this wait: please report it; num_stages=0 makes the copy synchronous",
    "race-between-blocks": "let each element belong to one block, or use T.atomic_add and the like on all sides",
    "out-of-bounds": "guard the access with `if`; T.copy and T.Parallel guard theirs unless "
    "tl.disable_safe_memory_access is set",
    "divergence": "keep tile operators and T.sync_threads() out of branches that threads take differently",
    "exited-lane": "keep tile operators and T.sync_threads() out of branches that threads take differently",
    "deadlock": "let every thread reach the same T.sync_threads()",
}

OPERATIONS = [
    "running",
    "tl::sync_threads",
    "tl::sync_warp",
    "a shuffle",
    "a vote",
    "ldmatrix",
    "stmatrix",
    "mma",
    "tl::load_to_lds",
    "finished",
    "tl::mbarrier_wait",
    "tl::cluster_wait",
    "wgmma",
    "tl::wgmma_commit",
    "tl::wgmma_wait",
    "a change of the register limit",
    "a change of the register limit, for registers that others must give up first",
]
MBARRIER = [
    "which it is not: nobody has initialized it",
    "whose initialization by {other} it may not have seen",
    "initializing it again",
    "making it invalid while {other} waits",
]
BAD_WGMMA = [
    "issues a wgmma in a warpgroup that is not 128 threads of the block",
    "issues a wgmma with a descriptor whose base offset is not 0: start each operand at a multiple of 1024 bytes",
    "issues a wgmma with operands that differ from those of {other}, of the same warpgroup",
    "names a block that its cluster does not have",
]
AT_BARRIER, DONE = 1, OPERATIONS.index("finished")
AT_MBARRIER = OPERATIONS.index("tl::mbarrier_wait")
SIGNALS = {4: "an illegal instruction", 7: "a bus error", 8: "an arithmetic error", 11: "a memory fault"}

#: What an asynchronous copy is waited for with, by the size of a warp.
WAITS = {32: "tl::cp_async_wait with fewer pending groups", 64: "tl::wait_loads with fewer pending loads"}
