"""Right and wrong kernels for the exercises on TMA, mbarriers and clusters."""

from mlacademy.grading.answers import right, wrong

# 07.1

COPY_FRAME = """
#include "bulk.cuh"
#include "fence.cuh"
using namespace mla;

extern "C" __global__ void copy_tile(const float* source, float* target, uint32_t bytes) {
    __shared__ alignas(128) float tile[1024];
    __shared__ Mbarrier landed;
    BODY
    for (uint32_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) target[i] = tile[i];
}
"""
COPY_INIT = "if (threadIdx.x == 0) { mbarrier_init(&landed, 1); fence_mbarrier_init(); } __syncthreads();"
COPY_EXPECT = "mbarrier_arrive_expect_tx(&landed, bytes);"
COPY_START = "cp_async_bulk_shared_global(tile, source, bytes, &landed);"
COPY_WAIT = "mbarrier_wait_parity(&landed, 0);"


def copy_kernel(init=COPY_INIT, expect=COPY_EXPECT, start=COPY_START, wait=COPY_WAIT):
    lines = [init, "if (threadIdx.x == 0) {", expect, start, "}", wait]
    return COPY_FRAME.replace("BODY", "\n    ".join(lines))


@right("07.1", "all threads wait")
def copy_all_wait():
    return copy_kernel()


@right("07.1", "copied before it is announced")
def copy_then_announce():
    return copy_kernel(expect=COPY_START, start=COPY_EXPECT)


@right("07.1", "one warp waits, then all meet")
def copy_one_warp_waits():
    return copy_kernel(wait="if (threadIdx.x / 32 == 1) mbarrier_wait_parity(&landed, 0);\n    __syncthreads();")


@right("07.1", "announced and arrived apart, in two halves")
def copy_in_halves():
    return copy_kernel(
        expect="const uint32_t half = bytes / 32 * 16; mbarrier_expect_tx(&landed, bytes);",
        start="""if (half > 0) cp_async_bulk_shared_global(tile, source, half, &landed);
        cp_async_bulk_shared_global(tile + half / 4, source + half / 4, bytes - half, &landed);
        mbarrier_arrive(&landed);""",
    )


@wrong("07.1", "nothing announced", says="bytes that nobody had announced")
def copy_unannounced():
    return copy_kernel(expect="")


@wrong("07.1", "arrives without bytes", says="read before the copy was known to be over")
def copy_plain_arrive():
    return copy_kernel(expect="mbarrier_arrive(&landed);")


@wrong("07.1", "announces elements", says="expect_tx counts bytes, not elements")
def copy_elements():
    return copy_kernel(expect="mbarrier_arrive_expect_tx(&landed, bytes / 4);")


@wrong("07.1", "announces the whole tile", says="waits for bytes that never come")
def copy_whole_tile():
    return copy_kernel(expect="mbarrier_arrive_expect_tx(&landed, sizeof(tile));")


@wrong("07.1", "announces without arriving", says="the arrival that mbarrier_init asked for is missing")
def copy_no_arrival():
    return copy_kernel(expect="mbarrier_expect_tx(&landed, bytes);")


@wrong("07.1", "expects all threads to arrive", says="the arrival that mbarrier_init asked for is missing")
def copy_expects_all():
    return copy_kernel(init=COPY_INIT.replace("&landed, 1", "&landed, 128"))


@wrong("07.1", "waits for the other parity", says="the phase before the first, which counts as over")
def copy_other_parity():
    return copy_kernel(wait="mbarrier_wait_parity(&landed, 1);")


@wrong("07.1", "does not wait", says="read before the copy was known to be over")
def copy_no_wait():
    return copy_kernel(wait="")


@wrong("07.1", "only the copying thread waits", says="read before the copy was known to be over")
def copy_one_thread_waits():
    return copy_kernel(wait="if (threadIdx.x == 0) mbarrier_wait_parity(&landed, 0);")


