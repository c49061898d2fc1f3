"""Blocks that hand on what they have done: a fence and an atomic, which another block's atomic and fence meet."""

from __future__ import annotations

import numpy as np
import pytest

BLOCKS, THREADS = 5, 64
#: Each block stores a part; the last one to take a ticket adds all of them and puts the ticket back.
LAST_ONE_ADDS = """
  int& order = *(int*)tl::shared_memory();
  int t = threadIdx.x, parts = gridDim.x;
  P[blockIdx.x * 64 + t] = X[blockIdx.x * 64 + t];
  tl::sync_threads();
  if (t == 0) order = tl::atomic_add<tl::acq_rel>(N, 1);
  tl::sync_threads();
  if (order == parts - 1) {
    float sum = 0;
    for (int p = 0; p < parts; ++p) sum += P[p * 64 + t];
    O[t] = sum;
    if (t == 0) tl::atomic_exchange(N, 0);
  }"""


@pytest.fixture
def run(run_body):
    def launch(body, seed=0):
        x = np.arange(BLOCKS * THREADS, dtype="f4")
        parts, total, tickets = np.full_like(x, np.nan), np.zeros(THREADS, "f4"), np.zeros(2, "i4")
        report = run_body(
            "const float* X, float* P, float* O, int* N",
            body,
            [x, parts, total, tickets],
            THREADS,
            grid=(BLOCKS,),
            shared=16,
            seed=seed,
        )
        return report, total, x.reshape(BLOCKS, THREADS).sum(0), tickets

    return launch


@pytest.mark.parametrize("seed", range(3))
def test_the_last_block_adds_what_all_have_stored(run, seed):
    report, total, expected, tickets = run(LAST_ONE_ADDS, seed)
    report.check()
    np.testing.assert_array_equal(total, expected)
    assert tickets[0] == 0


@pytest.mark.parametrize(
    ("stands", "wrong"),
    [
        ("tl::atomic_add<tl::acq_rel>", "tl::atomic_add"),
        ("tl::atomic_add<tl::acq_rel>", "tl::atomic_add<tl::acquire>"),
        ("tl::atomic_add<tl::acq_rel>", "tl::atomic_add<tl::release>"),
        ("tl::sync_threads();\n  if (t == 0) order", "if (t == 0) order"),  # one thread's release is not the others'
        ("P[blockIdx.x * 64 + t] = X[blockIdx.x * 64 + t];", ""),
    ],
)
def test_what_was_not_handed_on_is_a_race(run, stands, wrong):
    body = LAST_ONE_ADDS.replace(stands, wrong)
    assert body != LAST_ONE_ADDS
    if not wrong:  # stored behind the ticket
        body = body.replace("if (order ==", f"{stands}\n  if (order ==")
    report = run(body)[0]
    assert {f.kind for f in report.errors} == {"race-between-blocks"}


@pytest.mark.parametrize("met", [True, False])
def test_a_block_passes_on_what_it_was_handed(run, met):
    """The third block meets the second alone, which has met the first, or has not."""
    body = f"""
      int t = threadIdx.x, b = blockIdx.x;
      if (b == 0) P[t] = 1.0f;
      tl::sync_threads();
      if (t == 0 && b <= {int(met)}) tl::atomic_add<tl::acq_rel>(N, 1);
      if (t == 0 && (b == 1 || b == 2)) tl::atomic_add<tl::acq_rel>(N + 1, 1);
      tl::sync_threads();
      if (b == 2) O[t] = P[t];"""
    assert {f.kind for f in run(body)[0].errors} == (set() if met else {"race-between-blocks"})
