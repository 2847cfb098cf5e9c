"""Right and wrong answers to assignment 08."""

import re
from pathlib import Path

from mlacademy import notebooks
from mlacademy.gpu import wgmma
from mlacademy.grading.answers import right, wrong

CELLS = {
    cell["id"]: notebooks.source(cell) for cell in notebooks.read(Path(__file__).with_name("08_wgmma.ipynb"))["cells"]
}
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


# 08.1


@right("08.1", "shifts and ors")
def descriptor(address, leading, stride, swizzle):
    start = (address & 0x3FFFF) >> 4
    return start | leading >> 4 << 16 | stride >> 4 << 32 | {"none": 0, "128B": 1, "64B": 2, "32B": 3}[swizzle] << 62


@right("08.1", "as a row of bits")
def descriptor_as_text(address, leading, stride, swizzle):
    code = {"none": "00", "128B": "01", "64B": "10", "32B": "11"}[swizzle]
    sizes = [f"{size >> 4:014b}" for size in (stride, leading, address & 0x3FFFF)]
    return int(code + "0" * 14 + "00".join(["00"[:2] + sizes[0], sizes[1], sizes[2]]), 2)


@wrong("08.1", "in bytes", says="count units of 16 bytes")
def descriptor_in_bytes(address, leading, stride, swizzle):
    return descriptor(0, 0, 0, swizzle) | address & 0x3FFFF | leading << 16 | stride << 32


@wrong("08.1", "only the offsets in bytes", says="the two offsets are still in bytes")
def descriptor_offsets_in_bytes(address, leading, stride, swizzle):
    return descriptor(address, 0, 0, swizzle) | leading << 16 | stride << 32


@wrong("08.1", "masks after the shift", says="Python shifts before it masks")
def descriptor_precedence(address, leading, stride, swizzle):
    return address & 0x3FFFF >> 4 | descriptor(0, leading, stride, swizzle)


@wrong("08.1", "swizzle one bit too low", says="in bits 62 and 63")
def descriptor_bit_61(address, leading, stride, swizzle):
    return descriptor(address, leading, stride, "none") | descriptor(0, 0, 0, swizzle) >> 1


@wrong("08.1", "keeps the rank", says="The rank of the CTA")
def descriptor_with_rank(address, leading, stride, swizzle):
    return descriptor(0, leading, stride, swizzle) + (address >> 4)


@wrong("08.1", "the tensor map's codes", says="as a tensor map does")
def descriptor_map_codes(address, leading, stride, swizzle):
    return descriptor(address, leading, stride, "none") | {"none": 0, "32B": 1, "64B": 2, "128B": 3}[swizzle] << 62


@wrong("08.1", "offsets swapped", says="have changed places")
def descriptor_swapped(address, leading, stride, swizzle):
    return descriptor(address, stride, leading, swizzle)


@wrong("08.1", "fields side by side", says="do not follow one another")
def descriptor_packed(address, leading, stride, swizzle):
    low = (address & 0x3FFFF) >> 4 | leading >> 4 << 14 | stride >> 4 << 28
    return low | descriptor(0, 0, 0, swizzle)


@wrong("08.1", "swizzle at the base offset", says="hold the base offset")
def descriptor_low_swizzle(address, leading, stride, swizzle):
    return descriptor(address, leading, stride, "none") | descriptor(0, 0, 0, swizzle) >> 62 << 49


@wrong("08.1", "the library's own", says="write that yourself")
def descriptor_library(address, leading, stride, swizzle):
    return wgmma.Descriptor(address & 0x3FFFF, leading, stride, swizzle=swizzle).bits


# 08.2


@right("08.2", "one descriptor a slice")
def chain_tile():
    return solved("08.2")


@right("08.2", "first slice apart, then a descending loop")
def chain_tile_unrolled():
    return filled(
        "08.2",
        """
    const uint64_t pa = matrix_descriptor<Swizzle::k128B, 8 * 128>(shared.a);
    const uint64_t pb = matrix_descriptor<Swizzle::k128B, 8 * 128>(shared.b);
    wgmma_fence(d);
    wgmma_m64n64k16_f32_bf16(d, pa + 6, pb + 6, false);
    wgmma_m64n64k16_f32_bf16(d, pa + 4, pb + 4, true);
    wgmma_m64n64k16_f32_bf16(d, pa + 2, pb + 2, true);
    wgmma_m64n64k16_f32_bf16(d, pa, pb, true);
    wgmma_commit_group();
    wgmma_wait_group<0>(d);
""",
    )


