// Small kernels that show what the wrappers do: the same ones run on the emulator and on a GPU.
#include "bulk.cuh"
#include "cluster.cuh"
#include "convert.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "named_barrier.cuh"
#include "setmaxnreg.cuh"
#include "tma.cuh"
#include "warp.cuh"
#include "wgmma.cuh"

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

// Block 384. The first warpgroup gives registers away and writes; the others take them and read. out [2,
// 128].
extern "C" __global__ void __launch_bounds__(384, 1) hand_over(const int* in, int* out) {
    __shared__ int words[128];
    const uint32_t warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
    if (warpgroup == 0) {
        setmaxnreg_dec<40>();
        words[thread] = in[thread];
        bar_arrive(1, 384);
    } else {
        setmaxnreg_inc<232>();
        bar_sync(1, 384);
        out[(warpgroup - 1) * 128 + thread] = words[127 - thread] + static_cast<int>(warpgroup);
        bar_sync(2 + warpgroup, 128);
    }
}

// Block 32. Four 8 x 8 matrices to registers and back: fragments [32, 4], copies [4, 8, 8].
extern "C" __global__ void matrices(const uint16_t* in, uint32_t* fragments, uint16_t* copies) {
    __shared__ alignas(16) uint16_t from[32][8], to[32][8];
    for (int column = 0; column < 8; ++column)
        from[threadIdx.x][column] = in[threadIdx.x * 8 + column];
    __syncwarp();
    uint32_t registers[4];
    ldmatrix_x4(registers, from[threadIdx.x]);
    for (int j = 0; j < 4; ++j)
        fragments[threadIdx.x * 4 + j] = registers[j];
    stmatrix_x4(to[threadIdx.x], registers);
    __syncwarp();
    for (int column = 0; column < 8; ++column)
        copies[threadIdx.x * 8 + column] = to[threadIdx.x][column];
    if (elect_sync()) copies[256] = 1;
}

// One pair of values a thread.
extern "C" __global__ void narrow(const float* in, uint32_t* bf16, uint32_t* f16, uint16_t* e4m3,
                                  uint16_t* e5m2, uint32_t* tf32, int pairs) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) return;
    const float low = in[2 * i], high = in[2 * i + 1];
    bf16[i] = cvt_rn_bf16x2_f32(low, high);
    f16[i] = cvt_rn_f16x2_f32(low, high);
    e4m3[i] = cvt_rn_satfinite_e4m3x2_f32(low, high);
    e5m2[i] = cvt_rn_satfinite_e5m2x2_f32(low, high);
    tf32[i] = cvt_rna_tf32_f32(low);
}

// Block 128: two codes a thread. e4m3, e5m2 [256] float32; bf16 [128] from the 16 bits of the thread's pair.
extern "C" __global__ void widen(const uint16_t* pairs, float* e4m3, float* e5m2, float* bf16) {
    const uint32_t four = cvt_rn_f16x2_e4m3x2(pairs[threadIdx.x]);
    const uint32_t five = cvt_rn_f16x2_e5m2x2(pairs[threadIdx.x]);
    for (int half = 0; half < 2; ++half) {
        e4m3[2 * threadIdx.x + half] = cvt_f32_f16(static_cast<uint16_t>(four >> (16 * half)));
        e5m2[2 * threadIdx.x + half] = cvt_f32_f16(static_cast<uint16_t>(five >> (16 * half)));
    }
    bf16[threadIdx.x] = bf16_to_f32(pairs[threadIdx.x]);
}

// Rows of 128 bytes into shared memory, swizzled as TMA would.
__device__ void load_rows(uint8_t* tile, const uint8_t* rows, uint32_t count) {
    for (uint32_t byte = threadIdx.x * 16; byte < count * 128; byte += 128 * 16) {
        const uint32_t place = byte ^ (byte >> 3 & 0x70);
        *reinterpret_cast<uint4*>(tile + place) = *reinterpret_cast<const uint4*>(rows + byte);
    }
}