@wrong("07.1", "every thread copies", says="one copy is enough")
def copy_every_thread():
    return copy_kernel().replace("__syncthreads();\n    if (threadIdx.x == 0) {", "__syncthreads();\n    {")


@wrong("07.1", "copies by hand", says="but not by a bulk copy")
def copy_by_hand():
    by_hand = "for (uint32_t i = threadIdx.x; i < bytes / 4; i += 128) tile[i] = source[i]; __syncthreads();"
    return COPY_FRAME.replace("BODY", by_hand)


@wrong("07.1", "no fence after the init", says="nothing lets the copy engine see that store")
def copy_no_fence():
    return copy_kernel(init=COPY_INIT.replace("fence_mbarrier_init();", ""))


@wrong("07.1", "others do not wait for the init", says="used before mbarrier_init")
def copy_no_meeting():
    return copy_kernel(init=COPY_INIT.replace("__syncthreads();", ""))


@wrong("07.1", "one thread of each warp copies", says="one copy is enough")
def copy_each_warp():
    return copy_kernel().replace(
        "__syncthreads();\n    if (threadIdx.x == 0)", "__syncthreads();\n    if (threadIdx.x % 32 == 0)"
    )


@wrong("07.1", "copies and announces elements", says="no copy had written")
def copy_a_quarter():
    return copy_kernel(expect=COPY_EXPECT.replace("bytes", "bytes / 4"), start=COPY_START.replace("bytes", "bytes / 4"))


@wrong("07.1", "announces after the wait", says="no expect_tx comes before the wait")
def copy_announced_late():
    return copy_kernel(expect="", wait=COPY_WAIT + "\n    if (threadIdx.x == 0) " + COPY_EXPECT)


@wrong("07.1", "meets inside the branch", says="used before mbarrier_init")
def copy_meets_in_branch():
    init = "if (threadIdx.x == 0) { mbarrier_init(&landed, 1); fence_mbarrier_init(); __syncthreads(); }"
    return copy_kernel(init=init)


# 07.2

RING_FRAME = """
#include "bulk.cuh"
#include "fence.cuh"
#include "names.cuh"
using namespace mla;
constexpr uint32_t kTile = 256;

extern "C" __global__ void double_tiles(const float* source, float* target, uint32_t tiles) {
    __shared__ alignas(128) float stage[2][kTile];
    __shared__ Mbarrier filled[2], drained[2];
    if (threadIdx.x == 0) {
        name_shared_array("stage", stage, sizeof(stage[0]), 2);
        name_shared_array("filled", filled, 8, 2);
        name_shared_array("drained", drained, 8, 2);
        for (uint32_t s = 0; s < 2; ++s) mbarrier_init(&filled[s], 1), mbarrier_init(&drained[s], 64);
        fence_mbarrier_init();
    }
    __syncthreads();
    for (uint32_t tile = 0; tile < tiles; ++tile) {
        const uint32_t s = tile % 2, round = tile / 2;
        if (threadIdx.x == 0) {
            FILL
        } else if (threadIdx.x >= 32) {
            DRAIN
        }
    }
}
"""
FREE = "mbarrier_wait_parity(&drained[s], ~round & 1);"
ANNOUNCE = "mbarrier_arrive_expect_tx(&filled[s], sizeof(stage[s]));"
FETCH = "cp_async_bulk_shared_global(stage[s], source + tile * kTile, sizeof(stage[s]), &filled[s]);"
READY = "mbarrier_wait_parity(&filled[s], round & 1);"
USE = "for (uint32_t i = threadIdx.x - 32; i < kTile; i += 64) target[tile * kTile + i] = 2 * stage[s][i];"
HAND_BACK = "mbarrier_arrive(&drained[s]);"


def ring_kernel(free=FREE, announce=ANNOUNCE, fetch=FETCH, ready=READY, use=USE, back=HAND_BACK):
    fill, drain = "\n            ".join([free, announce, fetch]), "\n            ".join([ready, use, back])
    return RING_FRAME.replace("FILL", fill).replace("DRAIN", drain)