@wrong("08.2", "no wait", says="D is read while the multiplies still run")
def chain_tile_no_wait():
    return changed("08.2", ("wgmma_wait_group<0>(d);", ""))


@wrong("08.2", "waits for all but one", says="D is read while the multiplies still run")
def chain_tile_wait_1():
    return changed("08.2", ("wgmma_wait_group<0>(d);", "wgmma_wait_group<1>(d);"))


@wrong("08.2", "no commit", says="D is read while the multiplies still run")
def chain_tile_no_commit():
    return changed("08.2", ("wgmma_commit_group();", ""))


@wrong("08.2", "no fence", says="no wgmma_fence orders these writes")
def chain_tile_no_fence():
    return changed("08.2", ("wgmma_fence(d);", ""))


@wrong("08.2", "always adds", says="your first multiply adds to what was in d")
def chain_tile_always_adds():
    return changed("08.2", ("k != 0", "true"))


@wrong("08.2", "always overwrites", says="Only the last slice of 16")
def chain_tile_never_adds():
    return changed("08.2", ("k != 0", "false"))


@wrong("08.2", "only one slice", says="Only the first 16 of 64 columns")
def chain_tile_one_slice():
    return changed("08.2", ("k < 64", "k < 16"))


@wrong("08.2", "never moves", says="the descriptors never move along K")
def chain_tile_still():
    return changed("08.2", ("[0][k]", "[0][0]"))


@wrong("08.2", "stride of a row", says="not the distance of two rows")
def chain_tile_row_stride():
    return changed("08.2", ("k128B, 1024>", "k128B, 128>"))


@wrong("08.2", "only a moves", says="every slice of a meets the first slice of b")
def chain_tile_b_stands():
    return changed("08.2", ("shared.b[0][k]", "shared.b[0][0]"))


@wrong("08.2", "only b moves", says="every slice of b meets the first slice of a")
def chain_tile_a_stands():
    return changed("08.2", ("shared.a[0][k]", "shared.a[0][0]"))


@wrong("08.2", "operands swapped", says="the second argument is A")
def chain_tile_swapped():
    return changed("08.2", ("(d, left, right", "(d, right, left"))


@wrong("08.2", "stride in elements", says="The stride counts bytes")
def chain_tile_elements():
    return changed("08.2", ("k128B, 1024>", "k128B, 512>"))


@wrong("08.2", "one thread multiplies", says="Not all threads of a warp")
def chain_tile_one_thread():
    return changed("08.2", ("        wgmma_m64", "        if (threadIdx.x == 0) wgmma_m64"))


@wrong("08.2", "one warp multiplies", says="Not all four warps")
def chain_tile_one_warp():
    return changed("08.2", ("        wgmma_m64", "        if (threadIdx.x < 32) wgmma_m64"))


@wrong("08.2", "waits before the commit", says="no wait for their group")
def chain_tile_wait_first():
    return changed(
        "08.2",
        ("    wgmma_wait_group<0>(d);\n", ""),
        ("    wgmma_commit_group();", "    wgmma_wait_group<0>(d);\n    wgmma_commit_group();"),
    )


@wrong("08.2", "no swizzle", says="your descriptors say that they have none")
def chain_tile_no_swizzle():
    return changed("08.2", ("Swizzle::k128B", "Swizzle::kNone"))


@wrong("08.2", "swizzle 64B", says="your descriptors name another one")
def chain_tile_64b():
    return changed("08.2", ("Swizzle::k128B", "Swizzle::k64B"))


@wrong("08.2", "swizzle 32B", says="your descriptors name another one")
def chain_tile_32b():
    return changed("08.2", ("Swizzle::k128B", "Swizzle::k32B"))


@wrong("08.2", "steps of 16 bytes", says="you advance 16 bytes")
def chain_tile_half_steps():
    return changed("08.2", ("[0][k]", "[0][k / 2]"))


