"""Right and wrong answers to the exercises on the compiled kernels."""

import math
import struct

import numpy as np

from mlacademy import fp8, roofline
from mlacademy.grading.answers import right, wrong
from mlacademy.ops.params import Block
from mlacademy.schedule import schedule

# 12.1


def placed(costs, parts):
    loads = np.zeros(parts, dtype=int)
    for cost in costs:
        loads[loads.argmin()] += cost
    return int(loads.max())


def equal_pieces(n, count):
    return [(n + i) // count for i in range(count)]


def cheapest(blocks, priced, sizes=None):
    options = []
    for size in sizes or range(max(blocks), 0, -1):
        counts = [math.ceil(n / size) for n in blocks]
        options.append((priced(counts, size), -size, counts))
    time, _, counts = min(options)
    return counts, time


@right("12.1", "with NumPy, all options in a list")
def choose_splits(blocks, parts, block, enter, partial):
    def priced(counts, size):
        pieces = [n for b, s in zip(blocks, counts, strict=True) for n in equal_pieces(b, s)]
        longest_first = sorted((enter + block * n for n in pieces), reverse=True)
        return placed(longest_first, parts) + partial * sum(s for s in counts if s > 1)

    return cheapest(blocks, priced)


@right("12.1", "with one loop and plain lists")
def choose_splits_in_a_loop(blocks, parts, block, enter, partial):
    best, best_counts = None, None
    size = max(blocks)
    while size > 0:
        loads, counts, pieces = [0] * parts, [], []
        for n in blocks:
            count = (n - 1) // size + 1
            short, extra = divmod(n, count)
            counts.append(count)
            pieces.extend([short + 1] * extra + [short] * (count - extra))
        pieces.sort()
        while pieces:
            loads[loads.index(min(loads))] += enter + block * pieces.pop()
        time = max(loads) + partial * (sum(counts) - counts.count(1))
        if best is None or time < best:
            best, best_counts = time, counts
        size -= 1
    return best_counts, best


@wrong("12.1", "always one block a piece", says="You cut as finely as possible")
def choose_finest(blocks, parts, block, enter, partial):
    time = placed([enter + block] * sum(blocks), parts)
    return list(blocks), time + partial * sum(n for n in blocks if n > 1)


@wrong("12.1", "never cut", says="You left every request whole")
def choose_whole(blocks, parts, block, enter, partial):
    return [1] * len(blocks), placed(sorted((enter + block * n for n in blocks), reverse=True), parts)


@wrong("12.1", "entering is free", says="Your time has no cost for entering")
def choose_without_entering(blocks, parts, block, enter, partial):
    return choose_splits(blocks, parts, block, 0, partial)


@wrong("12.1", "merging is free", says="Your time ends before the merge")
def choose_without_merge(blocks, parts, block, enter, partial):
    return choose_splits(blocks, parts, block, enter, 0)


@wrong("12.1", "whole requests are merged too", says="You merge whole requests too")
def choose_merging_all(blocks, parts, block, enter, partial):
    def priced(counts, size):
        pieces = [n for b, s in zip(blocks, counts, strict=True) for n in equal_pieces(b, s)]
        return placed(sorted((enter + block * n for n in pieces), reverse=True), parts) + partial * sum(counts)

    return cheapest(blocks, priced)


@wrong("12.1", "the mean of the loads", says="You divided the work by the number of partitions")
def choose_by_mean(blocks, parts, block, enter, partial):
    def priced(counts, size):
        work = block * sum(blocks) + enter * sum(counts)
        return math.ceil(work / parts) + partial * sum(s for s in counts if s > 1)

    return cheapest(blocks, priced)


@wrong("12.1", "in the order of the requests", says="You handed the pieces out in the order of the requests")
def choose_in_order(blocks, parts, block, enter, partial):
    def priced(counts, size):
        pieces = [n for b, s in zip(blocks, counts, strict=True) for n in equal_pieces(b, s)[::-1]]
        return placed([enter + block * n for n in pieces], parts) + partial * sum(s for s in counts if s > 1)

    return cheapest(blocks, priced)


@wrong("12.1", "full pieces and a remainder", says="Your pieces are full ones and a remainder")
def choose_with_remainder(blocks, parts, block, enter, partial):
    def priced(counts, size):
        pieces = [min(size, n - k) for n in blocks for k in range(0, n, size)]
        longest_first = sorted((enter + block * n for n in pieces), reverse=True)
        return placed(longest_first, parts) + partial * sum(s for s in counts if s > 1)

    return cheapest(blocks, priced)


@wrong("12.1", "the smaller of two equal sizes", says="Fewer pieces need less scratch memory")
def choose_small_sizes(blocks, parts, block, enter, partial):
    best = None
    for size in range(1, max(blocks) + 1):
        counts = [math.ceil(n / size) for n in blocks]
        pieces = [n for b, s in zip(blocks, counts, strict=True) for n in equal_pieces(b, s)]
        time = placed(sorted((enter + block * n for n in pieces), reverse=True), parts)
        time += partial * sum(s for s in counts if s > 1)
        if best is None or time < best[1]:
            best = counts, time
    return best


@wrong("12.1", "the library's schedule", says="this exercise asks you to write that yourself")
def choose_by_library(blocks, parts, block, enter, partial):
    plan = schedule([64 * n for n in blocks], parts)
    return plan.splits.tolist(), int(plan.cost().total)


# 12.2


def block_of(start, stride_b, stride_s, stride_h, scale, b, s_q, h_q):
    fields = (start, stride_b, stride_s, stride_h, scale * math.log2(math.e), b, s_q, h_q)
    return np.frombuffer(struct.pack("<Q3qf3i", *fields), np.uint8)


@right("12.2", "by formulas")
def pack_query(address, pool, first_head, head_step, first_column, h_q, scale):
    s_q, b, heads, width = pool
    start = address + 2 * (first_head * width + first_column)
    strides = heads * width, b * heads * width, head_step * width
    if start % 16 or any(stride % 8 for stride in strides):
        return None
    return block_of(start, *strides, scale, b, s_q, h_q)


@right("12.2", "by asking NumPy's view, as a list of bytes")
def pack_query_by_view(address, pool, first_head, head_step, first_column, h_q, scale):
    # A view of one element that pretends to be the pool: only its strides are looked at.
    whole = np.lib.stride_tricks.as_strided(
        np.zeros(1, np.uint16), pool, [2 * math.prod(pool[axis + 1 :]) for axis in range(4)], writeable=False
    )
    bytes_b, bytes_s, bytes_h = (whole.strides[axis] for axis in (1, 0, 2))
    bytes_h *= head_step
    start = address + first_head * whole.strides[2] + first_column * whole.strides[3]
    if math.gcd(start, bytes_b, bytes_s, bytes_h, 16) < 16:
        return None
    return list(
        start.to_bytes(8, "little")
        + b"".join((n // 2).to_bytes(8, "little") for n in (bytes_b, bytes_s, bytes_h))
        + struct.pack("<f", scale / math.log(2))
        + b"".join(n.to_bytes(4, "little") for n in (pool[1], pool[0], h_q))
    )


@right("12.2", "the scale in float32")
def pack_query_in_float32(address, pool, first_head, head_step, first_column, h_q, scale):
    block = pack_query(address, pool, first_head, head_step, first_column, h_q, scale)
    if block is None:
        return None
    product = np.float32(scale) * np.float32(math.log2(math.e))
    return np.concatenate([block[:32], np.frombuffer(product.tobytes(), np.uint8), block[36:]])


def packed_with(**other):
    """A packer with some of its numbers computed otherwise."""

    def pack(address, pool, first_head, head_step, first_column, h_q, scale):
        s_q, b, heads, width = pool
        at = {
            "start": address + 2 * (first_head * width + first_column),
            "stride_b": heads * width,
            "stride_s": b * heads * width,
            "stride_h": head_step * width,
            "scale": scale,
            "b": b,
            "s_q": s_q,
            "h_q": h_q,
        }
        if at["start"] % 16 or any(at[name] % 8 for name in ("stride_b", "stride_s", "stride_h")):
            return None
        given = {"address": address, "width": width, "offset": first_head * width + first_column}
        return block_of(**(at | {name: change(at, given) for name, change in other.items()}))

    return pack


@wrong("12.2", "no check of the alignment", says="You packed a block for a query that the kernel cannot read")
def pack_unchecked(address, pool, first_head, head_step, first_column, h_q, scale):
    s_q, b, heads, width = pool
    start = address + 2 * (first_head * width + first_column)
    return block_of(start, heads * width, b * heads * width, head_step * width, scale, b, s_q, h_q)


@wrong("12.2", "strides in bytes", says="Your strides are in bytes")
def pack_bytes(*values):
    names = ("stride_b", "stride_s", "stride_h")
    return packed_with(**{name: lambda at, _, name=name: 2 * at[name] for name in names})(*values)


@wrong("12.2", "strides of a contiguous tensor", says="Your strides are those of a contiguous")
def pack_contiguous(*values):
    return packed_with(
        stride_b=lambda at, _: at["s_q"] * at["h_q"] * 576,
        stride_s=lambda at, _: at["h_q"] * 576,
        stride_h=lambda at, _: 576,
    )(*values)


@wrong("12.2", "b and s exchanged", says="You exchanged the strides of b and s_q")
def pack_exchanged(*values):
    return packed_with(stride_b=lambda at, _: at["stride_s"], stride_s=lambda at, _: at["stride_b"])(*values)


@wrong("12.2", "every head of the pool", says="Your q_stride_h ignores head_step")
def pack_every_head(*values):
    return packed_with(stride_h=lambda at, given: given["width"])(*values)


@wrong("12.2", "the beginning of the pool", says="Your pointer is the beginning of the pool")
def pack_start_of_pool(*values):
    return packed_with(start=lambda at, given: given["address"])(*values)


@wrong("12.2", "an offset in elements", says="You added the offset in elements")
def pack_elements(*values):
    return packed_with(start=lambda at, given: given["address"] + given["offset"])(*values)


@wrong("12.2", "scale in natural units", says="Your scale is in natural units")
def pack_natural(*values):
    return packed_with(scale=lambda at, _: at["scale"] * math.log(2))(*values)


@wrong("12.2", "s_q before b", says="You wrote s_q where b belongs")
def pack_swapped_counts(*values):
    return packed_with(b=lambda at, _: at["s_q"], s_q=lambda at, _: at["b"])(*values)


@wrong("12.2", "strides of 32 bits", says="block has 36 bytes, expected 48")
def pack_narrow(address, pool, first_head, head_step, first_column, h_q, scale):
    s_q, b, heads, width = pool
    strides = heads * width, b * heads * width, head_step * width
    fields = (address + 2 * (first_head * width + first_column), *strides, scale * math.log2(math.e), b, s_q, h_q)
    return np.frombuffer(struct.pack("<Q3if3i", *fields), np.uint8)


@wrong("12.2", "the library's block", says="this exercise asks you to write that yourself")
def pack_by_library(address, pool, first_head, head_step, first_column, h_q, scale):
    strides = pool[2] * pool[3], pool[1] * pool[2] * pool[3], head_step * pool[3]
    block = Block(b=pool[1], s_q=pool[0], h_q=h_q, q_strides=strides)
    block.scale(scale)
    return np.frombuffer(bytes(block)[:32], np.uint8)


# 12.3


def cost_of_rounding(x, form):
    bits, smallest, scale = form
    exponent = np.maximum(np.frexp(np.abs(x) / scale)[1] - 1, smallest)
    return scale * 2.0 ** (exponent - bits - 1)


@right("12.3", "with arrays")
def error_bounds(p, v, pipelines):
    bounds = []
    for v_form, p_form in pipelines:
        dv, dp = cost_of_rounding(v, v_form), cost_of_rounding(p, p_form)
        bounds.append(float(np.max((p + dp) @ dv + dp @ np.abs(v))))
    return bounds, bounds.index(max(bounds))


@right("12.3", "number by number")
def error_bounds_by_numbers(p, v, pipelines):
    def spread(x, form):
        bits, smallest, scale = form
        exponent, y = smallest, abs(float(x)) / scale
        while y >= 2.0 ** (exponent + 1):
            exponent += 1
        return scale * 2.0**exponent / 2 ** (bits + 1)

    bounds = []
    for v_form, p_form in pipelines:
        columns = []
        for column in v.T:
            worst = 0.0
            for weight, value in zip(p, column, strict=True):
                dp, dv = spread(weight, p_form), spread(value, v_form)
                worst += weight * dv + abs(value) * dp + dp * dv
            columns.append(worst)
        bounds.append(float(max(columns)))
    return bounds, max(range(len(bounds)), key=bounds.__getitem__)


def bounded_by(cost, total=lambda p, v, dp, dv: p @ dv + dp @ np.abs(v) + dp @ dv, over=np.max, pick=np.argmax):
    """A bound whose parts are computed otherwise."""

    def bounds(p, v, pipelines):
        found = [float(over(total(p, v, cost(p, fp), cost(v, fv)))) for fv, fp in pipelines]
        return found, int(pick(found))

    return bounds


@wrong("12.3", "the whole spacing", says="Your bound is twice too large")
def bounds_of_spacings(p, v, pipelines):
    return bounded_by(lambda x, form: 2 * cost_of_rounding(x, form))(p, v, pipelines)


@wrong("12.3", "no smallest exponent", says="You let the spacing shrink without end")
def bounds_without_floor(p, v, pipelines):
    def relative(x, form):
        return np.where(x == 0, 0.0, cost_of_rounding(x, (form[0], -100_000, form[2])))

    return bounded_by(relative)(p, v, pipelines)


@wrong("12.3", "scale forgotten", says="Your bound does not depend on the scale")
def bounds_without_scale(p, v, pipelines):
    return bounded_by(lambda x, form: cost_of_rounding(x, (*form[:2], 1.0)))(p, v, pipelines)


@wrong("12.3", "scale not multiplied back", says="The spacing you have is that of the codes")
def bounds_of_codes(p, v, pipelines):
    return bounded_by(lambda x, form: cost_of_rounding(x, form) / form[2])(p, v, pipelines)


@wrong("12.3", "exponent of the value itself", says="You took the exponent of x itself")
def bounds_of_values(p, v, pipelines):
    return bounded_by(lambda x, form: form[2] * cost_of_rounding(x, (*form[:2], 1.0)))(p, v, pipelines)


@wrong("12.3", "weights are exact", says="You counted the values' rounding only")
def bounds_of_cache(p, v, pipelines):
    return bounded_by(cost_of_rounding, lambda p, v, dp, dv: p @ dv)(p, v, pipelines)


@wrong("12.3", "values are exact", says="You counted the weights' rounding only")
def bounds_of_weights(p, v, pipelines):
    return bounded_by(cost_of_rounding, lambda p, v, dp, dv: dp @ np.abs(v))(p, v, pipelines)


@wrong("12.3", "no cross term", says="You left out the product of the two errors")
def bounds_first_order(p, v, pipelines):
    return bounded_by(cost_of_rounding, lambda p, v, dp, dv: p @ dv + dp @ np.abs(v))(p, v, pipelines)


@wrong("12.3", "signed values", says="You used the values with their signs")
def bounds_signed(p, v, pipelines):
    return bounded_by(cost_of_rounding, lambda p, v, dp, dv: p @ dv + dp @ v + dp @ dv)(p, v, pipelines)


@wrong("12.3", "the best pipeline", says="you named the pipeline with the smallest one")
def bounds_best(p, v, pipelines):
    return bounded_by(cost_of_rounding, pick=np.argmin)(p, v, pipelines)


@wrong("12.3", "mean over columns", says="You averaged the columns")
def bounds_mean(p, v, pipelines):
    return bounded_by(cost_of_rounding, over=np.mean)(p, v, pipelines)


@wrong("12.3", "what the library's codes lose", says="this exercise asks you to write that yourself")
def bounds_by_library(p, v, pipelines):
    rounded = fp8.decode_e4m3(fp8.encode_e4m3(v))
    return [float(np.max(p @ np.abs(v - rounded)))] * len(pipelines), 0


# 12.4


@right("12.4", "three times in a dict")
def what_binds(b, s_q, h_q, topk, card):
    pair = h_q // 64
    partitions = max(card["sms"] // s_q // pair, 1)
    rounds = math.ceil(b * math.ceil(topk / 64) / partitions)
    times = {
        "memory": 656 * b * s_q * topk / card["bytes_per_s"],
        "tensor cores": 2176 * rounds / card["clock_hz"],
        "conversion": rounds * 64 * card["convert_cycles"] / pair / card["clock_hz"],
    }
    part = max(times, key=times.get)
    return part, times[part]


@right("12.4", "cycles first")
def what_binds_in_cycles(b, s_q, h_q, topk, card):
    share = 1 if h_q == 64 else 2
    room = card["sms"] // (s_q * share) or 1
    blocks = b * ((topk + 63) // 64)
    most = (blocks + room - 1) // room
    flops = 2 * 64 * 64 * 576 + 2 * 64 * 512 * 64
    rows = (512 + 4 * 4 + 64 * 2) * topk * s_q * b
    cycles = [rows * card["clock_hz"] / card["bytes_per_s"], most * flops / 4096]
    cycles.append(most * 64 / share * card["convert_cycles"])
    largest = cycles.index(max(cycles))
    return ("memory", "tensor cores", "conversion")[largest], cycles[largest] / card["clock_hz"]


def times_with(b, s_q, h_q, topk, card, **other):
    pair = h_q // 64
    partitions = max(card["sms"] // other.get("lists", s_q) // pair, 1)
    rounds = other.get("rounds", math.ceil(b * math.ceil(topk / 64) / partitions))
    memory = other.get("row", 656) * b * other.get("lists", s_q) * topk / card["bytes_per_s"]
    multiply = other.get("cycles", 2176) * rounds / card["clock_hz"]
    convert = 64 * card["convert_cycles"] * rounds / other.get("share", pair) / card["clock_hz"]
    return {"memory": memory, "tensor cores": multiply, "conversion": convert}


def largest(times):
    part = max(times, key=times.get)
    return part, times[part]


@wrong("12.4", "work like water", says="You spread the work over all SMs as if it could be poured")
def binds_evenly(b, s_q, h_q, topk, card):
    share = b * s_q * math.ceil(topk / 64) * (h_q // 64) / card["sms"]
    return largest(times_with(b, s_q, h_q, topk, card, rounds=share))


@wrong("12.4", "all added up", says="You added the times")
def binds_added(b, s_q, h_q, topk, card):
    times = times_with(b, s_q, h_q, topk, card)
    return largest(times)[0], sum(times.values())


@wrong("12.4", "the fastest", says="You took the smallest time")
def binds_smallest(b, s_q, h_q, topk, card):
    times = times_with(b, s_q, h_q, topk, card)
    part = min(times, key=times.get)
    return part, times[part]


@wrong("12.4", "no partition at all", says="ZeroDivisionError")
def binds_without_floor(b, s_q, h_q, topk, card):
    rounds = math.ceil(b * math.ceil(topk / 64) / (card["sms"] // s_q // (h_q // 64)))
    return largest(times_with(b, s_q, h_q, topk, card, rounds=rounds))


@wrong("12.4", "a bf16 cache", says="You read 1,152 bytes a token")
def binds_bf16(b, s_q, h_q, topk, card):
    return largest(times_with(b, s_q, h_q, topk, card, row=1152))


@wrong("12.4", "each CTA reads all", says="You read every row once for each 64 heads")
def binds_twice(b, s_q, h_q, topk, card):
    return largest(times_with(b, s_q, h_q, topk, card, row=656 * (h_q // 64)))


@wrong("12.4", "each CTA converts all", says="You let each CTA convert all tokens")
def binds_unshared(b, s_q, h_q, topk, card):
    return largest(times_with(b, s_q, h_q, topk, card, share=1))


@wrong("12.4", "multiply-adds", says="You counted a multiply and its add as one operation")
def binds_half(b, s_q, h_q, topk, card):
    return largest(times_with(b, s_q, h_q, topk, card, cycles=1088))


@wrong("12.4", "scores only", says="You counted the scores only")
def binds_scores(b, s_q, h_q, topk, card):
    return largest(times_with(b, s_q, h_q, topk, card, cycles=1152))


@wrong("12.4", "one query token", says="Your time does not depend on s_q")
def binds_one_token(b, s_q, h_q, topk, card):
    return largest(times_with(b, s_q, h_q, topk, card, lists=1))


@wrong("12.4", "the library's roofline", says="this exercise asks you to write that yourself")
def binds_by_library(b, s_q, h_q, topk, card):
    found = roofline.roofline(roofline.Shape(b, h_q, s_q, topk))
    return found.binding, found.floor


# 12.5


@right("12.5", "two rounds of multiply and fold")
def terms(requests, lengths):
    words = []
    for request, length in zip(requests, lengths, strict=True):
        word = (request * 2_654_435_761 + length * 2_246_822_519 + 374_761_393) & 0xFFFFFFFF
        for _ in range(2):
            word = (word ^ word >> 15) * 2_146_121_005 & 0xFFFFFFFF
        words.append(word ^ word >> 16)
    return words


@right("12.5", "a polynomial modulo a prime, in NumPy")
def terms_by_prime(requests, lengths):
    prime, words = 2**31 - 1, []
    for request, length in zip(requests, lengths, strict=True):
        x = pow(48_271, request + 1, prime)
        words.append((x * x * (length + 1) + pow(x + length, 5, prime) * 7_919) % prime)
    return np.array(words, np.int64)


@wrong("12.5", "the lengths themselves", says="Your term is the length alone")
def terms_plain(requests, lengths):
    return list(lengths)


@wrong("12.5", "times the request", says="Request 0 then adds nothing")
def terms_times_request(requests, lengths):
    return [r * n for r, n in zip(requests, lengths, strict=True)]


@wrong("12.5", "a weighted sum", says="Your term is the length times a weight")
def terms_weighted(requests, lengths):
    return [(r + 1) * n for r, n in zip(requests, lengths, strict=True)]


@wrong("12.5", "request plus length", says="You add the request's number to the length")
def terms_added(requests, lengths):
    return [r + n for r, n in zip(requests, lengths, strict=True)]


@wrong("12.5", "exclusive or", says="You combine request and length by exclusive or")
def terms_xor(requests, lengths):
    return [r ^ n for r, n in zip(requests, lengths, strict=True)]


@wrong("12.5", "shifted by the request", says="You shift the length by the request's number")
def terms_shifted(requests, lengths):
    return [(n << r) % 2**32 for r, n in zip(requests, lengths, strict=True)]


@wrong("12.5", "squares", says="Your term is a square")
def terms_squared(requests, lengths):
    return [n * n for n in lengths]


@wrong("12.5", "wider than a word", says="expected an integer of 32 bits")
def terms_too_wide(requests, lengths):
    return [(r + 1) * 0x9E3779B1 * (n + 1) for r, n in zip(requests, lengths, strict=True)]


@wrong("12.5", "another term each time", says="the same pair must give the same term every time")
def terms_by_place(requests, lengths):
    return [place * 2_654_435_761 % 2**32 for place, _ in enumerate(lengths)]


@wrong("12.5", "the library's scheduler", says="this exercise asks you to write that yourself")
def terms_by_library(requests, lengths):
    return schedule(lengths, 66).splits.tolist()


# 12.6

GUARD_FRAME = """
#include "base.cuh"
using namespace mla;

extern "C" __global__ void guard(const int* lengths, const int* planned, int b, const uint16_t* values,
                                 uint16_t* out, int n, int* first) {
    __shared__ int changed;
    BODY
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = changed < b ? 0x7FFF : values[i];
    if (blockIdx.x == 0 && threadIdx.x == 0) *first = changed;
}
"""
GUARD_START = "if (threadIdx.x == 0) changed = b;"
GUARD_MEET = "__syncthreads();"
GUARD_LOOP = """for (int r = threadIdx.x; r < b; r += blockDim.x)
        if (lengths[r] != planned[r]) atomicMin(&changed, r);"""


def guard_kernel(start=GUARD_START, meet=GUARD_MEET, loop=GUARD_LOOP, end=GUARD_MEET):
    return GUARD_FRAME.replace("BODY", "\n    ".join([start, meet, loop, end]))


@right("12.6", "an atomic minimum")
def guard_atomic():
    return guard_kernel()


@right("12.6", "one warp reduces")
def guard_warp():
    loop = """if (threadIdx.x < 32) {
        int mine = b;
        for (int r = threadIdx.x; r < b; r += 32)
            if (lengths[r] != planned[r]) mine = min(mine, r);
        mine = __reduce_min_sync(0xFFFFFFFF, mine);
        if (threadIdx.x == 0) changed = mine;
    }"""
    return guard_kernel(start="", meet="", loop=loop)


@right("12.6", "thread 0 alone, from the end")
def guard_alone():
    loop = """if (threadIdx.x == 0) {
        changed = b;
        for (int r = b - 1; r >= 0; --r)
            if (lengths[r] != planned[r]) changed = r;
    }"""
    return guard_kernel(start="", meet="", loop=loop)


@wrong("12.6", "no first value", says="used before thread 0's first value was known")
def guard_without_start():
    return guard_kernel(start="")


@wrong("12.6", "no meeting before the loop", says="used before thread 0's first value was known")
def guard_without_first_meeting():
    return guard_kernel(meet="")


@wrong("12.6", "no meeting after the loop", says="while others were still comparing")
def guard_without_second_meeting():
    return guard_kernel(end="")


@wrong("12.6", "plain stores", says="Several threads store to `changed` without order")
def guard_plain():
    return guard_kernel(loop=GUARD_LOOP.replace("atomicMin(&changed, r)", "changed = r"))


@wrong("12.6", "a request a thread", says="Lengths far down in the batch were not compared")
def guard_without_loop():
    loop = "const int r = threadIdx.x; if (r < b && lengths[r] != planned[r]) atomicMin(&changed, r);"
    return guard_kernel(loop=loop)


@wrong("12.6", "a request a lane", says="Only 32 lengths were compared")
def guard_one_step_of_a_warp():
    loop = "const int r = threadIdx.x; if (r < 32 && r < b && lengths[r] != planned[r]) atomicMin(&changed, r);"
    return guard_kernel(loop=loop)


@wrong("12.6", "the first 512 requests", says="Lengths far down in the batch")
def guard_first_512():
    return guard_kernel(loop=GUARD_LOOP.replace("r < b", "r < min(b, 512)"))


@wrong("12.6", "no bound", says="read a length beyond the last request")
def guard_without_bound():
    return guard_kernel(loop="const int r = threadIdx.x; if (lengths[r] != planned[r]) atomicMin(&changed, r);")


@wrong("12.6", "growth only", says="Only lengths that grew were noticed")
def guard_growth():
    return guard_kernel(loop=GUARD_LOOP.replace("!=", ">"))


@wrong("12.6", "shrinking only", says="Only lengths that shrank were noticed")
def guard_shrinking():
    return guard_kernel(loop=GUARD_LOOP.replace("!=", "<"))


@wrong("12.6", "the last request", says="You kept the largest request that differs")
def guard_last():
    loop = """if (threadIdx.x == 0)
        for (int r = 0; r < b; ++r)
            if (lengths[r] != planned[r]) changed = r;"""
    return guard_kernel(loop=loop)


@wrong("12.6", "sums", says="You compared the sums of the lengths")
def guard_sums():
    loop = """if (threadIdx.x == 0) {
        int more = 0, r = 0;
        for (int i = 0; i < b; ++i) more += lengths[i] - planned[i];
        while (more != 0 && lengths[r] == planned[r]) ++r;
        if (more != 0) changed = r;
    }"""
    return guard_kernel(loop=loop)


@wrong("12.6", "CTA 0 compares for all", says="Only one CTA compared")
def guard_one_cta():
    return guard_kernel(loop="if (blockIdx.x == 0)\n    " + GUARD_LOOP)