@right("07.2", "opposite parities")
def ring_parities():
    return ring_kernel()


@right("07.2", "no wait in the first round")
def ring_first_round():
    return ring_kernel(free="if (round > 0) mbarrier_wait_parity(&drained[s], (round - 1) % 2);")


@right("07.2", "one tile in two copies, polled")
def ring_two_copies():
    return ring_kernel(
        fetch="""for (uint32_t part = 0; part < 256; part += 128)
                cp_async_bulk_shared_global(&stage[s][part], source + 256 * tile + part, 512, &filled[s]);""",
        ready="while (!mbarrier_test_wait_parity(&filled[s], (tile >> 1) & 1)) {}",
    )


@wrong("07.2", "does not wait for a free stage", says="filled again while it was still being read")
def ring_no_free():
    return ring_kernel(free="")


@wrong("07.2", "one buffer too few", says="filled again while it was still being read")
def ring_one_buffer():
    return ring_kernel(fetch=FETCH.replace("(stage[s]", "(stage[0]"), use=USE.replace("stage[s]", "stage[0]"))


@wrong("07.2", "the same parity for both", says="drain a stage that was never filled")
def ring_same_parity():
    return ring_kernel(free="mbarrier_wait_parity(&drained[s], round & 1);")


@wrong("07.2", "parity never changes", says="a phase that had ended before")
def ring_constant_parity():
    return ring_kernel(ready="mbarrier_wait_parity(&filled[s], 0);")


@wrong("07.2", "parity of the tile", says="a phase that had ended before")
def ring_tile_parity():
    return ring_kernel(ready="mbarrier_wait_parity(&filled[s], tile & 1);")


@wrong("07.2", "waits for the other buffer", says="belongs to the other stage")
def ring_other_buffer():
    return ring_kernel(ready="mbarrier_wait_parity(&filled[0], round & 1);")


@wrong("07.2", "never hands back", says="fewer than 64 threads arrived")
def ring_keeps():
    return ring_kernel(back="")


@wrong("07.2", "one thread hands back", says="fewer than 64 threads arrived")
def ring_one_hands_back():
    return ring_kernel(back="if (threadIdx.x == 32) mbarrier_arrive(&drained[s]);")


@wrong("07.2", "hands back before reading", says="filled again while it was still being read")
def ring_hands_back_early():
    return ring_kernel(use=HAND_BACK, back=USE)


@wrong("07.2", "nothing announced", says="bytes that nobody had announced at filled[s]")
def ring_unannounced():
    return ring_kernel(announce="")


@wrong("07.2", "announces elements", says="Both are counted in bytes")
def ring_elements():
    return ring_kernel(announce="mbarrier_arrive_expect_tx(&filled[s], kTile);")


@wrong("07.2", "goes around the ring", says="but not through the ring")
def ring_avoided():
    direct = USE.replace("stage[s][i]", "source[tile * kTile + i]")
    return ring_kernel(free="", announce="", fetch="", ready="", use=direct, back="")


@wrong("07.2", "readers arrive at filled", says="More threads arrived at a barrier")
def ring_arrives_at_filled():
    return ring_kernel(back="mbarrier_arrive(&filled[s]);")


@wrong("07.2", "readers do not wait", says="nobody waits for filled")
def ring_no_ready():
    return ring_kernel(ready="")


@wrong("07.2", "readers wait with the copier's parity", says="does not follow the uses of the stage")
def ring_ready_opposite():
    return ring_kernel(ready="mbarrier_wait_parity(&filled[s], ~round & 1);")


@wrong("07.2", "readers meet at __syncthreads", says="each role has its own branch")
def ring_meets():
    return ring_kernel(use=USE + "\n            __syncthreads();")


@wrong("07.2", "announces without arriving", says="is no arrival")
def ring_no_arrival():
    return ring_kernel(announce="mbarrier_expect_tx(&filled[s], sizeof(stage[s]));")