@wrong("08.2", "steps of a row", says="A multiply reads beyond the tiles")
def chain_tile_row_steps():
    return changed("08.2", ("[0][k]", "[k / 16][0]"))


# 08.3


@right("08.3", "with a corner and offsets")
def store_tile():
    return solved("08.3")


@right("08.3", "by the rule, pair by pair")
def store_tile_pairs():
    return filled(
        "08.3",
        """
    for (int pair = 0; pair < 16; ++pair) {
        const int below = pair % 2, right = pair / 2;
        const int r = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + (below ? 8 : 0);
        float* const to = &c[r * pitch + 8 * right + threadIdx.x % 4 * 2];
        to[0] = d[2 * pair];
        to[1] = d[2 * pair + 1];
    }
""",
    )


def stores(row, column, place="row * pitch + column"):
    return filled(
        "08.3",
        f"""
    const int t = threadIdx.x, lane = t % 32;
    #pragma unroll
    for (int i = 0; i < 32; ++i) {{
        const int row = {row}, column = {column};
        c[{place}] = d[i];
    }}
""",
    )


ROW, COLUMN = "16 * (t / 32) + lane / 4 + 8 * (i / 2 % 2)", "8 * (i / 4) + 2 * (lane % 4) + i % 2"


@wrong("08.3", "transposed", says="came out transposed")
def store_tile_transposed():
    return stores(ROW, COLUMN, "column * pitch + row")


@wrong("08.3", "one warp's rows", says="all four warps stored to the first warp's rows")
def store_tile_one_warp():
    return stores("lane / 4 + 8 * (i / 2 % 2)", COLUMN)


@wrong("08.3", "no lower half", says="belong 8 rows further down")
def store_tile_upper():
    return stores("16 * (t / 32) + lane / 4", COLUMN)


@wrong("08.3", "pitch 64", says="Your rows are 64 elements apart")
def store_tile_dense():
    return stores(ROW, COLUMN, "row * 64 + column")


@wrong("08.3", "down before right", says="you step down first and to the right second")
def store_tile_halves():
    return stores("16 * (t / 32) + lane / 4 + 8 * (i % 2)", "8 * (i / 4) + 2 * (lane % 4) + i / 2 % 2")


@wrong("08.3", "lanes swapped", says="four neighbouring lanes share a row")
def store_tile_lanes():
    return stores("16 * (t / 32) + lane % 4 + 8 * (i / 2 % 2)", "8 * (i / 4) + 2 * (lane / 4) + i % 2")


@wrong("08.3", "a row a thread", says="for neighbours in one row")
def store_tile_rows():
    return stores("t % 64", "32 * (t / 64) + i")


@wrong("08.3", "lanes one column apart", says="the next lane begins two further on")
def store_tile_single_columns():
    return stores(ROW, "8 * (i / 4) + lane % 4 + i % 2")


@wrong("08.3", "every other register", says="elements are missing")
def store_tile_even():
    return changed("08.3", ("side < 2", "side < 1"))


@wrong("08.3", "clears the rows first", says="somebody else's data")
def store_tile_clears():
    return changed(
        "08.3",
        (
            "    #pragma unroll",
            "    for (int i = threadIdx.x; i < 64 * pitch; i += 128) c[i] = 0;\n"
            "    __syncthreads();\n    #pragma unroll",
        ),
    )


@wrong("08.3", "stores of 8 bytes", says="An 8-byte store needs an address")
def store_tile_float2():
    return filled(
        "08.3",
        """
    for (int i = 0; i < 32; i += 2) {
        float* const to = &c[accumulator_row(threadIdx.x, i) * pitch + accumulator_column(threadIdx.x, i)];
        *reinterpret_cast<float2*>(to) = {d[i], d[i + 1]};
    }
""",
    )


@wrong("08.3", "thread instead of lane", says="a row or a column above 63")
def store_tile_outside():
    return stores("16 * (t / 32) + t / 4 + 8 * (i / 2 % 2)", COLUMN)


# 08.4


@right("08.4", "convert all, then multiply")
def chain_products():
    return solved("08.4")


