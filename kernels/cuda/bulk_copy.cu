// Copy memory through shared memory by bulk copies: the smallest complete pipeline.
//
//   global --bulk load--> stage of a ring in shared memory --bulk store--> global
//
// Each CTA takes the chunks blockIdx.x, blockIdx.x + gridDim.x, … Thread roles: lane 0 of warp 0 produces
// (starts the loads), lane 0 of warp 1 consumes (starts the stores); the others do nothing.
//
//   barrier   one a stage; arrivals              a phase ends when                  who waits
//   full      1 (producer) + bytes of the chunk  the chunk is in shared memory      consumer
//   empty     1 (consumer)                       the store has read the stage       producer
//
// Shared memory: kStages * 4096 bytes of stages, kStages * 16 bytes of barriers.
// Launch: any grid, block 64, no dynamic shared memory. `bytes` and both pointers are multiples of 16.
#include "bulk.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "names.cuh"

using namespace mla;

constexpr uint32_t kStages = 4;
constexpr uint32_t kChunkBytes = 4096;
static_assert(kStages >= 2 && kStages <= 8, "kStages: 2 to 8");
static_assert(kChunkBytes % 16 == 0, "kChunkBytes: a multiple of 16");

struct SharedPlan {
    alignas(128) uint8_t stages[kStages][kChunkBytes];
    Mbarrier full[kStages];
    Mbarrier empty[kStages];
};
static_assert(sizeof(SharedPlan) <= 48 * 1024, "fits without opting in to more shared memory");

__device__ uint32_t chunk_bytes(uint64_t chunk, uint64_t bytes) {
    const uint64_t left = bytes - chunk * kChunkBytes;
    return left < kChunkBytes ? static_cast<uint32_t>(left) : kChunkBytes;
}

__device__ void produce(SharedPlan& shared, const uint8_t* source, uint64_t bytes, uint64_t num_chunks) {
    name_role("producer");
    uint32_t stage = 0, parity = 1;  // a fresh `empty` barrier counts as passed
    for (uint64_t chunk = blockIdx.x; chunk < num_chunks; chunk += gridDim.x) {
        mbarrier_wait_parity(&shared.empty[stage], parity);
        const uint32_t size = chunk_bytes(chunk, bytes);
        mbarrier_arrive_expect_tx(&shared.full[stage], size);
        cp_async_bulk_shared_global(shared.stages[stage], source + chunk * kChunkBytes, size,
                                    &shared.full[stage]);
        if (++stage == kStages) stage = 0, parity ^= 1;
    }
}

__device__ void consume(SharedPlan& shared, uint8_t* target, uint64_t bytes, uint64_t num_chunks) {
    name_role("consumer");
    uint32_t stage = 0, parity = 0;
    for (uint64_t chunk = blockIdx.x; chunk < num_chunks; chunk += gridDim.x) {
        mbarrier_wait_parity(&shared.full[stage], parity);
        cp_async_bulk_global_shared(target + chunk * kChunkBytes, shared.stages[stage],
                                    chunk_bytes(chunk, bytes));
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();  // the stage may be overwritten
        mbarrier_arrive(&shared.empty[stage]);
        if (++stage == kStages) stage = 0, parity ^= 1;
    }
    cp_async_bulk_wait_group<0>();  // the writes have happened
}

extern "C" __global__ void __launch_bounds__(64)
    bulk_copy(const uint8_t* source, uint8_t* target, uint64_t bytes) {
    __shared__ SharedPlan shared;
    if (threadIdx.x == 0) {
        name_shared_array("stage", shared.stages, kChunkBytes, kStages);
        name_shared_array("full", shared.full, sizeof(Mbarrier), kStages);
        name_shared_array("empty", shared.empty, sizeof(Mbarrier), kStages);
        for (uint32_t stage = 0; stage < kStages; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], 1);
        }
        fence_mbarrier_init();
    }
    __syncthreads();

    const uint64_t num_chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
    if (threadIdx.x == 0) produce(shared, source, bytes, num_chunks);
    if (threadIdx.x == 32) consume(shared, target, bytes, num_chunks);
}