@wrong("07.2", "announces and arrives once more", says="More arrivals came to a barrier")
def ring_arrives_twice():
    return ring_kernel(announce=ANNOUNCE + " mbarrier_arrive(&filled[s]);")


@wrong("07.2", "starts at the thread's own number", says="never written")
def ring_skips_a_warp():
    return ring_kernel(use=USE.replace("threadIdx.x - 32", "threadIdx.x"))


@wrong("07.2", "writes every tile to the front", says="never written")
def ring_one_target():
    return ring_kernel(use=USE.replace("tile * kTile + i", "i"))


@wrong("07.2", "loads the first tile again and again", says="the first one")
def ring_one_source():
    return ring_kernel(fetch=FETCH.replace("source + tile * kTile", "source"))


@wrong("07.2", "moves the source by bytes", says="counts floats, not bytes")
def ring_bytes():
    return ring_kernel(fetch=FETCH.replace("tile * kTile", "tile * sizeof(stage[s])"))


# 07.3

BOX_FRAME = """
#include "fence.cuh"
#include "tma.cuh"
using namespace mla;

extern "C" __global__ void turn_box(const __grid_constant__ CUtensorMap matrix, float* turned, int row, int column) {
    __shared__ alignas(1024) float box[32 * 32];
    __shared__ Mbarrier landed;
    if (threadIdx.x == 0) {
        mbarrier_init(&landed, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&landed, BYTES);
        cp_async_bulk_tensor_2d_shared_global(box, &matrix, COORDINATES, &landed);
    }
    WAIT
    for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) {
        const int r = i % 32, c = i / 32;
        turned[i] = box[PLACE];
    }
}
"""


def box_kernel(bytes_="sizeof(box)", at="column, row", wait="mbarrier_wait_parity(&landed, 0);", place=None):
    place = place or "32 * r + 4 * ((c / 4) ^ (r % 8)) + c % 4"
    text = BOX_FRAME.replace("BYTES", bytes_).replace("COORDINATES", at)
    return text.replace("WAIT", wait).replace("PLACE", place)


@right("07.3", "the chunk's number")
def box_chunks():
    return box_kernel()


@right("07.3", "bits of the byte address")
def box_address_bits():
    text = box_kernel(place="at / 4")
    return text.replace("turned[i]", "uint32_t at = 4 * (32 * r + c); at ^= (at >> 3) & 0x70;\n        turned[i]")


@right("07.3", "bits of the address in shared memory, row by row")
def box_shared_address():
    reads = """for (int r = threadIdx.x / 32; r < 32; r += 4) {
        const int c = threadIdx.x % 32;
        uint32_t at = smem_address(box + 32 * r + c);
        at ^= at >> 3 & 7 << 4;
        turned[32 * c + r] = box[(at - smem_address(box)) / 4];
    }"""
    head, tail = box_kernel().split("for (int i = threadIdx.x; i < 32 * 32;")
    return head + reads + tail[tail.index("}") + 1 :]


@wrong("07.3", "ignores the swizzle", says="swizzles 16-byte chunks inside each row")
def box_plain():
    return box_kernel(place="32 * r + c")


@wrong("07.3", "repeats after four rows", says="that is the 64-byte swizzle")
def box_four_rows():
    return box_kernel(place="32 * r + 4 * ((c / 4) ^ (r % 4)) + c % 4")


@wrong("07.3", "swizzles floats", says="four floats stay together")
def box_floats():
    return box_kernel(place="32 * r + (c ^ (r % 8))")


@wrong("07.3", "row before column", says="the first one is the innermost axis")
def box_swapped():
    return box_kernel(at="row, column")


@wrong("07.3", "column in bytes", says="Coordinates of a tensor map count elements")
def box_bytes():
    return box_kernel(at="4 * column, row")


