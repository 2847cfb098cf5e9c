"""Right and wrong answers to assignment 09."""

import re
from pathlib import Path

from mlacademy import gpu, notebooks
from mlacademy.gpu import samples
from mlacademy.grading.answers import right, wrong

NOTEBOOK = Path(__file__).with_name("09_pipeline.ipynb")
CELLS = {cell["id"]: notebooks.source(cell) for cell in notebooks.read(NOTEBOOK)["cells"]}
REGION = re.compile(r" *// ### BEGIN SOLUTION\n.*?// ### END SOLUTION\n", re.DOTALL)


def solved(exercise):
    """The kernel of the notebook, gap filled."""
    return CELLS[exercise.replace(".", "-") + "-answer"].partition('r"""')[2].rpartition('"""')[0]


def filled(exercise, lines):
    """The kernel of the notebook with other lines in its gap."""
    return REGION.sub(lambda _: lines, solved(exercise))


def changed(exercise, *replacements):
    """The kernel of the notebook with something replaced, each of which must be there."""
    text = solved(exercise)
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    return text


# 09.1


@right("09.1", "three branches")
def three_roles():
    return solved("09.1")


@right("09.1", "one loop for all, stages by pointer")
def three_roles_one_loop():
    return filled(
        "09.1",
        """
    float d[32] = {};
    for (int n = 0; n < blocks; ++n) {
        Mbarrier* const there = shared.k_full + (n & 1);
        Mbarrier* const gone = shared.k_empty + (n & 1);
        const uint32_t round = n >> 1;
        switch (role) {
        case 0:
            if (round) mbarrier_wait_parity(gone, (round - 1) & 1);
            fill(shared, n & 1, rows, n);
            fence_proxy_async_shared_cta(), mbarrier_arrive(there);
            break;
        case 1:
            mbarrier_wait_parity(there, round & 1);
            make_scores(shared, n & 1, d);
            if (n) bar_sync(kFree, 256);
            store_p(shared, d);
            fence_proxy_async_shared_cta(), bar_arrive(kReady, 256);
            mbarrier_arrive(gone);
            break;
        default:
            mbarrier_wait_parity(there, round & 1);
            bar_sync(kReady, 256);
            add_output(shared, n & 1, d, !n);
            if (n < blocks - 1) bar_arrive(kFree, 256);
            mbarrier_arrive(gone);
        }
    }
    if (role == 2) store_output(out, d);
""",
    )


@wrong("09.1", "one role after the other", says="no role waits at k_full or k_empty")
def three_roles_in_turn():
    return filled(
        "09.1",
        """
    float s[32], o[32] = {};
    for (int n = 0; n < blocks; ++n) {
        if (role == 0) fill(shared, 0, rows, n), fence_proxy_async_shared_cta();
        __syncthreads();
        if (role == 1) make_scores(shared, 0, s), store_p(shared, s), fence_proxy_async_shared_cta();
        __syncthreads();
        if (role == 2) add_output(shared, 0, o, n == 0);
        __syncthreads();
    }
    if (role == 2) store_output(out, o);
""",
    )


@right("09.1", "p handed over by mbarriers, too")
def three_roles_only_mbarriers():
    return filled(
        "09.1",
        """
    __shared__ Mbarrier ready, free;
    if (threadIdx.x == 0) mbarrier_init(&ready, 128), mbarrier_init(&free, 128);
    fence_mbarrier_init(), __syncthreads();
    float s[32], o[32] = {};
    for (int n = 0; n < blocks; ++n) {
        const uint32_t stage = n % 2, round = n / 2 % 2;
        if (role == 0) {
            mbarrier_wait_parity(&shared.k_empty[stage], 1 - round);
            fill(shared, stage, rows, n);
            fence_proxy_async_shared_cta(), mbarrier_arrive(&shared.k_full[stage]);
            continue;
        }
        mbarrier_wait_parity(&shared.k_full[stage], round);
        if (role == 1) {
            make_scores(shared, stage, s);
            mbarrier_wait_parity(&free, 1 - n % 2);
            store_p(shared, s);
            fence_proxy_async_shared_cta(), mbarrier_arrive(&ready);
        } else {
            mbarrier_wait_parity(&ready, n % 2);
            add_output(shared, stage, o, n == 0);
            mbarrier_arrive(&free);
        }
        mbarrier_arrive(&shared.k_empty[stage]);
    }
    if (role == 2) store_output(out, o);
""",
    )


