// Sparse decode of multi-head latent attention on Hopper for 1 to 32 query heads. wgmma multiplies 64 rows;
// so here tokens are the rows, and heads the columns of both products:
//
//   scores^T [64 tokens, heads] = k [64, d_qk] times q^T      k from registers, where it was converted
//   out^T    [512, heads]       = v^T [512, 64] times p^T     v from shared memory, read column by column
//
// Three warpgroups. Two gather: each takes every second block of 64 tokens. One gathers nothing:
//
//   gather[0], gather[1]   read the rows of the slots (a block ahead, in registers), convert them, store them
//                          as v, multiply them by q, softmax, store p
//   values                 v^T times p^T, the sums, the results; loads q, a request ahead
//
//   barrier      arrivals a phase                ends when                               who waits
//   q_full[2]    4 (one a warp of values)        a request's heads have landed           gather
//   v_full[2]    4 (one a warp of gather[i])     v, p and what goes with them are there  values, gather[1 -
//   i] v_empty[2]   4 (one a warp of values)        values has used them                    gather[i] 1, 2
//   (named) 128                             the warps' maxima are in memory         gather[0], gather[1]
//
// gather[1 - i] waits on v_full[i] for the maximum that its own block's begins with. q needs no barrier of
// the other direction: where a request's last p has come, all its multiplies with q are over.
//
// Order of columns. Thread t of a quad holds columns 16 t to 16 t + 15 of a column block, sorted: even ones,
// then odd ones. Stored so, row 16 w + g + 8 s of out^T is column 16 w + 2 g + s, and a thread's two rows are
// neighbours in memory. Step j of k times q takes four columns of each thread, so q lies permuted to match.
//
// Launch: grid (1, s_q, partitions), block 384, dynamic shared memory sizeof(SharedPlan). The entries'
// numbers are the widths that h_q is padded to. Layouts of the cache: 656 bytes a token (V3.2) or 584
// (MODEL1).
#include "few_heads_gather.cuh"
#include "few_heads_values.cuh"
#include "griddepcontrol.cuh"
#include "lengths.cuh"
#include "names.cuh"
#include "setmaxnreg.cuh"

using namespace mla;

static_assert(sizeof(SharedPlan<V32, 32>) <= 232448, "shared memory of a CTA");

template <class Layout, uint32_t kHeads>
__device__ void sparse_decode(const SparseDecodeParams& params) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    auto& shared = *reinterpret_cast<SharedPlan<Layout, kHeads>*>(bytes);
    griddepcontrol_launch_dependents();
    if (lengths_changed(params)) return poison(params, 0, params.h_q);
    if (params.records[blockIdx.z].begin_req >= params.b) return;

    if (threadIdx.x == 0) {
        shared.record = params.records[blockIdx.z];
        for (uint32_t i = 0; i < 2; ++i) {
            mbarrier_init(&shared.q_full[i], kWarps);
            mbarrier_init(&shared.v_full[i], kWarps);
            mbarrier_init(&shared.v_empty[i], kWarps);
        }
        name_shared_array("q_full", shared.q_full, sizeof(Mbarrier), 2);
        name_shared_array("v_full", shared.v_full, sizeof(Mbarrier), 2);
        name_shared_array("v_empty", shared.v_empty, sizeof(Mbarrier), 2);
        name_shared_array("q", shared.q, sizeof(shared.q[0]), 2);
        name_shared_array("v", shared.v, sizeof(shared.v[0]), 2);
        name_shared_array("p", shared.p, sizeof(shared.p[0]), 2);
        name_shared_array("reference", shared.reference, sizeof(shared.reference[0]), 2);
        name_shared_array("factor", shared.factor, sizeof(shared.factor[0]), 2);
        name_shared_array("top", shared.top, sizeof(shared.top[0]), 2);
        name_shared_array("sum", shared.sum, sizeof(shared.sum[0]), 2);
    }
    __syncthreads();

    // A launch gives each thread 168: 504 for a thread of each warpgroup.
    constexpr uint32_t kValuesRegisters = kHeads == 16 ? 104 : 160;
    constexpr uint32_t kGatherRegisters = (504 - kValuesRegisters) / 2 / 8 * 8;
    const uint32_t warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
        setmaxnreg_dec<kValuesRegisters>();
        name_role("values");
        values(shared, params);
    } else {
        setmaxnreg_inc<kGatherRegisters>();
        if (warpgroup == 1)
            name_role("gather[0]");
        else
            name_role("gather[1]");
        gather(shared, params, warpgroup - 1);
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    sparse_decode_few_heads_v32_16(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<V32, 16>(params);
}
extern "C" __global__ void __launch_bounds__(384, 1)
    sparse_decode_few_heads_v32_32(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<V32, 32>(params);
}
extern "C" __global__ void __launch_bounds__(384, 1)
    sparse_decode_few_heads_model1_16(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<Model1, 16>(params);
}
extern "C" __global__ void __launch_bounds__(384, 1)
    sparse_decode_few_heads_model1_32(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<Model1, 32>(params);
}