@wrong("07.3", "not transposed", says="not transposed")
def box_not_turned():
    return box_kernel(place="32 * c + 4 * ((r / 4) ^ (c % 8)) + r % 4")


@wrong("07.3", "announces what lies inside", says="A box at the edge brings all its bytes")
def box_inside_only():
    return box_kernel(bytes_="128 * (row + 32 <= 40 ? 32 : 40 - row)")


@wrong("07.3", "announces elements", says="not those of the whole box")
def box_elements():
    return box_kernel(bytes_="32 * 32")


@wrong("07.3", "does not wait", says="read before the copy was known to be over")
def box_no_wait():
    return box_kernel(wait="")


@wrong("07.3", "waits for the other parity", says="read before the copy was known to be over")
def box_other_parity():
    return box_kernel(wait="mbarrier_wait_parity(&landed, 1);")


@wrong("07.3", "every thread loads", says="one is enough")
def box_every_thread():
    return box_kernel().replace("__syncthreads();\n    if (threadIdx.x == 0) {", "__syncthreads();\n    {")


@wrong("07.3", "the whole row number", says="lies outside the box")
def box_whole_row():
    return box_kernel(place="32 * r + 4 * ((c / 4) ^ r) + c % 4")


@wrong("07.3", "the group's number", says="number inside its group")
def box_row_group():
    return box_kernel(place="32 * r + 4 * ((c / 4) ^ (r / 8)) + c % 4")


@wrong("07.3", "the chunk's place as a float's", says="as if it were the place of a float")
def box_not_scaled():
    return box_kernel(place="32 * r + ((c / 4) ^ (r % 8)) + c % 4")


@wrong("07.3", "the first float of each chunk", says="came out as its first one")
def box_first_float():
    return box_kernel(place="32 * r + 4 * ((c / 4) ^ (r % 8))")


@wrong("07.3", "written out as it lies", says="as it lies in shared memory")
def box_as_it_lies():
    return box_kernel(place="i")


@wrong("07.3", "announces without arriving", says="the arrival that mbarrier_init asked for is missing")
def box_no_arrival():
    return box_kernel().replace("arrive_expect_tx", "expect_tx")


@wrong("07.3", "one element a thread", says="never written")
def box_one_round():
    return box_kernel().replace("for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x)", "const int i = threadIdx.x;")


# 07.4

TOTAL_FRAME = """
#include "cluster.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
using namespace mla;

extern "C" __global__ void cluster_total(const int* values, int* totals) {
    __shared__ int parts[8];
    __shared__ Mbarrier arrived;
    const uint32_t rank = cluster_ctarank(), ranks = cluster_nctarank();
    const int mine = __reduce_add_sync(0xFFFFFFFF, values[32 * blockIdx.x + threadIdx.x]);
    BODY
    int total = 0;
    for (uint32_t r = 0; r < ranks; ++r) total += parts[r];
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
    END
}
"""
TOTAL_INIT = "if (threadIdx.x == 0) { mbarrier_init(&arrived, 1); fence_mbarrier_init(); }"
TOTAL_SEND = (
    "if (threadIdx.x < ranks)\n        st_async_u32(mapa(smem_address(&parts[rank]), threadIdx.x), mine, "
    "mapa(smem_address(&arrived), threadIdx.x));"
)
TOTAL_EXPECT = "if (threadIdx.x == 0) mbarrier_arrive_expect_tx(&arrived, 4 * ranks);"
TOTAL_WAIT = "mbarrier_wait_parity_cluster(&arrived, 0);"
PULL = (
    "if (threadIdx.x == 0) parts[rank] = mine;",
    "cluster_sync();",
    "if (threadIdx.x < ranks && threadIdx.x != rank)\n"
    "        parts[threadIdx.x] = ld_shared_cluster_u32(mapa(smem_address(&parts[threadIdx.x]), threadIdx.x));",
    "cluster_sync();",
)