@wrong("09.1", "k not fenced", says="gather stores k with ordinary instructions")
def three_roles_k_unfenced():
    return changed(
        "09.1",
        ("            fence_proxy_async_shared_cta();\n            mbarrier_arrive", "            mbarrier_arrive"),
    )


@wrong("09.1", "p not fenced", says="scores stores p with ordinary instructions")
def three_roles_p_unfenced():
    return changed(
        "09.1", ("            fence_proxy_async_shared_cta();\n            bar_arrive", "            bar_arrive")
    )


@wrong("09.1", "waits for the first round", says="free from the start")
def three_roles_first_round():
    return changed("09.1", ("1 - block / 2 % 2", "block / 2 % 2"))


@wrong("09.1", "values keeps the buffer", says="Only one of the two multiplying roles")
def three_roles_values_keeps():
    return changed("09.1", ("            mbarrier_arrive(&shared.k_empty[block % 2]);\n", ""))


@wrong("09.1", "scores keeps the buffer", says="Only one of the two multiplying roles")
def three_roles_scores_keeps():
    return changed("09.1", ("            mbarrier_arrive(&shared.k_empty[stage]);\n", ""))


@wrong("09.1", "one thread arrives for gather", says="Some threads of a role arrive")
def three_roles_one_arrives():
    return changed(
        "09.1",
        ("mbarrier_arrive(&shared.k_full[stage])", "if (threadIdx.x == 0) mbarrier_arrive(&shared.k_full[stage])"),
    )


@wrong("09.1", "waits for p before the first block", says="p was free from the start")
def three_roles_first_p():
    return changed("09.1", ("if (block != 0) bar_sync(kFree", "bar_sync(kFree"))


@wrong("09.1", "never asks whether p is free", says="Nothing tells scores that p has been read")
def three_roles_no_free():
    return changed(
        "09.1",
        ("            if (block != 0) bar_sync(kFree, 256);\n", ""),
        ("            if (block + 1 != blocks) bar_arrive(kFree, 256);\n", ""),
    )


@wrong("09.1", "ready before p is stored", says="values reads p before it is complete")
def three_roles_ready_early():
    return changed(
        "09.1",
        ("            bar_arrive(kReady, 256);\n", ""),
        ("            store_p(shared, s);", "            bar_arrive(kReady, 256);\n            store_p(shared, s);"),
    )


@wrong("09.1", "free before p is read", says="called free too early")
def three_roles_free_early():
    free = "            if (block + 1 != blocks) bar_arrive(kFree, 256);\n"
    return changed("09.1", (free, ""), ("            add_output(", f"{free}            add_output("))


@wrong("09.1", "does not wait for the buffer", says="it does not wait for k_empty")
def three_roles_not_asked():
    return changed("09.1", ("            mbarrier_wait_parity(&shared.k_empty[stage], 1 - block / 2 % 2);\n", ""))


@wrong("09.1", "gives back before it multiplies", says="given back before its block has been read")
def three_roles_back_early():
    back = "            mbarrier_arrive(&shared.k_empty[block % 2]);\n"
    return changed("09.1", (back, ""), ("            add_output(", f"{back}            add_output("))


@wrong("09.1", "does not wait for the block", says="multiplied before it has been stored")
def three_roles_k_unready():
    return changed("09.1", ("            mbarrier_wait_parity(&shared.k_full[stage], block / 2 % 2);\n", ""))


