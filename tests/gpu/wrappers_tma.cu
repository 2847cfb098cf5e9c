// What the wrappers do, shown by small kernels that run on the emulator and on a GPU: TMA loads, multicast,
// stores and reductions.
#include "bulk.cuh"
#include "cluster.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "tma.cuh"

using namespace mla;

// Cluster of 2, block 32. Each CTA loads half of an 8 x 32 block and sends it to both; out [ctas, 8, 32].
extern "C" __global__ void multicast(const __grid_constant__ CUtensorMap map, float* out) {
    __shared__ alignas(128) float tile[2][4][32];
    __shared__ Mbarrier full;
    const uint32_t rank = cluster_ctarank();
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&full, sizeof(tile));
        cp_async_bulk_tensor_2d_shared_global_multicast(tile[rank], &map, 0, blockIdx.x / 2 * 8 + rank * 4,
                                                        &full, 3);
    }
    mbarrier_wait_parity_cluster(&full, 0);
    for (int row = 0; row < 8; ++row) {
        out[(blockIdx.x * 8 + row) * 32 + threadIdx.x] = tile[row / 4][row % 4][threadIdx.x];
    }
    cluster_sync();
}

// Block 32. Loads the box at (c0, c1); out [8, 32].
extern "C" __global__ void load_box(const __grid_constant__ CUtensorMap in, float* out, int c0, int c1) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ Mbarrier full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(&full, sizeof(tile));
        cp_async_bulk_tensor_2d_shared_global(tile, &in, c0, c1, &full);
    }
    __syncthreads();
    mbarrier_wait_parity(&full, 0);
    for (int row = 0; row < 8; ++row)
        out[row * 32 + threadIdx.x] = tile[row][threadIdx.x];
}

// Block 32. Loads the box at (c0, c1), adds one, stores it there and adds it twice to `sums`.
extern "C" __global__ void store_and_reduce(const __grid_constant__ CUtensorMap in,
                                            const __grid_constant__ CUtensorMap stored,
                                            const __grid_constant__ CUtensorMap sums, int c0, int c1) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ Mbarrier full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(&full, sizeof(tile));
        cp_async_bulk_tensor_2d_shared_global(tile, &in, c0, c1, &full);
    }
    __syncthreads();
    mbarrier_wait_parity(&full, 0);
    for (int row = 0; row < 8; ++row)
        tile[row][threadIdx.x] += 1.0f;
    fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cp_async_bulk_tensor_2d_global_shared(&stored, c0, c1, tile);
        for (int i = 0; i < 2; ++i)
            cp_reduce_async_bulk_tensor_2d_add(&sums, c0, c1, tile);
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group<0>();
    }
}
