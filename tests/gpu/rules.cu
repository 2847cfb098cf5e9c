// One kernel a rule. With `broken` each leaves out, or does wrongly, what its name says; without, it is
// right.
#include "bulk.cuh"
#include "cluster.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "named_barrier.cuh"
#include "names.cuh"
#include "wgmma.cuh"

using namespace mla;

#define KERNEL(name, threads) \
    extern "C" __global__ void __launch_bounds__(threads) name(const uint32_t* in, uint32_t* out, int broken)

constexpr uint32_t kWords = 128, kBytes = 4 * kWords;

// ---- races of threads
// ----------------------------------------------------------------------------------------

KERNEL(barrier_after_writing, 64) {
    __shared__ uint32_t tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    if (!broken) __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x ^ 32];
}

KERNEL(barrier_before_overwriting, 64) {
    __shared__ uint32_t tile[64];
    uint32_t sum = 0;
    for (uint32_t round = 0; round < 3; ++round) {
        tile[threadIdx.x] = in[threadIdx.x] + round;
        __syncthreads();
        sum += tile[63 - threadIdx.x];
        if (!broken) __syncthreads();
    }
    out[threadIdx.x] = sum;
}

KERNEL(same_byte, 64) {
    __shared__ uint8_t bytes[128];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    bytes[broken && lane == 5 ? 4 * lane : 4 * lane + warp] = static_cast<uint8_t>(in[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = bytes[4 * lane + (broken ? 0 : warp)];
}

KERNEL(named_barrier_of_the_right_number, 96) {
    __shared__ uint32_t tile[32];
    if (threadIdx.x < 32) {
        name_role("writer");
        tile[threadIdx.x] = in[threadIdx.x];
        bar_arrive(broken ? 3 : 1, 64);
    } else if (threadIdx.x < 64) {
        name_role("reader");
        if (broken) {
            bar_sync(2, 64);
        } else {
            bar_sync(1, 64);
        }
        out[threadIdx.x] = tile[threadIdx.x - 32];
    } else {
        bar_sync(broken ? 2 : 4, broken ? 64 : 32);
        if (broken) bar_sync(3, 64);
    }
}

KERNEL(flag_is_volatile, 64) {
    __shared__ uint32_t value, flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        value = in[0];
        __threadfence_block();
        *reinterpret_cast<volatile uint32_t*>(&flag) = 1;
    }
    if (threadIdx.x == 32) {
        if (!broken)
            while (*reinterpret_cast<volatile uint32_t*>(&flag) == 0) {
            }
        asm volatile("" ::: "memory");
        out[0] = value;
    }
}

KERNEL(counter_is_atomic, 64) {
    __shared__ uint32_t counter;
    if (threadIdx.x == 0) counter = 0;
    __syncthreads();
    if (broken)
        counter = counter + 1;
    else
        atomicAdd(&counter, 1);
    __syncthreads();
    out[threadIdx.x] = counter;
}

// ---- races with copies
// ---------------------------------------------------------------------------------------

struct Staged {
    alignas(128) uint32_t tile[kWords];
    Mbarrier full;
};

__device__ void start(Staged& shared) {
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
}
__device__ void load(Staged& shared, const uint32_t* in) {
    if (threadIdx.x != 0) return;
    mbarrier_arrive_expect_tx(&shared.full, kBytes);
    cp_async_bulk_shared_global(shared.tile, in, kBytes, &shared.full);
}

KERNEL(load_is_waited_for, 128) {
    __shared__ Staged shared;
    start(shared);
    load(shared, in);
    if (!broken) mbarrier_wait_parity(&shared.full, 0);
    out[threadIdx.x] = shared.tile[threadIdx.x];
    mbarrier_wait_parity(&shared.full, 0);
}

KERNEL(wait_is_for_this_phase, 128) {
    __shared__ Staged shared;
    start(shared);
    load(shared, in);
    mbarrier_wait_parity(&shared.full, broken ? 1 : 0);  // the phase before the first counts as over
    out[threadIdx.x] = shared.tile[threadIdx.x];
    mbarrier_wait_parity(&shared.full, 0);
}

KERNEL(stage_is_empty_before_it_is_filled, 64) {
    __shared__ alignas(128) uint32_t stage[kWords];
    __shared__ Mbarrier full[2], empty;
    if (threadIdx.x == 0) {
        name_shared("stage", stage, kBytes);
        for (uint32_t chunk = 0; chunk < 2; ++chunk)
            mbarrier_init(&full[chunk], 1);
        mbarrier_init(&empty, 32);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        name_role("producer");
        for (uint32_t chunk = 0; chunk < 2; ++chunk) {
            if (!broken) mbarrier_wait_parity(&empty, chunk ^ 1);
            mbarrier_arrive_expect_tx(&full[chunk], kBytes);
            cp_async_bulk_shared_global(stage, in, kBytes, &full[chunk]);
            mbarrier_wait_parity(&full[chunk], 0);
        }
    } else if (threadIdx.x >= 32) {
        name_role("consumer");
        uint32_t sum = 0;
        for (uint32_t chunk = 0; chunk < 2; ++chunk) {
            mbarrier_wait_parity(&full[chunk], 0);
            sum += stage[threadIdx.x];
            mbarrier_arrive(&empty);
        }
        out[threadIdx.x] = sum;
    }
}

KERNEL(loads_do_not_overlap, 128) {
    __shared__ Staged shared;
    start(shared);
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&shared.full, kBytes);
        cp_async_bulk_shared_global(shared.tile, in, kBytes / 2, &shared.full);
        cp_async_bulk_shared_global(shared.tile + kWords / (broken ? 4 : 2), in, kBytes / 2, &shared.full);
    }
    mbarrier_wait_parity(&shared.full, 0);
    if (!broken) out[threadIdx.x] = shared.tile[threadIdx.x];
}