@wrong("09.1", "full before it is stored", says="multiplied before it has been stored")
def three_roles_full_early():
    full = "            mbarrier_arrive(&shared.k_full[stage]);\n"
    return changed("09.1", (full, ""), ("            fill(", f"{full}            fill("))


@wrong("09.1", "parity of the block", says="You wait for the wrong phase")
def three_roles_parity():
    return changed("09.1", ("k_full[stage], block / 2 % 2", "k_full[stage], block % 2"))


@wrong("09.1", "frees after the last block only", says="values does not say it in the round before")
def three_roles_free_last():
    return changed("09.1", ("block + 1 != blocks", "block + 1 == blocks"))


@wrong("09.1", "counts one role", says="do not count 256 threads")
def three_roles_128():
    return changed("09.1", ("(kReady, 256)", "(kReady, 128)"), ("(kFree, 256)", "(kFree, 128)"))


@wrong("09.1", "a barrier of the whole CTA", says="__syncthreads waits for all three roles")
def three_roles_syncthreads():
    return changed("09.1", ("            bar_arrive(kReady, 256);", "            __syncthreads();"))


@wrong("09.1", "arrives twice", says="More arrivals come than the barrier counts")
def three_roles_twice():
    return changed(
        "09.1",
        ("            store_p(shared, s);", "            store_p(shared, s), mbarrier_arrive(&shared.k_full[stage]);"),
    )


@wrong("09.1", "every block is the first", says="added as if it were the first")
def three_roles_afresh():
    return changed("09.1", ("o, block == 0)", "o, true)"))


@wrong("09.1", "does not store", says="Nothing has been stored")
def three_roles_not_stored():
    return changed("09.1", ("        store_output(out, o);\n", ""))


# 09.2


@right("09.2", "piece by piece")
def convert_rows():
    return solved("09.2")


@right("09.2", "vector loads, places by address bits")
def convert_rows_vectors():
    return filled(
        "09.2",
        """
    const uint4 nothing = {};
    const float4 of = row ? *reinterpret_cast<const float4*>(row + kScalesAt) : float4{};
    uint8_t* const home = reinterpret_cast<uint8_t*>(tile) + 128 * token;
    for (int c = 0; c < 9; ++c) {
        const uint8_t* const from = row + (c < 8 ? 64 * c : kRopeAt) + 16 * part;
        const uint4 bytes = row ? *reinterpret_cast<const uint4*>(from) : nothing;
        const uint32_t word[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
        if (c == 8) {
            const uint4 more = row ? *reinterpret_cast<const uint4*>(from + 64) : nothing;
            *reinterpret_cast<uint4*>(home + 32 * 128 * c + (16 * part ^ (16 * token & 0x70))) = bytes;
            *reinterpret_cast<uint4*>(home + 32 * 128 * c + (16 * (part + 4) ^ (16 * token & 0x70))) = more;
            continue;
        }
        const float by = c < 2 ? of.x : c < 4 ? of.y : c < 6 ? of.z : of.w;
        for (int side = 0; side < 2; ++side) {
            float eight[8];
            for (int n = 0; n < 8; ++n) eight[n] = by * e4m3(word[2 * side + n / 4] >> 8 * (n % 4) & 0xFF);
            const uint32_t at = 32 * 128 * c + (32 * part + 16 * side ^ (16 * token & 0x70));
            put(reinterpret_cast<uint16_t*>(home + at), eight);
        }
    }
""",
    )


@wrong("09.2", "no swizzle", says="Your pieces lie in order")
def convert_rows_plain():
    return changed("09.2", ("j ^ token % 8", "j"))


@wrong("09.2", "swizzle of four pieces", says="permutes within four pieces")
def convert_rows_64b():
    return changed(
        "09.2",
        ("j ^ token % 8)], v);\n        }", "j ^ token % 4)], v);\n        }"),
        ("j ^ token % 8)], v);\n    }\n    // ###", "j ^ token % 4)], v);\n    }\n    // ###"),
    )


