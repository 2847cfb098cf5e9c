"""Pictures: charts for chapters, the core pictures, and the same under sliders.

Everything returns a `Picture` (`.svg`, `.text` = the full text twin, `.title`, `.save(path)`): inline SVG in a
notebook, text in a terminal, readable in light and dark because ink is `currentColor` and accents read on both.

Charts (keyword arguments have defaults where shown by their docstrings; `text` says what the chart shows):

    viz.lines({"naive": ys, "absorbed": zs}, x=xs, xlabel="tokens", ylabel="GiB", title="…", text="…", logx=True)
    viz.bars({"bytes": [1152, 656, 584]}, labels=["BF16", "V3.2", "MODEL1"], ylabel="bytes", title="…", text="…")
    viz.scatter({"tile 0": (xs, ys)}, xlabel="value", ylabel="error", title="…", text="…")
    viz.heatmap(matrix, rows=names, columns=names, unit="bytes", title="…", text="…")

The map of the course, with a chapter marked:

    viz.course_map("04")

Core pictures (data always comes from the library):

    viz.token_bytes("V32", 64, 3, data=cache[0])               # byte map of a cached token
    viz.number_line(17.0, scale=1.0, overflow="saturate")      # E4M3: neighbours, ties, bits
    viz.compression(heads=128, latent=512, context=32768)      # cache bytes by form of storage
    viz.splits(schedule([128, 128], 66), ctas_per_partition=2) # partitions × blocks
    viz.softmax_steps(scores, block=4, valid=mask, step=2)     # online softmax, block by block
    viz.combine_weights([4.2, 3.8, 2.1], sink=3.0)             # weights of the splits
    viz.swizzle_map("128B", row_bytes=128, column=2)           # where chunks land, and what the banks need
    viz.fragment_map("D", n=64, thread=37)                     # who holds which element of a wgmma operand
    viz.timeline(report.trace, role="producer")                # a traced run: warps, copies, barriers, buffers
    viz.barrier_states(report.trace, "full[0]", step=4)        # an mbarrier after one event of a traced run
    viz.decode_bounds(Shape(b=128, h_q=64))                    # what binds a sparse decode (mlacademy.roofline)

The same under sliders; without ipywidgets, or with `MLACADEMY_STATIC=1`, the static picture of the default settings:

    viz.explore_token_bytes()    viz.explore_number_line()    viz.explore_compression()
    viz.explore_splits()         viz.explore_softmax()        viz.explore_combine()
    viz.explore_swizzle()        viz.explore_fragment()        viz.explore_decode_bounds()
    viz.explore_timeline(trace)  viz.explore_barrier(trace)    # on a traced run

Beside the pictures, the rule that `swizzle_map` counts by: `viz.bank_conflicts(addresses, access_bytes)`.
"""

from mlacademy.gpu.shared_memory import bank_conflicts
from mlacademy.viz.barrier_machine import barrier_states
from mlacademy.viz.byte_map import token_bytes
from mlacademy.viz.cache_sizes import compression
from mlacademy.viz.charts import bars, heatmap, lines, scatter
from mlacademy.viz.course_map import course_map
from mlacademy.viz.decode_bounds import decode_bounds
from mlacademy.viz.e4m3_line import number_line
from mlacademy.viz.fragment_grid import fragment_map
from mlacademy.viz.kernel_studies import explore_decode_bounds, explore_fragment, explore_swizzle
from mlacademy.viz.merge_weights import combine_weights
from mlacademy.viz.picture import Picture
from mlacademy.viz.softmax_stepper import softmax_steps
from mlacademy.viz.split_plan import splits
from mlacademy.viz.studies import (
    explore_combine,
    explore_compression,
    explore_number_line,
    explore_softmax,
    explore_splits,
    explore_token_bytes,
)
from mlacademy.viz.swizzle_tile import swizzle_map
from mlacademy.viz.timeline import timeline
from mlacademy.viz.trace_studies import explore_barrier, explore_timeline

__all__ = [
    "Picture",
    "bank_conflicts",
    "barrier_states",
    "bars",
    "combine_weights",
    "compression",
    "course_map",
    "decode_bounds",
    "explore_barrier",
    "explore_combine",
    "explore_compression",
    "explore_decode_bounds",
    "explore_fragment",
    "explore_number_line",
    "explore_softmax",
    "explore_splits",
    "explore_swizzle",
    "explore_timeline",
    "explore_token_bytes",
    "fragment_map",
    "heatmap",
    "lines",
    "number_line",
    "scatter",
    "softmax_steps",
    "splits",
    "swizzle_map",
    "timeline",
    "token_bytes",
]
