"""Judge of 07.4: every CTA of a cluster learns the sum over the cluster, through distributed shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading.compare import Exact
from mlacademy.grading.cuda_exercise import CudaExercise, KernelMistake, Launch, Out, Sign, stuck
from mlacademy.grading.exercise import Case

Array = NDArray[np.int32]
THREADS = 32


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    shapes = [(2, 1, "two CTAs"), (4, 3, "three clusters of four")]
    if hidden:
        shapes = [(2, 5, "five clusters of two"), (8, 2, "clusters of eight")]
    for ranks, clusters, label in shapes:
        values = rng.integers(-1000, 1000, (clusters * ranks, THREADS)).astype(np.int32)
        yield Case({"values": values, "ranks": ranks}, label, (("CTA",),))


def _launch(values: Array, ranks: int) -> Launch:
    return Launch(LaunchPlan(grid=len(values), block=THREADS, cluster=ranks), (values, Out((len(values),), np.int32)))


def _totals(values: Array, ranks: int) -> Array:
    return np.repeat(values.sum(axis=1).reshape(-1, ranks).sum(axis=1), ranks).astype(np.int32)


CLUSTER_TOTAL = CudaExercise(
    id="07.4",
    title="A sum that every CTA of the cluster learns",
    entry="cluster_total",
    points=4,
    lines=9,
    parameters=("values", "ranks"),
    outputs=("totals",),
    cases=_cases,
    launch=_launch,
    reference=_totals,
    compare=Exact(),
    uses={
        r"st\.async|(ld|st)\.shared::cluster": "cluster_total gives the right values, but not through shared memory "
        "of other CTAs: this exercise asks for st_async_u32, or for a load or store with an address of mapa."
    },
    misconceptions=(
        KernelMistake(
            key="peer-not-ready",
            says="A CTA reached into another one that may not have started, or whose barrier was not initialised yet: "
            "nothing had made sure of it.",
            hints=(
                "When may a CTA write to another one's shared memory?",
                "CTAs of a cluster start together, but not in step. __syncthreads() meets only the own CTA's threads.",
                "mbarrier_init, fence_mbarrier_init, then cluster_sync(), and only then the first remote store.",
            ),
            signs=(Sign(("barrier-init", "remote-start")), Sign(("race", "uninitialized"), object="arrived")),
        ),
        KernelMistake(
            key="peer-gone",
            says="A CTA ended while another one still read its shared memory.",
            hints=(
                "What becomes of a CTA's shared memory when it ends?",
                "Whoever is read from must stay until the readers are done.",
                "One more cluster_sync() after the last remote read.",
            ),
            signs=(Sign("remote-exited", answer="ld_shared_cluster"),),
        ),
        KernelMistake(
            key="too-few-announced",
            says="More bytes arrived than were announced: each of the CTAs, this one included, sends 4 bytes to "
            "this barrier.",
            hints=(
                "How many stores end at one barrier?",
                "One from every rank, 4 bytes each.",
                "mbarrier_arrive_expect_tx(&arrived, 4 * ranks), once a CTA.",
            ),
            signs=(
                stuck("arrived", pending=False, tx="unannounced"),
                Sign(
                    ("race", "uninitialized", "remote-exited"),
                    answer=r"expect_tx\(&?arrived,\s*(4|sizeof\(\w+\))\)",
                ),
                Sign(("race", "uninitialized", "remote-exited"), answer=r"ranks\s*-\s*1", lacks=r"parts\[rank\]\s*="),
            ),
        ),
        KernelMistake(
            key="too-many-announced",
            says="More bytes were announced at a barrier than the stores bring: the count is too large, or not every "
            "CTA sends to every other one.",
            hints=(
                "Draw who sends to whom. How many arrows end at each CTA?",
                "ranks arrows end at each CTA if each CTA sends to all ranks, itself included; mapa chooses the "
                "target.",
                "Thread r of each CTA stores to mapa(smem_address(&parts[rank]), r), and names the barrier of CTA r.",
            ),
            signs=(stuck("arrived", pending=False, tx="owed"),),
        ),
        KernelMistake(
            key="arrivals-missing",
            says="An arrival is missing at the barrier. Stores bring bytes; only threads bring arrivals.",
            hints=(
                "How many arrivals did mbarrier_init ask for, and who gives them?",
                "st.async counts bytes and never arrives. The announcing thread of the own CTA can be the one arrival.",
                "mbarrier_init(&arrived, 1) and one mbarrier_arrive_expect_tx.",
            ),
            signs=(stuck("arrived", pending=True),),
        ),
        KernelMistake(
            key="barrier-of-another",
            says="The store and its barrier lie in different CTAs: st.async counts its bytes where the data land.",
            hints=(
                "In which CTA is the barrier that you name?",
                "Both addresses of st.async must come from mapa with the same rank.",
                "st_async_u32(mapa(parts…, r), mine, mapa(arrived…, r)).",
            ),
            signs=(Sign(("st-async", "remote", "barrier-place", "thread", "bounds")),),
        ),
        KernelMistake(
            key="every-thread",
            says="Several threads announced and arrived; the barrier expects one arrival in each CTA.",
            hints=(
                "How many threads of a CTA announce?",
                "Every announcement adds its bytes, and arrive_expect_tx is an arrival too: one thread, once.",
                "if (threadIdx.x == 0) mbarrier_arrive_expect_tx(&arrived, 4 * ranks);",
            ),
            signs=(Sign("arrive-count"),),
        ),
        KernelMistake(
            key="no-such-rank",
            says="mapa was asked for a rank that the cluster does not have.",
            hints=(
                "How many CTAs are there to send to, and how many threads send?",
                "Threads 0 to ranks - 1 send, one to each CTA; the others have nothing to do.",
                "if (threadIdx.x < ranks) around the store.",
            ),
            signs=(Sign("trap", text="^'mapa"),),
        ),
        KernelMistake(
            key="place-of-the-receiver",
            says="Several CTAs sent to the same place: the sender's rank must choose the element of parts, the "
            "receiver's rank the CTA.",
            hints=(
                "In CTA 0, which element of parts is for the number of CTA 1?",
                "parts[r] is the number of rank r, in every CTA. So each sender has one element, the same everywhere.",
                "mapa(smem_address(&parts[rank]), r) for the copy in CTA r.",
            ),
            signs=(
                Sign("race", object="parts", code="st_async", text=r"^[^\n]*of CTA (\d+) writes[^\n]*of CTA (?!\1)\d"),
            ),
        ),
        KernelMistake(
            key="own-only",
            says="Every CTA ended up with values that were not sent to it: the store went to the sender's own "
            "shared memory.",
            hints=(
                "What does smem_address(&parts[0]) name, seen from CTA 1?",
                "It is CTA 1's own variable. mapa turns it into the address of the same variable in another CTA.",
                "mapa(smem_address(&parts[rank]), r) for the copy in CTA r.",
            ),
            signs=(Sign("race", object="parts", code=r"st_async\w*\(mapa\([^,]*,\s*rank\)"),),
            model=lambda values, ranks: _poisoned_total(values, ranks, ranks - 1),
        ),
        KernelMistake(
            key="sent-twice",
            says="A CTA sent to the same place more than once.",
            hints=(
                "Which thread sends to which CTA?",
                "Each number goes once to each CTA: ranks stores by every CTA.",
                "Threads 0 to ranks - 1 send, thread r to CTA r.",
            ),
            signs=(Sign("race", object="parts", code="st_async"),),
        ),
        KernelMistake(
            key="mapa-missing",
            says="Every CTA saw its own number only: without mapa, an address is one in the own CTA.",
            hints=(
                "What does smem_address(&parts[1]) name, seen from CTA 0?",
                "It is CTA 0's own variable. mapa turns it into the address of the same variable in another CTA.",
                "mapa(smem_address(…), r) for the CTA of rank r.",
            ),
            signs=(Sign("uninitialized", code="ld_shared_cluster", lacks="mapa"),),
            model=lambda values, ranks: (ranks * values.sum(axis=1)).astype(np.int32),
        ),
        KernelMistake(
            key="read-too-early",
            says="parts was read before the other CTAs' values were known to be there.",
            hints=(
                "What tells a CTA that all values have arrived?",
                "With st.async: a wait on the own barrier. With ordinary stores: cluster_sync() after them.",
                "mbarrier_wait_parity_cluster(&arrived, 0) by all threads before the sum.",
            ),
            signs=(
                Sign(("race", "uninitialized"), object="parts"),
                Sign(("exit-pending", "remote-exited"), lacks=r"wait_parity|test_wait|ld_shared_cluster"),
            ),
            when=lambda case, expected, got: _some_missing(case, got),
        ),
    ),
    hints=(
        "Before anything remote: a barrier in each CTA, made known to the whole cluster. After it: each CTA "
        "sends to all.",
        "Announce 4 bytes a rank at the own barrier; thread r of a CTA sends to rank r; all threads wait for the "
        "own barrier.",
        "st_async_u32(mapa(smem_address(&parts[rank]), r), mine, mapa(smem_address(&arrived), r)) for r < ranks.",
    ),
)


def _poisoned_total(values: Array, ranks: int, missing: int) -> Array:
    """A total in which all parts but the own one still hold 0xFF bytes, which is -1 as an integer."""
    if ranks == 1:
        raise ValueError("nothing is missing in a cluster of one")
    totals: Array = (values.sum(axis=1) - missing).astype(np.int32)
    return totals


def _some_missing(case: Case, got: Array) -> bool:
    """Whether every total is a sum of some CTAs' parts with -1 or 0 in place of the others."""
    values, ranks = case.inputs["values"], case.inputs["ranks"]
    parts = values.sum(axis=1).reshape(-1, ranks)
    for cluster, mine in zip(parts, np.asarray(got).reshape(-1, ranks), strict=True):
        subsets = range(1 << ranks)
        present = [[bool(s >> r & 1) for r in range(ranks)] for s in subsets]
        for blank in (-1, 0):
            sums = {int(np.where(p, cluster, blank).sum()) for p in present}
            if all(int(total) in sums for total in mine):
                break
        else:
            return False
    return True