@wrong("09.2", "rotated pieces", says="You rotated the pieces")
def convert_rows_rotated():
    return changed("09.2", ("[8 * (j ^ token % 8)], v)", "[8 * ((j + token) % 8)], v)"))


@wrong("09.2", "swizzled by groups of tokens", says="divided the token by eight")
def convert_rows_groups():
    return changed("09.2", ("[8 * (j ^ token % 8)], v)", "[8 * (j ^ token / 8)], v)"))


@wrong("09.2", "the first scale for all", says="multiplied by the first scale")
def convert_rows_first_scale():
    return changed("09.2", ("scales[piece / 8]", "scales[0]"))


@wrong("09.2", "the scale of the thread", says="You chose the scale by the thread")
def convert_rows_thread_scale():
    return changed("09.2", ("scales[piece / 8]", "scales[piece % 4]"))


@wrong("09.2", "divides", says="You divided by the scale")
def convert_rows_divides():
    return changed("09.2", ("]) * scales", "]) / scales"))


@wrong("09.2", "not scaled", says="decoded but not scaled")
def convert_rows_unscaled():
    return changed("09.2", (" * scales[piece / 8]", ""))


@wrong("09.2", "bytes of a word reversed", says="come out in reverse")
def convert_rows_reversed():
    return changed("09.2", ("8 * side + i]) *", "8 * side + (i ^ 3)]) *"))


@wrong("09.2", "RoPE scaled", says="You scaled the RoPE values")
def convert_rows_scaled_rope():
    return changed("09.2", ("bf16_to_f32(rope[8 * j + i])", "bf16_to_f32(rope[8 * j + i]) * scales[3]"))


@wrong("09.2", "a hole reads", says="reads from a null pointer")
def convert_rows_hole_reads():
    return changed("09.2", ("row && i < 8", "i < 8"))


@wrong("09.2", "a hole is slot 0", says="came out as the row of slot 0")
def convert_rows_hole_is_slot_0():
    return changed("09.2", ("slot < 0 ? nullptr : cache + slot * kRowBytes", "cache + max(slot, 0) * kRowBytes"))


@wrong("09.2", "a hole stores nothing", says="have never been written")
def convert_rows_hole_skipped():
    return changed("09.2", ("    for (int piece = part;", "    if (row) for (int piece = part;"))


@wrong("09.2", "no RoPE", says="have never been written")
def convert_rows_no_rope():
    return changed("09.2", ("j < 8; j += 4", "j < 0; j += 4"))


@wrong("09.2", "half of the codes", says="have never been written")
def convert_rows_half():
    return changed("09.2", ("side < 2", "side < 1"))


@wrong("09.2", "places beyond the row", says="goes beyond the tile")
def convert_rows_outside():
    return changed("09.2", ("tile[8][token]", "tile[9][token]"))


# 09.3


@right("09.3", "side by side, three passes")
def softmax_step():
    return solved("09.3")


@right("09.3", "one row after the other, by four registers")
def softmax_step_rows():
    return filled(
        "09.3",
        """
    for (int row = 0; row < 2; ++row) {
        float top = -kInfinity;
        for (int four = 2 * row; four < 32; four += 4)
            for (int e = 0; e < 2; ++e) {
                const uint64_t bit = 1ull << (2 * (four / 4 * 4 + lane % 4) + e);
                if ((valid & bit) == 0) s[four + e] = -kInfinity;
                top = s[four + e] > top ? s[four + e] : top;
            }
        const float other = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
        const float next = fmaxf(m[row], fmaxf(other, __shfl_xor_sync(0xFFFFFFFFu, other, 1)));
        factor[row] = exp2f(m[row] - next);
        sum[row] *= factor[row];
        for (int four = 2 * row; four < 32; four += 4)
            for (int e = 0; e < 2; ++e) sum[row] += s[four + e] = exp2f(s[four + e] - next);
        m[row] = next;
    }
""",
    )


