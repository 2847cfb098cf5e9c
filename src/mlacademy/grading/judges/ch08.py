"""Judges of chapter 08, WGMMA: a descriptor, a chain, its fragment, a second product, a ring, a hand-over."""

from __future__ import annotations

from mlacademy.grading.judges import (
    wgmma_chain,
    wgmma_descriptor,
    wgmma_handover,
    wgmma_products,
    wgmma_ring,
    wgmma_store,
)

EXERCISES = (
    wgmma_descriptor.DESCRIPTOR,
    wgmma_chain.CHAIN,
    wgmma_store.STORE,
    wgmma_products.PRODUCTS,
    wgmma_ring.RING,
    wgmma_handover.HAND_OVER,
)