@right("08.4", "a descriptor that walks, fragments by name")
def chain_products_walking():
    return filled(
        "08.4",
        """
    uint32_t w[4][4];
    for (int j = 0; j < 4; ++j) {
        const float* mine = &scores[8 * j];
        w[j][0] = cvt_rn_bf16x2_f32(mine[0], mine[1]);
        w[j][1] = cvt_rn_bf16x2_f32(mine[2], mine[3]);
        w[j][2] = cvt_rn_bf16x2_f32(mine[4], mine[5]);
        w[j][3] = cvt_rn_bf16x2_f32(mine[6], mine[7]);
    }
    uint64_t next = matrix_descriptor<Swizzle::k128B, 1024>(shared.kv);
    wgmma_fence(d);
    wgmma_m64n64k16_f32_bf16<1>(d, w[0], next, false);
    for (int j = 1; j < 4; ++j) wgmma_m64n64k16_f32_bf16<1>(d, w[j], next = advance(next, 2048), true);
    wgmma_commit_group();
    wgmma_wait_group<0>(d);
""",
    )


def last(text, old, new):
    """The text with only the last occurrence replaced: the first chain of the kernel stays as it is."""
    head, found, tail = text.rpartition(old)
    assert found, old
    return head + new + tail


@wrong("08.4", "no wait", says="D is read while the multiplies still run")
def chain_products_no_wait():
    return changed("08.4", ("wgmma_wait_group<0>(d);", ""))


@wrong("08.4", "no fence", says="no wgmma_fence stands between")
def chain_products_no_fence():
    return changed("08.4", ("wgmma_fence(d);", ""))


@wrong("08.4", "always adds", says="your first multiply adds to what was in d")
def chain_products_always_adds():
    return changed("08.4", ("j != 0", "true"))


@wrong("08.4", "halves swapped", says="low and high half have changed places")
def chain_products_swapped():
    return changed("08.4", ("scores[2 * i], scores[2 * i + 1]", "scores[2 * i + 1], scores[2 * i]"))


@wrong("08.4", "the first fragment for all", says="the fragment of tokens 0 to 15")
def chain_products_first_fragment():
    return changed("08.4", ("fragments[j]", "fragments[0]"))


@wrong("08.4", "right before down", says="the right neighbour block before the rows below")
def chain_products_rows():
    order = "const int from = 8 * (i / 4) + 4 * (i % 2) + 2 * (i / 2 % 2);"
    return changed(
        "08.4",
        ("for (int i = 0; i < 16; ++i) fragments", f"for (int i = 0; i < 16; ++i) {{ {order} fragments"),
        (
            "cvt_rn_bf16x2_f32(scores[2 * i], scores[2 * i + 1]);",
            "cvt_rn_bf16x2_f32(scores[from], scores[from + 1]); }",
        ),
    )


@wrong("08.4", "keys instead of values", says="read kv as keys")
def chain_products_keys():
    return changed("08.4", ("f32_bf16<1>(d,", "f32_bf16<0>(d,"), ("shared.kv[16 * j]", "&shared.kv[0][16 * j]"))


@wrong("08.4", "advances along the dimensions", says="you advance 32 bytes, which is 16 dimensions")
def chain_products_steps():
    return changed("08.4", ("shared.kv[16 * j]", "&shared.kv[0][16 * j]"))


@wrong("08.4", "the first tokens for all", says="by the values of tokens 0 to 15")
def chain_products_still():
    return changed("08.4", ("shared.kv[16 * j]", "shared.kv"))


@wrong("08.4", "values with the instruction for keys", says="read kv as keys")
def chain_products_no_transpose():
    return changed("08.4", ("f32_bf16<1>(d,", "f32_bf16(d,"))


@wrong("08.4", "8 tokens a slice", says="which is 8 tokens")
def chain_products_half_slices():
    return changed("08.4", ("shared.kv[16 * j]", "shared.kv[8 * j]"))


@wrong("08.4", "overlapping pairs", says="Your pairs overlap")
def chain_products_overlap():
    pairs = "scores[i / 4 * 8 + i % 4], scores[i / 4 * 8 + i % 4 + 1]"
    return changed("08.4", ("scores[2 * i], scores[2 * i + 1]", pairs))