@wrong("09.3", "own maximum", says="Each thread took the maximum of its own 16 columns")
def softmax_step_own():
    return changed("09.3", ("apart = 1; apart < 4", "apart = 1; apart < 1"))


@wrong("09.3", "one exchange", says="reaches one neighbour only")
def softmax_step_half():
    return changed("09.3", ("apart = 1; apart < 4", "apart = 1; apart < 2"))


@wrong("09.3", "one maximum for both rows", says="Upper and lower row got one maximum")
def softmax_step_both():
    return changed(
        "09.3",
        (
            "        factor[side] = exp2f",
            "        if (side == 0) best[0] = fmaxf(best[0], whole);\n        factor[side] = exp2f",
        ),
        ("        best[side] = fmaxf(best[side], s[i]);", "        best[0] = fmaxf(best[0], s[i]), best[1] = best[0];"),
        ("        if (side == 0) best[0] = fmaxf(best[0], whole);\n", ""),
        ("added[2] = {};", "added[2] = {};\n    best[0] = best[1] = fmaxf(m[0], m[1]);"),
    )


@wrong("09.3", "forgets the old maximum", says="the one of the blocks before is forgotten")
def softmax_step_forgets():
    return changed("09.3", ("best[2] = {m[0], m[1]}", "best[2] = {-kInfinity, -kInfinity}"))


@wrong("09.3", "factor after the maximum", says="Your factor is always 1")
def softmax_step_late():
    return changed(
        "09.3",
        (
            "        factor[side] = exp2f(m[side] - best[side]);\n        m[side] = best[side];",
            "        m[side] = best[side];\n        factor[side] = exp2f(m[side] - best[side]);",
        ),
    )


@wrong("09.3", "inverse factor", says="Your factor is the inverse")
def softmax_step_inverse():
    return changed("09.3", ("exp2f(m[side] - best[side])", "exp2f(best[side] - m[side])"))


@wrong("09.3", "powers of e", says="You took powers of e")
def softmax_step_e():
    return changed("09.3", ("exp2f", "expf"))


@wrong("09.3", "sum not rescaled", says="was not multiplied by the factor")
def softmax_step_unscaled():
    return changed("09.3", ("sum[0] * factor[0]", "sum[0]"), ("sum[1] * factor[1]", "sum[1]"))


@wrong("09.3", "sum starts afresh", says="The sum holds the last block alone")
def softmax_step_last():
    return changed("09.3", ("sum[0] * factor[0] + ", ""), ("sum[1] * factor[1] + ", ""))


@wrong("09.3", "adds the quad each step", says="four times too large")
def softmax_step_quad_sum():
    add = """    for (int apart = 1; apart < 4; apart *= 2) {
        added[0] += __shfl_xor_sync(0xFFFFFFFFu, added[0], apart);
        added[1] += __shfl_xor_sync(0xFFFFFFFFu, added[1], apart);
    }
"""
    return changed("09.3", ("    sum[0] = ", f"{add}    sum[0] = "))


@wrong("09.3", "bits by register", says="You took the bit by the register's number")
def softmax_step_register_bits():
    return changed("09.3", ("valid >> column & 1", "valid >> i & 1"))


@wrong("09.3", "holes counted", says="Holes were counted like tokens")
def softmax_step_no_holes():
    return changed("09.3", ("        if (!(valid >> column & 1)) s[i] = -kInfinity;\n", ""))


@wrong("09.3", "masks after the maximum", says="their scores entered the maximum")
def softmax_step_mask_late():
    return changed(
        "09.3",
        ("        if (!(valid >> column & 1)) s[i] = -kInfinity;\n", ""),
        ("s[i]);\n    }", "s[i]);\n        if (!(valid >> column & 1)) s[i] = -kInfinity;\n    }"),
    )


@wrong("09.3", "infinity times nothing", says="There is NaN in the result")
def softmax_step_nan():
    return changed(
        "09.3", ("s[i] = exp2f(s[i] - m[i >> 1 & 1]);", "s[i] = exp2f(s[i] + 2e30f) * exp2f(-m[i >> 1 & 1] - 2e30f);")
    )