def total_kernel(*body, end=""):
    return TOTAL_FRAME.replace("BODY", "\n    ".join(body)).replace("END", end)


@right("07.4", "every CTA sends to all")
def total_send():
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT, TOTAL_SEND, TOTAL_WAIT)


@right("07.4", "announced before the cluster meets, one thread sends")
def total_loop():
    send = """if (threadIdx.x == 5)
        for (uint32_t to = 0; to < ranks; ++to)
            st_async_u32(mapa(smem_address(parts + rank), to), mine, mapa(smem_address(&arrived), to));"""
    first = """if (threadIdx.x == 0) {
        mbarrier_init(&arrived, 1);
        mbarrier_arrive_expect_tx(&arrived, 4 * ranks);
        fence_mbarrier_init();
    }"""
    return total_kernel(first, "cluster_sync();", send, TOTAL_WAIT)


@right("07.4", "reads the others' parts")
def total_read():
    return total_kernel(*PULL)


@right("07.4", "writes to the others, then all meet")
def total_write():
    store = "if (threadIdx.x < ranks) st_shared_cluster_u32(mapa(smem_address(&parts[rank]), threadIdx.x), mine);"
    return total_kernel("cluster_sync();", store, "cluster_sync();")


@wrong("07.4", "announces one value", says="More bytes arrived than were announced")
def total_one_value():
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT.replace("4 * ranks", "4"), TOTAL_SEND, TOTAL_WAIT)


@wrong("07.4", "the cluster does not meet", says="whose barrier was not initialised yet")
def total_no_meeting():
    return total_kernel(TOTAL_INIT, "__syncthreads();", TOTAL_EXPECT, TOTAL_SEND, TOTAL_WAIT)


@wrong("07.4", "sends to itself", says="the store went to the sender's own shared memory")
def total_own_only():
    send = TOTAL_SEND.replace("threadIdx.x)", "rank)")
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT, send, TOTAL_WAIT)


@wrong("07.4", "sends to rank 0 alone", says="not every CTA sends to every other one")
def total_to_rank_0():
    send = TOTAL_SEND.replace("threadIdx.x < ranks", "threadIdx.x == 0")
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT, send, TOTAL_WAIT)


@wrong("07.4", "names its own barrier", says="lie in different CTAs")
def total_own_barrier():
    send = TOTAL_SEND.replace("mapa(smem_address(&arrived), threadIdx.x)", "smem_address(&arrived)")
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT, send, TOTAL_WAIT)


@wrong("07.4", "expects an arrival a rank", says="Stores bring bytes; only threads bring arrivals")
def total_arrivals():
    init = TOTAL_INIT.replace("&arrived, 1", "&arrived, ranks")
    return total_kernel(init, "cluster_sync();", TOTAL_EXPECT, TOTAL_SEND, TOTAL_WAIT)


@wrong("07.4", "adds up from global memory", says="but not through shared memory of other CTAs")
def total_from_global():
    rows = """for (uint32_t r = 0; r < ranks; ++r)
        parts[r] = __reduce_add_sync(0xFFFFFFFF, values[32 * (blockIdx.x - rank + r) + threadIdx.x]);
    __syncwarp();"""
    return total_kernel(rows)


@wrong("07.4", "does not wait", says="before the other CTAs' values were known to be there")
def total_no_wait():
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT, TOTAL_SEND)


@wrong("07.4", "reads and ends", says="A CTA ended while another one still read")
def total_read_and_end():
    return total_kernel(*PULL[:3], "__syncthreads();")


@wrong("07.4", "reads too early", says="may not have started")
def total_read_early():
    return total_kernel(PULL[0], "__syncthreads();", *PULL[2:])


@wrong("07.4", "the receiver's element", says="Several CTAs sent to the same place")
def total_receivers_element():
    send = TOTAL_SEND.replace("&parts[rank]", "&parts[threadIdx.x]")
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT, send, TOTAL_WAIT)