__device__ void store(uint32_t* out, const uint32_t* tile) {
    cp_async_bulk_global_shared(out, tile, kBytes);
    cp_async_bulk_commit_group();
}

KERNEL(source_of_a_store_is_kept, 128) {
    __shared__ alignas(128) uint32_t tile[kWords];
    tile[threadIdx.x] = in[threadIdx.x];
    fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(out, tile);
        if (!broken) cp_async_bulk_wait_group_read<0>();
        tile[7] = 1;
        cp_async_bulk_wait_group_read<0>();
    }
}

KERNEL(store_is_waited_for_by_its_thread, 128) {
    __shared__ alignas(128) uint32_t tile[kWords];
    tile[threadIdx.x] = in[threadIdx.x];
    fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) store(out, tile);
    if (threadIdx.x == (broken ? 1 : 0)) cp_async_bulk_wait_group_read<0>();
    __syncthreads();
    tile[threadIdx.x] = 1;
    if (threadIdx.x == 0) cp_async_bulk_wait_group<0>();
}

KERNEL(cp_async_is_waited_for, 32) {
    __shared__ alignas(16) uint32_t tile[kWords];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(tile + 4 * threadIdx.x)),
                 "l"(__cvta_generic_to_global(in + 4 * threadIdx.x))
                 : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (!broken) asm volatile("cp.async.wait_group 0;" ::: "memory");
    out[threadIdx.x] = tile[4 * threadIdx.x];
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

KERNEL(tile_is_kept_while_wgmma_reads_it, 128) {
    __shared__ alignas(1024) uint32_t a[2048], b[2048];
    for (uint32_t i = threadIdx.x; i < 2048; i += 128)
        a[i] = 0x3f803f80, b[i] = 0x3f803f80;
    fence_proxy_async_shared_cta();
    __syncthreads();
    float d[4] = {};
    wgmma_fence(d);
    wgmma_m64n8k16_f32_bf16(d, matrix_descriptor<Swizzle::k128B, 1024>(a),
                            matrix_descriptor<Swizzle::k128B, 1024>(b), false);
    wgmma_commit_group();
    if (!broken) wgmma_wait_group<0>(d);
    __syncthreads();
    a[threadIdx.x] = 0;
    wgmma_wait_group<0>(d);
    out[threadIdx.x] = __float_as_uint(d[0]);
}

// ---- the async proxy
// -----------------------------------------------------------------------------------------