@wrong("08.4", "four accumulators to a slice", says="takes eight accumulators")
def chain_products_four():
    pairs = "scores[i / 4 * 4 + i % 4 * 2], scores[i / 4 * 4 + i % 4 * 2 + 1]"
    return changed("08.4", ("scores[2 * i], scores[2 * i + 1]", pairs))


@wrong("08.4", "stride of a token", says="not to the next one")
def chain_products_row_stride():
    return changed("08.4", ("k128B, 1024, 1024>(shared.kv[16", "k128B, 128, 1024>(shared.kv[16"))


# 08.5


@right("08.5", "remembers the stage before")
def ring_tile():
    return solved("08.5")


@right("08.5", "counts rounds, gives back after the loop too")
def ring_tile_rounds():
    return filled(
        "08.5",
        """
    uint32_t stage = 0, parity = 0;
    for (int done = 0; done != blocks; ++done) {
        mbarrier_wait_parity(&shared.full[stage], parity);
        const uint64_t pa = matrix_descriptor<Swizzle::k128B, 1024>(shared.a[stage]);
        const uint64_t pb = matrix_descriptor<Swizzle::k128B, 1024>(shared.b[stage]);
        wgmma_fence(d);
        for (uint32_t units = 0; units < 8; units += 2) wgmma_m64n64k16_f32_bf16(d, pa + units, pb + units, true);
        wgmma_commit_group();
        wgmma_wait_group<1>(d);
        if (done > 0) mbarrier_arrive(&shared.empty[stage ^ 1]);
        stage ^= 1;
        parity ^= stage == 0;
    }
    wgmma_wait_group<0>(d);
    mbarrier_arrive(&shared.empty[stage ^ 1]);
""",
    )


@right("08.5", "one chain at a time")
def ring_tile_in_turn():
    return changed(
        "08.5",
        ("wgmma_wait_group<1>(d);", "wgmma_wait_group<0>(d);"),
        ("if (i != 0) mbarrier_arrive(&shared.empty[before]);", "mbarrier_arrive(&shared.empty[now]);"),
    )


@wrong("08.5", "never gives back", says="never given back")
def ring_tile_keeps():
    return changed("08.5", ("if (i != 0) mbarrier_arrive(&shared.empty[before]);", ""))


@wrong("08.5", "gives back the stage being read", says="before its multiplies have ended")
def ring_tile_too_early():
    return changed(
        "08.5", ("if (i != 0) mbarrier_arrive(&shared.empty[before]);", "mbarrier_arrive(&shared.empty[now]);")
    )


@wrong("08.5", "gives back before the wait", says="before its multiplies have ended")
def ring_tile_before_wait():
    release = "if (i != 0) mbarrier_arrive(&shared.empty[before]);"
    return changed("08.5", (release, ""), ("wgmma_wait_group<1>(d);", f"{release}\n        wgmma_wait_group<1>(d);"))


@wrong("08.5", "does not wait for the block", says="before it has landed")
def ring_tile_no_full():
    return changed("08.5", ("mbarrier_wait_parity(&shared.full[now], i / kStages % 2);", ""))


@wrong("08.5", "parity the wrong way round", says="the wrong parity of full")
def ring_tile_parity():
    return changed("08.5", ("i / kStages % 2", "(i / kStages + 1) % 2"))


@wrong("08.5", "parity by block", says="the wrong parity of full")
def ring_tile_parity_by_block():
    return changed("08.5", ("i / kStages % 2", "i % 2"))


@wrong("08.5", "waits on the other stage", says="You wait for another stage")
def ring_tile_other_stage():
    return changed("08.5", ("wait_parity(&shared.full[now]", "wait_parity(&shared.full[now ^ 1]"))


@wrong("08.5", "always parity 0", says="the wrong parity of full")
def ring_tile_parity_0():
    return changed("08.5", ("i / kStages % 2", "0"))


@wrong("08.5", "gives back before the first", says="empty[-1] is another barrier")
def ring_tile_before_first():
    return changed(
        "08.5",
        ("if (i != 0) mbarrier_arrive(&shared.empty[before]);", "mbarrier_arrive(&shared.empty[(i - 1) % kStages]);"),
    )


@wrong("08.5", "arrives at full", says="You arrive at full")
def ring_tile_announces():
    return changed("08.5", ("mbarrier_arrive(&shared.empty[before])", "mbarrier_arrive(&shared.full[before])"))