@wrong("07.4", "every thread announces", says="expects one arrival in each CTA")
def total_every_thread():
    expect = TOTAL_EXPECT.replace("if (threadIdx.x == 0) ", "")
    return total_kernel(TOTAL_INIT, "cluster_sync();", expect, TOTAL_SEND, TOTAL_WAIT)


@wrong("07.4", "every thread sends", says="a rank that the cluster does not have")
def total_every_lane():
    send = TOTAL_SEND.replace("if (threadIdx.x < ranks)", "")
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT, send, TOTAL_WAIT)


@wrong("07.4", "sends in a circle", says="more than once")
def total_in_a_circle():
    send = TOTAL_SEND.replace("if (threadIdx.x < ranks)", "").replace("threadIdx.x)", "threadIdx.x % ranks)")
    return total_kernel(TOTAL_INIT, "cluster_sync();", TOTAL_EXPECT, send, TOTAL_WAIT)


@wrong("07.4", "announces the others only", says="this one included")
def total_others_only():
    expect = TOTAL_EXPECT.replace("4 * ranks", "4 * (ranks - 1)")
    return total_kernel(TOTAL_INIT, "cluster_sync();", expect, TOTAL_SEND, TOTAL_WAIT)


@wrong("07.4", "announces for every thread", says="the count is too large")
def total_announces_128():
    expect = TOTAL_EXPECT.replace("4 * ranks", "4 * 32")
    return total_kernel(TOTAL_INIT, "cluster_sync();", expect, TOTAL_SEND, TOTAL_WAIT)


@wrong("07.4", "reads without mapa", says="without mapa")
def total_reads_own():
    read = PULL[2].replace("mapa(smem_address(&parts[threadIdx.x]), threadIdx.x)", "smem_address(&parts[threadIdx.x])")
    return total_kernel(*PULL[:2], read, PULL[3])


# 07.5

SHARE_FRAME = """
#include "bulk.cuh"
#include "cluster.cuh"
#include "fence.cuh"
using namespace mla;

extern "C" __global__ void share_tile(const float* source, float* target) {
    __shared__ alignas(128) float tile[512];
    __shared__ Mbarrier landed;
    const uint32_t rank = cluster_ctarank();
    source += 512 * (blockIdx.x / 2);
    BODY
    for (uint32_t i = threadIdx.x; i < 512; i += blockDim.x) target[512 * blockIdx.x + i] = (rank + 1) * tile[i];
}
"""
SHARE_INIT = "if (threadIdx.x == 0) { mbarrier_init(&landed, 1); fence_mbarrier_init(); }"
SHARE_COPY = """if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&landed, sizeof(tile));
        cp_async_bulk_shared_global_multicast(tile + 256 * rank, source + 256 * rank, sizeof(tile) / 2, &landed, 3);
    }"""
SHARE_WAIT = "mbarrier_wait_parity(&landed, 0);"


def share_kernel(init=SHARE_INIT, meet="cluster_sync();", copy=SHARE_COPY, wait=SHARE_WAIT):
    return SHARE_FRAME.replace("BODY", "\n    ".join([init, meet, copy, wait]))


@right("07.5", "announced after the cluster has met")
def share_halves():
    return share_kernel()


@right("07.5", "announced before the cluster meets, in quarters")
def share_quarters():
    first = """if (threadIdx.x == 64) {
        mbarrier_init(&landed, 1);
        mbarrier_arrive_expect_tx(&landed, 2048);
        fence_mbarrier_init();
    }"""
    copy = """if (threadIdx.x < 2) {
        const uint32_t first = 256 * rank + 128 * threadIdx.x;
        cp_async_bulk_shared_global_multicast(&tile[first], source + first, 512, &landed, 0b11);
    }"""
    return share_kernel(init=first, copy=copy, wait="mbarrier_wait_parity_cluster(&landed, 0);")


@wrong("07.5", "the cluster does not meet", says="whose barrier was not initialised yet")
def share_no_meeting():
    return share_kernel(meet="__syncthreads();")