KERNEL(writers_fence_before_a_store, 128) {
    __shared__ alignas(128) uint32_t tile[kWords];
    tile[threadIdx.x] = in[threadIdx.x];
    if (!broken) fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(out, tile);
        cp_async_bulk_wait_group_read<0>();
    }
}

KERNEL(every_writer_fences, 128) {
    __shared__ alignas(128) uint32_t tile[kWords];
    tile[threadIdx.x] = in[threadIdx.x];
    if (!broken || threadIdx.x < 32) fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(out, tile);
        cp_async_bulk_wait_group_read<0>();
    }
}

KERNEL(writers_fence_before_wgmma, 128) {
    __shared__ alignas(1024) uint32_t a[2048], b[2048];
    for (uint32_t i = threadIdx.x; i < 2048; i += 128)
        a[i] = 0x3f803f80, b[i] = 0x3f803f80;
    if (!broken) fence_proxy_async_shared_cta();
    __syncthreads();
    float d[4] = {};
    wgmma_fence(d);
    wgmma_m64n8k16_f32_bf16(d, matrix_descriptor<Swizzle::k128B, 1024>(a),
                            matrix_descriptor<Swizzle::k128B, 1024>(b), false);
    wgmma_commit_group();
    wgmma_wait_group<0>(d);
    out[threadIdx.x] = __float_as_uint(d[0]);
}

KERNEL(initialised_barrier_is_fenced, 128) {
    __shared__ Staged shared;
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.full, 1);
        if (!broken) fence_mbarrier_init();
    }
    __syncthreads();
    load(shared, in);
    mbarrier_wait_parity(&shared.full, 0);
    out[threadIdx.x] = shared.tile[threadIdx.x];
}

// ---- initialisation
// ------------------------------------------------------------------------------------------

KERNEL(tile_is_written_before_it_is_read, 64) {
    __shared__ uint32_t tile[64];
    if (!broken || threadIdx.x != 40) tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

KERNEL(tile_is_written_before_it_is_stored, 128) {
    __shared__ alignas(128) uint32_t tile[kWords];
    if (!broken || threadIdx.x < 100) tile[threadIdx.x] = in[threadIdx.x];
    fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(out, tile);
        cp_async_bulk_wait_group_read<0>();
    }
}

KERNEL(local_array_is_written_before_it_is_read, 32) {
    uint32_t mine[8];
    for (uint32_t i = 0; i < (broken ? in[0] & 4 : 8); ++i)
        mine[(i + in[1]) % 8] = i;
    out[threadIdx.x] = mine[threadIdx.x % 8];
}

// ---- mbarriers
// -----------------------------------------------------------------------------------------------

KERNEL(init_comes_before_the_first_use, 64) {
    __shared__ Mbarrier done;
    if (threadIdx.x == 0) mbarrier_init(&done, 64);
    if (!broken) __syncthreads();
    mbarrier_arrive(&done);
    mbarrier_wait_parity(&done, 0);
    out[threadIdx.x] = in[threadIdx.x];
}

KERNEL(init_is_not_repeated_under_a_copy, 128) {
    __shared__ Staged shared;
    start(shared);
    if (threadIdx.x == 0) {
        mbarrier_expect_tx(&shared.full, 16);
        if (broken) mbarrier_init(&shared.full, 1);
        mbarrier_complete_tx(smem_address(&shared.full), 16);
    }
    out[threadIdx.x] = 1;
}

KERNEL(init_is_repeated_after_a_barrier, 64) {
    __shared__ Mbarrier done;
    for (uint32_t round = 0; round < 2; ++round) {
        if (threadIdx.x == 0) mbarrier_init(&done, 64);
        __syncthreads();
        mbarrier_arrive(&done);
        mbarrier_wait_parity(&done, 0);
        if (!broken) __syncthreads();
        if (threadIdx.x == 0 && !broken) mbarrier_inval(&done);
    }
    out[threadIdx.x] = in[threadIdx.x];
}

KERNEL(barrier_is_not_overwritten, 128) {
    __shared__ Staged shared;
    start(shared);
    shared.tile[threadIdx.x] = 0;
    if (broken && threadIdx.x == 0) *reinterpret_cast<uint32_t*>(&shared.full) = 0;
    if (!broken) out[threadIdx.x] = in[threadIdx.x];
}

