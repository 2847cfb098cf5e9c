// What the wrappers do, shown by small kernels that run on the emulator and on a GPU: bulk copies and stores
// between the CTAs of a cluster.
#include "bulk.cuh"
#include "cluster.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"

using namespace mla;

// Cluster of 2, block 32. CTA 0 loads 64 bytes and sends them to both; out [ctas, 16].
extern "C" __global__ void bulk_multicast(const uint32_t* in, uint32_t* out) {
    __shared__ alignas(16) uint32_t words[16];
    __shared__ Mbarrier full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(&full, sizeof(words));
    }
    cluster_sync();
    if (threadIdx.x == 0 && cluster_ctarank() == 0) {
        cp_async_bulk_shared_global_multicast(words, in + blockIdx.x / 2 * 16, sizeof(words), &full, 3);
    }
    mbarrier_wait_parity_cluster(&full, 0);
    if (threadIdx.x < 16) out[blockIdx.x * 16 + threadIdx.x] = words[threadIdx.x];
    cluster_sync();
}

// Cluster of 4, block 32. Each CTA sends its number to the next in five ways; out [4, 32].
extern "C" __global__ void neighbours(uint32_t* out) {
    struct alignas(16) Box {
        uint32_t words[16];     // copied in bulk
        uint32_t four[4];       // st.async
        uint32_t one, counter;  // st.async, red.async
        uint32_t plain;         // st
    };
    __shared__ Box box, outgoing;
    __shared__ Mbarrier arrived;
    const uint32_t rank = cluster_ctarank(), next = (rank + 1) % cluster_nctarank();
    if (threadIdx.x == 0) {
        mbarrier_init(&arrived, 2);  // this CTA's expectation and the sender's own arrival
        fence_mbarrier_init();
        box.counter = 100;
    }
    if (threadIdx.x < 16) outgoing.words[threadIdx.x] = 1000 * rank + threadIdx.x;
    fence_proxy_async_shared_cta();
    cluster_sync();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&arrived, 64 + 16 + 4 + 4);
        const uint32_t barrier = mapa(smem_address(&arrived), next);
        const uint32_t four[4] = {rank, rank + 1, rank + 2, rank + 3};
        cp_async_bulk_cluster_shared(mapa(smem_address(box.words), next), outgoing.words, 64, barrier);
        st_async_v4_u32(mapa(smem_address(box.four), next), four, barrier);
        st_async_u32(mapa(smem_address(&box.one), next), 7 * rank, barrier);
        red_async_add_u32(mapa(smem_address(&box.counter), next), rank, barrier);
        st_shared_cluster_u32(mapa(smem_address(&box.plain), next), 11 * rank);
        mbarrier_arrive_cluster(barrier);
    }
    mbarrier_wait_parity_cluster(&arrived, 0);
    if (threadIdx.x < 16) out[rank * 32 + threadIdx.x] = box.words[threadIdx.x];
    if (threadIdx.x < 4) out[rank * 32 + 16 + threadIdx.x] = box.four[threadIdx.x];
    if (threadIdx.x == 0) {
        out[rank * 32 + 20] = box.one;
        out[rank * 32 + 21] = box.counter;
        out[rank * 32 + 22] = box.plain;
    }
    cluster_sync();
}