# 09.4


@right("09.4", "two loops, empty heads first")
def merge():
    return solved("09.4")


@right("09.4", "one loop, maximum kept on the way")
def merge_online():
    return filled(
        "09.4",
        """
    float m = -1e30f, z = 0, acc = 0;
    for (int i = num_splits[request]; i < num_splits[request + 1]; ++i) {
        const float l = lse_log2[heads * i + head], n = fmaxf(m, l), old = exp2f(m - n), now = exp2f(l - n);
        acc = acc * old + now * part[(heads * i + head) * 64 + d];
        z = z * old + now;
        m = n;
    }
    const int to = heads * request + head;
    const bool any = z > 0;
    out[64 * to + d] = any ? acc / (z + (sink ? exp2f(sink[head] * kLog2E - m) : 0.0f)) : 0.0f;
    if (d == 0) lse[to] = any ? logf(z) + kLn2 * m : kInfinity;
""",
    )


@wrong("09.4", "null sink", says="reads sink where it is null")
def merge_null_sink():
    return changed("09.4", ("sink ? exp2f(kLog2E * sink[head] - largest) : 0", "exp2f(kLog2E * sink[head] - largest)"))


@wrong("09.4", "slots by request", says="An index leaves its array")
def merge_outside():
    return changed("09.4", ("place = request * heads + head", "place = end * heads + head"))


@wrong("09.4", "only the first slot", says="Only the first slot of a request")
def merge_first():
    return changed("09.4", ("end = num_splits[request + 1]", "end = begin + 1"))


@wrong("09.4", "average", says="You averaged the slots")
def merge_average():
    return changed(
        "09.4",
        ("mean += share * part", "mean += part"),
        ("mean / (whole + drain)", "mean / (end - begin)"),
    )


@wrong("09.4", "not divided", says="not divided by the sum of the weights")
def merge_not_divided():
    return changed("09.4", ("mean / (whole + drain)", "mean"))


@wrong("09.4", "powers of e", says="You computed with powers of e")
def merge_e():
    return changed("09.4", ("exp2f", "expf"), ("log2f", "logf"), (" * kLn2", ""))


@wrong("09.4", "lse in base 2", says="lse is still in base 2")
def merge_base_2():
    return changed("09.4", (" * kLn2", ""))


@wrong("09.4", "lse without the maximum", says="lacks the maximum that you subtracted")
def merge_relative():
    return changed("09.4", ("(log2f(whole) + largest)", "log2f(whole)"))


@wrong("09.4", "converted the wrong way", says="converted the wrong way")
def merge_wrong_way():
    return changed("09.4", (" * kLn2", " * kLog2E"))


@wrong("09.4", "no sink", says="The sink has no effect")
def merge_no_sink():
    return changed("09.4", ("(whole + drain)", "whole"))


@wrong("09.4", "sink in the lse", says="the sink has entered lse")
def merge_sink_in_lse():
    return changed("09.4", ("log2f(whole)", "log2f(whole + drain)"))


@wrong("09.4", "sink in base 2", says="The sink is in natural units")
def merge_sink_unscaled():
    return changed("09.4", ("kLog2E * sink[head]", "sink[head]"))


@wrong("09.4", "sink not relative", says="your sink is not")
def merge_sink_unshifted():
    return changed("09.4", ("kLog2E * sink[head] - largest", "kLog2E * sink[head]"))


@wrong("09.4", "the partial mark", says="the mark inside the kernels")
def merge_partial_mark():
    return changed("09.4", ("lse[place] = kInfinity", "lse[place] = -kInfinity"))


@wrong("09.4", "no branch for empty heads", says="There is NaN in the result")
def merge_nan():
    return changed("09.4", ("if (largest == -kInfinity) {", "if (false) {"))