KERNEL(arrivals_are_as_many_as_announced, 64) {
    __shared__ Mbarrier done;
    if (threadIdx.x == 0) mbarrier_init(&done, broken ? 33 : 64);
    __syncthreads();
    mbarrier_arrive(&done);
    if (!broken) mbarrier_wait_parity(&done, 0);
    if (broken && threadIdx.x == 0) mbarrier_arrive(&done, 40);
    out[threadIdx.x] = in[threadIdx.x];
}

// ---- ends and beginnings
// -------------------------------------------------------------------------------------

KERNEL(last_load_is_waited_for, 128) {
    __shared__ Staged shared;
    start(shared);
    load(shared, in);
    if (!broken) mbarrier_wait_parity(&shared.full, 0);
    out[threadIdx.x] = in[threadIdx.x];
}

KERNEL(last_store_has_read_its_source, 128) {
    __shared__ alignas(128) uint32_t tile[kWords];
    tile[threadIdx.x] = in[threadIdx.x];
    fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(out, tile);
        if (!broken) cp_async_bulk_wait_group_read<0>();
    }
}

KERNEL(whole_warps_come_to_a_barrier, 64) {
    if (!broken || threadIdx.x % 32 < 20) __syncthreads();
    __syncthreads();
    out[threadIdx.x] = in[threadIdx.x];
}

KERNEL(peer_has_started, 32) {
    __shared__ uint32_t box[32];
    if (!broken) cluster_sync();
    st_shared_cluster_u32(mapa(smem_address(&box[threadIdx.x]), cluster_ctarank() ^ 1), in[threadIdx.x]);
    cluster_sync();
    out[threadIdx.x] = box[threadIdx.x];
}

KERNEL(peer_has_not_exited, 32) {
    __shared__ uint32_t box[32];
    box[threadIdx.x] = in[threadIdx.x];
    cluster_sync();
    out[threadIdx.x] = ld_shared_cluster_u32(mapa(smem_address(&box[threadIdx.x]), cluster_ctarank() ^ 1));
    if (!broken) cluster_sync();
}

KERNEL(peer_has_written, 32) {
    __shared__ uint32_t box[32];
    cluster_sync();
    st_shared_cluster_u32(mapa(smem_address(&box[threadIdx.x]), cluster_ctarank() ^ 1), in[threadIdx.x]);
    if (broken) {
        barrier_cluster_arrive_relaxed();
        barrier_cluster_wait();
    } else {
        cluster_sync();
    }
    out[threadIdx.x] = box[threadIdx.x];
    cluster_sync();
}

KERNEL(remote_barrier_is_initialised, 32) {
    __shared__ Mbarrier from_peer;
    if (threadIdx.x == 0) {
        mbarrier_init(&from_peer, 32);
        if (!broken) fence_mbarrier_init();
    }
    barrier_cluster_arrive_relaxed();
    barrier_cluster_wait();
    mbarrier_arrive_cluster(mapa(smem_address(&from_peer), cluster_ctarank() ^ 1));
    mbarrier_wait_parity_cluster(&from_peer, 0);
    out[threadIdx.x] = in[threadIdx.x];
    cluster_sync();
}

// Always right: who has waited for a copy may exit without meeting the CTA that sent it.
KERNEL(receiver_may_exit_first, 32) {
    __shared__ alignas(16) uint32_t box[32];
    __shared__ Mbarrier arrived;
    if (threadIdx.x == 0) {
        mbarrier_init(&arrived, 1);
        mbarrier_arrive_expect_tx(&arrived, 128);
        fence_mbarrier_init();
    }
    cluster_sync();
    if (cluster_ctarank() == 0)
        st_async_u32(mapa(smem_address(&box[threadIdx.x]), 1), in[threadIdx.x],
                     mapa(smem_address(&arrived), 1));
    if (cluster_ctarank() == 0 && threadIdx.x == 0) {
        mbarrier_complete_tx(smem_address(&arrived), 128);
    }
    if (cluster_ctarank() == 1) {
        mbarrier_wait_parity_cluster(&arrived, 0);
        out[threadIdx.x] = box[threadIdx.x];
        if (threadIdx.x == 0) mbarrier_inval(&arrived);
    }
}