@wrong("08.5", "waits for empty", says="its arrivals are your own")
def ring_tile_waits_for_empty():
    return changed("08.5", ("wait_parity(&shared.full[now]", "wait_parity(&shared.empty[now]"))


@wrong("08.5", "always stage 0", says="You multiply stage 0 in every round")
def ring_tile_same_stage():
    return changed("08.5", ("shared.a[now]", "shared.a[0]"), ("shared.b[now]", "shared.b[0]"))


@wrong("08.5", "one thread waits", says="Only some threads wait")
def ring_tile_one_waits():
    wait = "mbarrier_wait_parity(&shared.full[now]"
    return changed("08.5", (wait, f"if (threadIdx.x == 0) {wait}"))


@wrong("08.5", "one thread waits for all", says="the copying warp never comes")
def ring_tile_syncthreads():
    wait = "mbarrier_wait_parity(&shared.full[now], i / kStages % 2);"
    return changed("08.5", (wait, f"if (threadIdx.x == 0) {wait}\n        __syncthreads();"))


@wrong("08.5", "one block too few", says="before all blocks have landed")
def ring_tile_too_short():
    return changed("08.5", ("i != blocks", "i < blocks - 1"))


@wrong("08.5", "one slice of each block", says="Of each block only the first 16")
def ring_tile_one_slice():
    return changed("08.5", ("k < 64", "k < 16"))


@wrong("08.5", "no last wait", says="wait for it after the loop")
def ring_tile_no_last_wait():
    return changed("08.5", ("    wgmma_wait_group<0>(d);\n    // ### END", "    // ### END"))


@wrong("08.5", "no commit", says="belong to no group")
def ring_tile_no_commit():
    return changed("08.5", ("wgmma_commit_group();", ""))


@wrong("08.5", "no fence", says="no wgmma_fence orders that")
def ring_tile_no_fence():
    return changed("08.5", ("wgmma_fence(d);", ""))


@wrong("08.5", "one buffer", says="one buffer too few")
def ring_tile_one_buffer():
    return changed("08.5", ("kStages = 2", "kStages = 1"))


@wrong("08.5", "each block overwrites", says="Only the last block")
def ring_tile_overwrites():
    return changed("08.5", ("i + k != 0", "k != 0"))


@wrong("08.5", "one thread gives back", says="but not all")
def ring_tile_one_arrival():
    return changed("08.5", ("if (i != 0) mbarrier", "if (i != 0 && threadIdx.x == 0) mbarrier"))


# 08.6


@right("08.6", "three branches")
def hand_over():
    return solved("08.6")


@right("08.6", "frees once more than needed, waits before computing")
def hand_over_eager():
    return filled(
        "08.6",
        """
    if (threadIdx.x < 128) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == 64) load(shared, &q_map, &kv_map, blocks);
        return;
    }
    setmaxnreg_inc<232>();
    float mine[32] = {};
    for (int n = 0; n < blocks; ++n)
        if (group == 1) {
            bar_sync(kFree, 256);
            make_scores(shared, n, mine);
            store_scores(shared, mine);
            fence_proxy_async_shared_cta();
            bar_arrive(kReady, 256);
        } else {
            bar_arrive(kFree, 256);
            bar_sync(kReady, 256);
            add_output(shared, n, mine);
        }
    if (group == 2) store_output(out, mine);
""",
    )


@wrong("08.6", "counts one warpgroup", says="Your barriers count 128 threads")
def hand_over_128():
    return changed("08.6", ("(kReady, 256)", "(kReady, 128)"), ("(kFree, 256)", "(kFree, 128)"))


@wrong("08.6", "never asks whether p is free", says="Nothing tells the scores warpgroup")
def hand_over_no_free():
    return changed(
        "08.6", ("if (block != 0) bar_sync(kFree, 256);", ""), ("if (block + 1 != blocks) bar_arrive(kFree, 256);", "")
    )


@wrong("08.6", "no proxy fence", says="the proxy fence between them is missing")
def hand_over_no_fence():
    return changed("08.6", ("fence_proxy_async_shared_cta();\n            bar_arrive", "bar_arrive"))


