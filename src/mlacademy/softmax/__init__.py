"""Softmax the way decode kernels do it: streamed in base 2, split over workers, combined, with a sink.

Three stages, each with a plain twin to compare with:

* :func:`two_pass`: the textbook softmax-times-values, which needs every score at once;
* :func:`online_softmax`: the same result from one pass over blocks of scores (chapter 05);
* :func:`partials` and :func:`combine`: several independent passes, merged afterwards (chapter 06).

Units. A name without a suffix is in natural-log units (``lse``, ``sink``); ``_log2`` marks base 2. The two empty
markers differ on purpose, as they do in the kernels: a *final* ``lse`` of an empty row is ``+inf``, while the
*partial* ``lse_log2`` of an empty split is ``-inf``, so that it weighs nothing in :func:`combine`.

Left out on purpose: where scores come from (``mlacademy.attention``) and who does which block (``mlacademy.schedule``).
"""

from mlacademy.softmax.online import LOG2E, MAX_INIT, OnlineSoftmax, Step, online_softmax, two_pass
from mlacademy.softmax.splits import apply_sink, combine, combine_weights, combined_lse_log2, partials

__all__ = [
    "LOG2E",
    "MAX_INIT",
    "OnlineSoftmax",
    "Step",
    "apply_sink",
    "combine",
    "combine_weights",
    "combined_lse_log2",
    "online_softmax",
    "partials",
    "two_pass",
]
