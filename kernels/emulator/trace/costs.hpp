// The constants of the cost model. What each one means and how it was measured stands in one place:
// src/mlacademy/gpu/cost_model.py, which has a field of the same name for every one. Cycles, and bytes a
// cycle.
#pragma once

namespace emu {

#define EMU_COSTS(X)           \
    X(integer_issue)           \
    X(multiply_issue)          \
    X(float32_issue)           \
    X(half_issue)              \
    X(float64_issue)           \
    X(convert_issue)           \
    X(special_issue)           \
    X(shuffle_issue)           \
    X(alu_latency)             \
    X(integer_latency)         \
    X(half_latency)            \
    X(convert_latency)         \
    X(special_latency)         \
    X(float64_latency)         \
    X(shuffle_latency)         \
    X(divide_issue)            \
    X(divide_latency)          \
    X(float_divide_issue)      \
    X(float_divide_latency)    \
    X(clock_latency)           \
    X(branch_latency)          \
    X(shared_latency)          \
    X(shared_bytes)            \
    X(conflict_latency)        \
    X(shared_atomic_latency)   \
    X(matrix_latency)          \
    X(l1_latency)              \
    X(l2_latency)              \
    X(l2_bytes)                \
    X(global_store_bytes)      \
    X(l2_total)                \
    X(dram_latency)            \
    X(dram_bytes)              \
    X(global_atomic_latency)   \
    X(remote_latency)          \
    X(remote_bytes)            \
    X(fence_latency)           \
    X(wide_fence_latency)      \
    X(proxy_fence_latency)     \
    X(mbarrier_issue)          \
    X(mbarrier_arrive_latency) \
    X(mbarrier_wait_latency)   \
    X(mbarrier_wake_latency)   \
    X(remote_arrive_latency)   \
    X(barrier_latency)         \
    X(barrier_warp)            \
    X(cluster_latency)         \
    X(bulk_issue)              \
    X(bulk_latency)            \
    X(bulk_bytes)              \
    X(tensor_latency)          \
    X(tensor_row)              \
    X(store_issue)             \
    X(store_bytes)             \
    X(store_read_latency)      \
    X(store_latency)           \
    X(copy_latency)            \
    X(wgmma_macs)              \
    X(wgmma_latency)           \
    X(wgmma_wait_latency)      \
    X(mma_latency)             \
    X(mma_macs)                \
    X(registers_latency)       \
    X(start_latency)           \
    X(cta_gap)                 \
    X(sms)                     \
    X(cold)

struct Costs {
#define EMU_COST_FIELD(name) double name = 0;
    EMU_COSTS(EMU_COST_FIELD)
#undef EMU_COST_FIELD
};

}  // namespace emu