@wrong("07.5", "rank 0 announces", says="each CTA expects for itself")
def share_rank_0_announces():
    return share_kernel(copy=SHARE_COPY.replace("mbarrier_arrive_expect", "if (rank == 0) mbarrier_arrive_expect"))


@wrong("07.5", "announces its own half", says="a whole tile in all")
def share_own_half():
    return share_kernel(copy=SHARE_COPY.replace("(&landed, sizeof(tile))", "(&landed, sizeof(tile) / 2)"))


@wrong("07.5", "both load everything", says="everything was loaded and written twice")
def share_everything():
    return share_kernel(
        copy=SHARE_COPY.replace(
            "tile + 256 * rank, source + 256 * rank, sizeof(tile) / 2", "tile, source, sizeof(tile)"
        )
    )


@wrong("07.5", "sends to itself", says="went to one CTA only")
def share_own_mask():
    return share_kernel(copy=SHARE_COPY.replace("&landed, 3)", "&landed, 1 << rank)"))


@wrong("07.5", "each loads all", says="but every CTA loads all of them")
def share_without_multicast():
    copy = SHARE_COPY.replace("_multicast(tile + 256 * rank, source + 256 * rank, sizeof(tile) / 2, &landed, 3)", "(")
    return share_kernel(copy=copy.replace("_global(;", "_global(tile, source, sizeof(tile), &landed);"))


@wrong("07.5", "mask of four CTAs", says="one that is not in the cluster")
def share_mask():
    return share_kernel(copy=SHARE_COPY.replace("&landed, 3)", "&landed, 15)"))


@wrong("07.5", "halves on top of each other", says="Both halves went to the same place")
def share_on_top():
    return share_kernel(copy=SHARE_COPY.replace("tile + 256 * rank, source", "tile, source"))


@wrong("07.5", "the same half twice", says="loaded the same half")
def share_same_half():
    return share_kernel(copy=SHARE_COPY.replace("source + 256 * rank", "source"))


@wrong("07.5", "does not wait", says="read before both halves")
def share_no_wait():
    return share_kernel(wait="")


@wrong("07.5", "waits for two arrivals", says="copies bring bytes, never arrivals")
def share_two_arrivals():
    return share_kernel(init=SHARE_INIT.replace("&landed, 1", "&landed, 2"))


@wrong("07.5", "no fence after the init", says="nothing lets the copy engine see that store")
def share_no_fence():
    return share_kernel(init=SHARE_INIT.replace("fence_mbarrier_init();", ""))


@wrong("07.5", "waits for the other parity", says="read before both halves")
def share_other_parity():
    return share_kernel(wait="mbarrier_wait_parity(&landed, 1);")


@wrong("07.5", "a size in floats", says="bytes, not floats")
def share_floats():
    return share_kernel(copy=SHARE_COPY.replace("sizeof(tile) / 2", "256"))


@wrong("07.5", "rank 0 alone copies", says="a half was not loaded")
def share_rank_0_copies():
    return share_kernel(copy=SHARE_COPY.replace("cp_async", "if (rank == 0) cp_async"))


@wrong("07.5", "every thread copies", says="one does all three")
def share_every_thread():
    return share_kernel(copy=SHARE_COPY.replace("if (threadIdx.x == 0) ", ""))


@wrong("07.5", "offsets in bytes", says="counts floats, not bytes")
def share_offset_bytes():
    return share_kernel(copy=SHARE_COPY.replace("256 * rank", "1024 * rank"))


@wrong("07.5", "the rank as a mask", says="names no CTA")
def share_rank_as_mask():
    return share_kernel(copy=SHARE_COPY.replace("&landed, 3)", "&landed, rank)"))


@wrong("07.5", "the other rank's place", says="changed places")
def share_exchanged():
    return share_kernel(copy=SHARE_COPY.replace("tile + 256 * rank", "tile + 256 * (1 - rank)"))