enum class From { kShared, kRegisters };

// Block 128. a: 64 rows of 128 bytes, b: kRows rows of 128 bytes, out [64, kN]: four slices of K, kStep bytes
// apart.
template <int kN, int kRows, int kStep, From kA, typename Multiply>
__device__ void multiply_tile(const uint8_t* a, const uint8_t* b, float* out, Multiply multiply) {
    __shared__ alignas(1024) uint8_t a_tile[64 * 128], b_tile[kRows * 128];
    load_rows(a_tile, a, 64);
    load_rows(b_tile, b, kRows);
    fence_proxy_async_shared_cta();
    __syncthreads();

    uint32_t fragments[4][4];  // of the four slices, where A comes from registers
    for (int slice = 0; kA == From::kRegisters && slice < 4; ++slice) {
        for (int j = 0; j < 4; ++j) {
            const uint32_t row = accumulator_row(threadIdx.x, 2 * j),
                           k = accumulator_column(threadIdx.x, 2 * j);
            fragments[slice][j] = *reinterpret_cast<const uint32_t*>(a + row * 128 + slice * 32 + k * 2);
        }
    }
    float d[kN / 2];
    for (int i = 0; i < kN / 2; ++i)
        d[i] = 1e30f;  // left out by the first multiply
    const uint64_t a_matrix = matrix_descriptor<Swizzle::k128B, 1024>(a_tile);
    const uint64_t b_matrix = matrix_descriptor<Swizzle::k128B, 1024>(b_tile);
    wgmma_fence(d);
#pragma unroll
    for (int slice = 0; slice < 4; ++slice) {
        const uint64_t b_slice = advance(b_matrix, slice * kStep);
        if constexpr (kA == From::kShared) {
            multiply(d, advance(a_matrix, slice * kStep), b_slice, slice > 0);
        } else {
            multiply(d, fragments[slice], b_slice, slice > 0);
        }
    }
    wgmma_commit_group();
    wgmma_wait_group<0>(d);
    for (int i = 0; i < kN / 2; ++i) {
        out[accumulator_row(threadIdx.x, i) * kN + accumulator_column(threadIdx.x, i)] = d[i];
    }
}

#define TILE_KERNEL(name, n, rows, step, from, multiply)                                                     \
    struct name##_multiply {                                                                                 \
        __device__ void operator()(auto& d, const auto& left, uint64_t right, bool more) const {             \
            multiply(d, left, right, more);                                                                  \
        }                                                                                                    \
    };                                                                                                       \
    extern "C" __global__ void __launch_bounds__(128) name(const uint8_t* a, const uint8_t* b, float* out) { \
        multiply_tile<n, rows, step, from>(a, b, out, name##_multiply{});                                    \
    }
TILE_KERNEL(bf16_n8, 8, 8, 32, From::kShared, wgmma_m64n8k16_f32_bf16)
TILE_KERNEL(bf16_n64, 64, 64, 32, From::kShared, wgmma_m64n64k16_f32_bf16)
TILE_KERNEL(bf16_n128, 128, 128, 32, From::kShared, wgmma_m64n128k16_f32_bf16)
TILE_KERNEL(bf16_n256, 256, 256, 32, From::kShared, wgmma_m64n256k16_f32_bf16)
TILE_KERNEL(bf16_n64_transposed, 64, 64, 2048, From::kShared, (wgmma_m64n64k16_f32_bf16<1, 1>))
TILE_KERNEL(bf16_n64_registers, 64, 64, 32, From::kRegisters, wgmma_m64n64k16_f32_bf16)
TILE_KERNEL(bf16_n256_registers, 256, 256, 32, From::kRegisters, wgmma_m64n256k16_f32_bf16)
TILE_KERNEL(e4m3_n64, 64, 64, 32, From::kShared, wgmma_m64n64k32_f32_e4m3)
TILE_KERNEL(e4m3_n128, 128, 128, 32, From::kShared, wgmma_m64n128k32_f32_e4m3)