@wrong("08.6", "ready before it is stored", says="kReady comes before the stores")
def hand_over_early():
    return changed(
        "08.6",
        ("            bar_arrive(kReady, 256);\n", ""),
        ("            store_scores(", "            bar_arrive(kReady, 256);\n            store_scores("),
    )


@wrong("08.6", "too many registers", says="504")
def hand_over_registers():
    return changed("08.6", ("setmaxnreg_inc<232>", "setmaxnreg_inc<240>"))


@wrong("08.6", "one barrier for both", says="One named barrier serves both ways")
def hand_over_one_barrier():
    return changed("08.6", ("kFree, 256", "kReady, 256"))


@wrong("08.6", "free before it is read", says="it is called free too early")
def hand_over_free_early():
    return changed(
        "08.6",
        ("            if (block + 1 != blocks) bar_arrive(kFree, 256);\n", ""),
        (
            "            add_output(",
            "            if (block + 1 != blocks) bar_arrive(kFree, 256);\n            add_output(",
        ),
    )


@wrong("08.6", "the output warpgroup does not wait", says="reads p before it is complete")
def hand_over_no_ready():
    return changed("08.6", ("bar_sync(kReady, 256);", "bar_arrive(kReady, 256);"))


@wrong("08.6", "waits for free before the first block", says="p was free from the start")
def hand_over_first_block():
    return changed("08.6", ("if (block != 0) bar_sync(kFree", "bar_sync(kFree"))


@wrong("08.6", "frees after the last block only", says="does not say it in the round before")
def hand_over_free_last():
    return changed("08.6", ("block + 1 != blocks", "block + 1 == blocks"))


@wrong("08.6", "counts all three warpgroups", says="count more threads than come")
def hand_over_384():
    return changed("08.6", ("(kReady, 256)", "(kReady, 384)"), ("(kFree, 256)", "(kFree, 384)"))


@wrong("08.6", "arrives where it should wait", says="reads p before it is complete")
def hand_over_turned_round():
    return changed(
        "08.6",
        ("bar_arrive(kReady, 256)", "bar_other(kReady, 256)"),
        ("bar_sync(kReady, 256)", "bar_arrive(kReady, 256)"),
        ("bar_other", "bar_sync"),
    )


@wrong("08.6", "nobody gives registers away", says="none gives any away")
def hand_over_no_dec():
    return changed("08.6", ("setmaxnreg_dec<40>();", ""))


@wrong("08.6", "one thread gives registers away", says="a whole warpgroup at once")
def hand_over_dec_in_branch():
    return changed(
        "08.6",
        ("        setmaxnreg_dec<40>();\n", ""),
        ("if (threadIdx.x == 0) load(", "if (threadIdx.x == 0) setmaxnreg_dec<40>(), load("),
    )


@wrong("08.6", "everyone loads", says="More than one thread calls load")
def hand_over_all_load():
    return changed("08.6", ("if (threadIdx.x == 0) load(", "load("))


@wrong("08.6", "nobody loads", says="nobody issues them")
def hand_over_no_load():
    return changed("08.6", ("if (threadIdx.x == 0) load(shared, &q_map, &kv_map, blocks);", ""))


@wrong("08.6", "starts afresh each block", says="o is made anew in each round")
def hand_over_afresh():
    return changed(
        "08.6",
        ("        float o[32] = {};\n", ""),
        ("            bar_sync(kReady", "            float o[32] = {};\n            bar_sync(kReady"),
        ("        }\n        store_output(out, o);", "            store_output(out, o);\n        }"),
    )


@wrong("08.6", "does not store", says="Nothing has been stored")
def hand_over_not_stored():
    return changed("08.6", ("        store_output(out, o);\n", ""))


@wrong("08.6", "leaves the registers alone", says="does not go down to 40 registers")
def hand_over_no_registers():
    return changed("08.6", ("setmaxnreg_dec<40>();", ""), ("setmaxnreg_inc<232>();", ""))


@wrong("08.6", "takes less than there is", says="do not take what warpgroup 0 leaves")
def hand_over_fewer_registers():
    return changed("08.6", ("setmaxnreg_inc<232>", "setmaxnreg_inc<200>"))
