// Calls every wrapper of the header layer once, so that the assembler sees each instruction. Not meant to
// run.
#include "bulk.cuh"
#include "cluster.cuh"
#include "convert.cuh"
#include "cp_async.cuh"
#include "fence.cuh"
#include "griddepcontrol.cuh"
#include "mbarrier.cuh"
#include "memory.cuh"
#include "named_barrier.cuh"
#include "setmaxnreg.cuh"
#include "tma.cuh"
#include "warp.cuh"
#include "wgmma.cuh"

using namespace mla;

struct alignas(1024) SharedPlan {
    uint8_t bytes[4096];
    Mbarrier barrier;
};

extern "C" __global__ void every_mbarrier(uint32_t* out) {
    __shared__ SharedPlan shared;
    Mbarrier* barrier = &shared.barrier;
    const uint32_t there = mapa(smem_address(barrier), cluster_ctarank() ^ 1);
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive(barrier);
    mbarrier_arrive(barrier, 2);
    mbarrier_arrive_drop(barrier);
    mbarrier_expect_tx(barrier, 16);
    mbarrier_arrive_expect_tx(barrier, 16);
    mbarrier_complete_tx(there, 16);
    mbarrier_arrive_cluster(there);
    mbarrier_arrive_remote(there);
    mbarrier_arrive_expect_tx_cluster(there, 16);
    cp_async_mbarrier_arrive_noinc(barrier);
    out[0] = mbarrier_test_wait_parity(barrier, 0);
    mbarrier_wait_parity(barrier, 0);
    mbarrier_wait_parity_cluster(barrier, 1);
    mbarrier_inval(barrier);
}

extern "C" __global__ void every_copy(const __grid_constant__ CUtensorMap map, uint8_t* global, float* sums) {
    __shared__ SharedPlan shared;
    Mbarrier* barrier = &shared.barrier;
    uint8_t* tile = shared.bytes;
    prefetch_tensormap(&map);
    cp_async_cg_16(tile, global, sums != nullptr);
    cp_async_bulk_prefetch_l2(global, 16);
    cp_async_bulk_shared_global(tile, global, 16, barrier);
    cp_async_bulk_shared_global_multicast(tile, global, 16, barrier, 3);
    cp_async_bulk_cluster_shared(mapa(smem_address(tile), 1), tile, 16, mapa(smem_address(barrier), 1));
    cp_async_bulk_global_shared(global, tile, 16);
    cp_reduce_async_bulk_add_f32(sums, reinterpret_cast<const float*>(tile), 16);
    cp_async_bulk_tensor_1d_shared_global(tile, &map, 0, barrier);
    cp_async_bulk_tensor_2d_shared_global(tile, &map, 0, 1, barrier);
    cp_async_bulk_tensor_3d_shared_global(tile, &map, 0, 1, 2, barrier);
    cp_async_bulk_tensor_4d_shared_global(tile, &map, 0, 1, 2, 3, barrier);
    cp_async_bulk_tensor_5d_shared_global(tile, &map, 0, 1, 2, 3, 4, barrier);
    cp_async_bulk_tensor_2d_shared_global_multicast(tile, &map, 0, 1, barrier, 3);
    cp_async_bulk_tensor_3d_shared_global_multicast(tile, &map, 0, 1, 2, barrier, 3);
    cp_async_bulk_tensor_1d_global_shared(&map, 0, tile);
    cp_async_bulk_tensor_2d_global_shared(&map, 0, 1, tile);
    cp_async_bulk_tensor_3d_global_shared(&map, 0, 1, 2, tile);
    cp_async_bulk_tensor_4d_global_shared(&map, 0, 1, 2, 3, tile);
    cp_async_bulk_tensor_5d_global_shared(&map, 0, 1, 2, 3, 4, tile);
    cp_reduce_async_bulk_tensor_2d_add(&map, 0, 1, tile);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<1>();
    cp_async_bulk_wait_group<0>();
}

extern "C" __global__ void every_plain_access(const uint8_t* global) {
    __shared__ uint4 word;
    const uint2 two = ld_global_nc_v2_u32(global);
    uint4 four = ld_global_nc_v4_u32(global);
    four.x += ld_global_nc_u16(global) + ld_global_nc_u32(global) + two.x;
    st_shared_v4_u32(smem_address(&word), four);
}

extern "C" __global__ void every_cluster_access(uint32_t* out, float* sums) {
    __shared__ uint4 word;
    __shared__ Mbarrier barrier;
    const uint32_t there = mapa(smem_address(&word), cluster_nctarank() - 1);
    const uint32_t its_barrier = mapa(smem_address(&barrier), cluster_nctarank() - 1);
    barrier_cluster_arrive_relaxed();
    barrier_cluster_wait();
    st_shared_cluster_u32(there, 1);
    st_shared_cluster_f32(there, 1.0f);
    st_async_u32(there, 1, its_barrier);
    const uint32_t four[4] = {1, 2, 3, 4};
    st_async_v4_u32(there, four, its_barrier);
    red_async_add_u32(there, 1, its_barrier);
    out[0] = ld_shared_cluster_u32(there);
    sums[0] = ld_shared_cluster_f32(there);
    cluster_sync();
}

