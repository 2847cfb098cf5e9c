// Sparse decode of multi-head latent attention on Hopper for 1 to 32 query heads. wgmma multiplies 64 rows;
// so here tokens are the rows, and heads the columns of both products:
//
//   scores^T [64 tokens, heads] = k [64, d_qk] times q^T      k from registers, where it was converted
//   out^T    [512, heads]       = v^T [512, 64] times p^T     v from shared memory, read column by column
//
// Four warpgroups. Two gather: each takes every second block of 64 tokens. One weighs and multiplies the
// values, one has rows copied:
//
//   fetch                  walks through the lists; the rows of the slots, as they are, into shared memory by
//                          bulk copies
//   gather[0], gather[1]   take the rows into registers, convert them, store them as v, multiply them by q,
//                          store the scores
//   values                 softmax, v^T times p^T, the results; loads q
//
//   barrier               arrivals a phase             ends when                               who waits
//   q_full[]              4 (one a warp of values)     a request's heads have landed           gather
//   staged_full[2][4]     1 (a warp of fetch), + the   16 rows for a warp of gather have       gather
//                         rows' bytes                  landed
//   staged_used[2][4]     1 (that warp of gather)      it has them in registers                fetch
//   staged_empty[2][3]    1 (the same)                 their place is free                     fetch
//   v_full[2]             4 (one a warp of gather[i])  v and scores of a block are there       values, gather
//   v_empty[ring]         4 (one a warp of values)     64 columns of a block have been used    gather
//   1 named               128                          weights, or norms, are in memory        values
//
// With one buffer for q, gather[1 - i] waits on v_full[i] before it looks for the next request's heads.
// Places and barriers of staged rows are counted apart (few_heads_plan.cuh), so that a warp never waits for a
// phase that may be two away. What needs no barrier: q in the other direction, as where a request's last
// scores have come, all its multiplies with q are over; scores in the other direction, as where a block's
// last columns may be stored, all of two blocks ago has been used.
//
// Order of columns. Thread t of a quad holds columns 16 t to 16 t + 15 of a column block. Step j of k times q
// takes four of each thread's: 2 t + e is column 16 t + 4 j + 2 e, and 8 + 2 t + e the next one. q and v lie
// in this order, so v is stored as the multiply's operand by stmatrix; and a thread of `values` has
// neighbours in rows g and g + 8 of out^T.
//
// Launch: grid (1, s_q, partitions), block 512, dynamic shared memory sizeof(SharedPlan). The entries'
// numbers are the widths that h_q is padded to. Layouts of the cache: 656 bytes a token (V3.2) or 584
// (MODEL1).
#include "few_heads_fetch.cuh"
#include "few_heads_gather.cuh"
#include "few_heads_values.cuh"
#include "griddepcontrol.cuh"
#include "lengths.cuh"
#include "names.cuh"
#include "setmaxnreg.cuh"
#include "warp_arrival.cuh"

using namespace mla;

static_assert(sizeof(SharedPlan<V32, 32>) <= 232448, "shared memory of a CTA");

template <uint32_t kRegisters>
__device__ __forceinline__ void set_registers() {
    if constexpr (kRegisters < 128)
        setmaxnreg_dec<kRegisters>();
    else
        setmaxnreg_inc<kRegisters>();
}

template <class Layout, uint32_t kHeads>
__device__ void sparse_decode(const SparseDecodeParams& params) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    using Plan = SharedPlan<Layout, kHeads>;
    auto& shared = *reinterpret_cast<Plan*>(bytes);
    if (threadIdx.x == 0) {
        for (Mbarrier& barrier : shared.q_full)
            mbarrier_init(&barrier, kWarps * kWarpArrivals);
        for (Mbarrier& barrier : shared.v_full)
            mbarrier_init(&barrier, kWarps * kWarpArrivals);
        for (Mbarrier& barrier : shared.v_empty)
            mbarrier_init(&barrier, kWarps * kWarpArrivals);
        for (uint32_t i = 0; i < 8; ++i) {
            mbarrier_init(&shared.staged_full[0][0] + i, kWarpArrivals);
            mbarrier_init(&shared.staged_used[0][0] + i, kWarpArrivals);
        }
        for (uint32_t i = 0; i < 2 * kStaged; ++i)
            mbarrier_init(&shared.staged_empty[0][0] + i, kWarpArrivals);
        fence_mbarrier_init();
        name_shared_array("q_full", shared.q_full, sizeof(Mbarrier), Plan::kQueries);
        name_shared_array("v_full", shared.v_full, sizeof(Mbarrier), 2);
        name_shared_array("v_empty", shared.v_empty, sizeof(Mbarrier), Plan::kRing);
        name_shared_array("q", shared.q, sizeof(shared.q[0]), Plan::kQueries);
        name_shared_array("v", shared.v, sizeof(shared.v[0]), Plan::kRing);
        name_shared_array("p", shared.p, sizeof(shared.p[0]), 2);
        name_shared_array("staged", shared.staged, sizeof(shared.staged[0][0]), 2 * kStaged);
        name_shared_array("staged_full", shared.staged_full, sizeof(Mbarrier), 8);
        name_shared_array("staged_used", shared.staged_used, sizeof(Mbarrier), 8);
        name_shared_array("staged_empty", shared.staged_empty, sizeof(Mbarrier), 2 * kStaged);
        name_shared_array("scores", shared.scores, sizeof(shared.scores[0]), 2);
        name_shared_array("factor", shared.factor, sizeof(shared.factor[0]), 2);
        name_shared_array("norm", shared.norm, sizeof(shared.norm[0]), 2);
    }
    // So far nothing was read that a kernel ahead may have written.
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (lengths_changed(params)) return poison(params, 0, params.h_q);
    const PartitionRecord& record = params.records[blockIdx.z];
    if (record.begin_req >= params.b) return;
    const uint32_t warpgroup = threadIdx.x / 128;
    // Two trips to memory, for the record and for the first indices: under way before all threads meet.
    int32_t index = -1;
    if (warpgroup == 3) index = Walk(params, record).index(params, token_of(threadIdx.x % 128));
    if (threadIdx.x == 0) shared.record = record;
    __syncthreads();

    // 512 registers for a thread of each warpgroup: all 65,536. Accumulators of 32 heads take 128 of those of
    // `values`.
    constexpr uint32_t kFetchRegisters = 40, kValuesRegisters = kHeads == 16 ? 120 : 168,
                       kGatherRegisters = (512 - kFetchRegisters - kValuesRegisters) / 2;
    if (warpgroup == 0) {
        set_registers<kValuesRegisters>();
        name_role("values");
        values(shared, params);
    } else if (warpgroup == 3) {
        set_registers<kFetchRegisters>();
        name_role("fetch");
        fetch(shared, params, index);
    } else {
        set_registers<kGatherRegisters>();
        if (warpgroup == 1)
            name_role("gather[0]");
        else
            name_role("gather[1]");
        gather(shared, params, warpgroup - 1);
    }
}

extern "C" __global__ void __launch_bounds__(512, 1)
    sparse_decode_few_heads_v32_16(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<V32, 16>(params);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    sparse_decode_few_heads_v32_32(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<V32, 32>(params);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    sparse_decode_few_heads_model1_16(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<Model1, 16>(params);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    sparse_decode_few_heads_model1_32(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<Model1, 32>(params);
}