@wrong("09.4", "no maximum", says="There is NaN in the result")
def merge_overflow():
    return changed(
        "09.4",
        ("[slot * heads + head] - largest)", "[slot * heads + head])"),
        ("log2f(whole) + largest", "log2f(whole)"),
        ("* sink[head] - largest", "* sink[head]"),
    )


# 09.5


@right("09.5", "a row a block")
def pipeline(blocks, fill, scores, softmax, output, buffers):
    log = []
    for block in range(blocks):
        room = log[block - buffers][2] + output if block >= buffers else 0
        start = max(room, log[-1][0] + fill if log else 0)
        made = max(log[-1][2] + output if log else 0, start + fill)
        log.append((start, made, made + scores + softmax))
    return tuple(list(column) for column in zip(*log, strict=True))


@right("09.5", "as recursions")
def pipeline_recursive(blocks, fill, scores, softmax, output, buffers):
    def ended(i):
        return weighing(i) + output if i >= 0 else 0

    def storing(i):
        return max(storing(i - 1) + fill, ended(i - buffers)) if i else 0

    def scoring(i):
        return max(storing(i) + fill, ended(i - 1))

    def weighing(i):
        return scoring(i) + scores + softmax

    return tuple([step(i) for i in range(blocks)] for step in (storing, scoring, weighing))


def walk(
    blocks, fill, scores, softmax, output, *, room=lambda ends, i: 0, gap=None, freed=None, queue=True, serial=True
):
    """The times of a pipeline in which something may be mistaken."""
    begins, ends, gone = ([], [], []), [], []
    for i in range(blocks):
        before = begins[0][-1] + fill if begins[0] and serial else 0
        begins[0].append(max(before, room(gone, i)))
        ready = begins[0][-1] + fill
        if queue:
            begins[1].append(max(ready, ends[-1] if ends else 0))
        else:
            begins[1].append(max(ready, begins[1][-1] + scores if begins[1] else 0))
        after = begins[1][-1] + scores + (softmax if gap is None else gap)
        begins[2].append(max(after, ends[-1] if ends and not queue else 0))
        ends.append(begins[2][-1] + output)
        gone.append(ends[-1] if freed is None else begins[1][-1] + scores)
    return begins


def behind(buffers):
    return lambda gone, i: gone[i - buffers] if i >= buffers else 0


@wrong("09.5", "one buffer", says="as if there were one buffer")
def pipeline_one_buffer(blocks, fill, scores, softmax, output, buffers):
    return walk(blocks, fill, scores, softmax, output, room=behind(1))


@wrong("09.5", "no end of buffers", says="never waits for a buffer")
def pipeline_endless(blocks, fill, scores, softmax, output, buffers):
    return walk(blocks, fill, scores, softmax, output)


@wrong("09.5", "free after the scores", says="read once more, as values")
def pipeline_free_early(blocks, fill, scores, softmax, output, buffers):
    return walk(blocks, fill, scores, softmax, output, room=behind(buffers), freed="scores")


@wrong("09.5", "all gathered at once", says="one after the other")
def pipeline_parallel_gather(blocks, fill, scores, softmax, output, buffers):
    return walk(blocks, fill, scores, softmax, output, room=behind(buffers), serial=False)


@wrong("09.5", "no softmax", says="The softmax is missing")
def pipeline_no_softmax(blocks, fill, scores, softmax, output, buffers):
    return walk(blocks, fill, scores, softmax, output, room=behind(buffers), gap=0)


@wrong("09.5", "two things at once", says="They take one job after the other")
def pipeline_no_queue(blocks, fill, scores, softmax, output, buffers):
    return walk(blocks, fill, scores, softmax, output, room=behind(buffers), queue=False)


@wrong("09.5", "measures instead", says="write that yourself")
def pipeline_measured(blocks, fill, scores, softmax, output, buffers):
    report, *_ = samples.run("wgmma_ring", gpu.Device("emulator"), trace=True)
    begins = [int(t) for t in report.trace.operations.t_start[:blocks]]
    return begins, begins, begins