extern "C" __global__ void every_fence(const void* map) {
    griddepcontrol_wait();
    fence_proxy_async();
    fence_proxy_async_shared_cta();
    fence_proxy_async_global();
    fence_proxy_tensormap_release_gpu();
    fence_proxy_tensormap_acquire_gpu(map);
    fence_acq_rel_cta();
    fence_acq_rel_cluster();
    fence_acq_rel_gpu();
    bar_arrive(1, 64);
    bar_sync(1, 64);
    barrier_sync(2, 64);
    griddepcontrol_launch_dependents();
}

extern "C" __global__ void every_conversion(const float* in, uint32_t* out, float* back) {
    const float low = in[0], high = in[1];
    out[0] = cvt_rn_bf16x2_f32(low, high);
    out[1] = cvt_rn_f16x2_f32(low, high);
    const uint16_t e4m3 = cvt_rn_satfinite_e4m3x2_f32(low, high);
    const uint16_t e5m2 = cvt_rn_satfinite_e5m2x2_f32(low, high);
    out[2] = e4m3;
    out[3] = e5m2;
    out[4] = cvt_rn_f16x2_e4m3x2(e4m3);
    out[5] = cvt_rn_f16x2_e5m2x2(e5m2);
    out[6] = cvt_rna_tf32_f32(low);
    back[0] = cvt_f32_f16(static_cast<uint16_t>(out[1]));
    back[1] = bf16_to_f32(static_cast<uint16_t>(out[0]));
}

extern "C" __global__ void __launch_bounds__(256, 1) every_warp_instruction(uint32_t* out) {
    __shared__ SharedPlan shared;
    if (threadIdx.x < 128) {
        setmaxnreg_dec<40>();
    } else {
        setmaxnreg_inc<168>();
    }
    uint32_t registers[4];
    ldmatrix_x4(registers, shared.bytes + threadIdx.x % 32 * 16);
    stmatrix_x4(shared.bytes + threadIdx.x % 32 * 16, registers);
    stmatrix_x4_trans(shared.bytes + threadIdx.x % 32 * 16, registers);
    if (elect_sync()) out[threadIdx.x] = registers[0];
}

template <int kRegisters>
__device__ void finish(float (&d)[kRegisters], float* out) {
    wgmma_commit_group();
    wgmma_wait_group<0>(d);
    for (int i = 0; i < kRegisters; ++i)
        out[i * 128 + threadIdx.x] = d[i];
}

extern "C" __global__ void __launch_bounds__(128) every_wgmma(float* out) {
    __shared__ SharedPlan shared;
    const uint64_t a = matrix_descriptor<Swizzle::k128B, 1024>(shared.bytes);
    const uint64_t b = advance(a, 32);
    const uint32_t fragment[4] = {1, 2, 3, 4};
    float d8[4] = {}, d16[8] = {}, d32[16] = {}, d64[32] = {}, d128[64] = {}, d256[128] = {};
    wgmma_fence(d8);
    wgmma_m64n8k16_f32_bf16(d8, a, b, false);
    finish(d8, out);
    wgmma_fence(d16);
    wgmma_m64n16k16_f32_bf16<1>(d16, a, b, false);
    wgmma_commit_group();
    wgmma_fence();
    wgmma_m64n16k16_f32_bf16(d16, fragment, b, true);
    wgmma_wait_group<1>();
    finish(d16, out);
    wgmma_fence(d32);
    wgmma_m64n32k16_f32_bf16<1>(d32, a, b, false);
    wgmma_m64n32k16_f32_bf16(d32, fragment, b, true);
    finish(d32, out);
    wgmma_fence(d64);
    wgmma_m64n64k16_f32_bf16(d64, a, b, false);
    wgmma_m64n64k16_f32_bf16<1, 1>(d64, a, b, true);
    wgmma_m64n64k16_f32_bf16(d64, fragment, b, true);
    wgmma_m64n64k32_f32_e4m3(d64, a, b, true);
    finish(d64, out);
    wgmma_fence(d128);
    wgmma_m64n128k16_f32_bf16(d128, a, b, false);
    wgmma_m64n128k16_f32_bf16<1>(d128, fragment, b, true);
    wgmma_m64n128k32_f32_e4m3(d128, a, b, true);
    finish(d128, out);
    wgmma_fence(d256);
    wgmma_m64n256k16_f32_bf16(d256, a, b, false);
    wgmma_m64n256k16_f32_bf16<1>(d256, fragment, b, true);
    finish(d256, out);
}
