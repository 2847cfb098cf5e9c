// Threads make rows in two staging buffers, one thread stores them by bulk copies; at the end it reads the
// last row back.
//
// values [rows, 64] float32 -> out [rows, 64] = values times the row's number plus one; check [1] = the sum
// of the last row. Launch: one CTA of 64 threads.
#include "bulk.cuh"
#include "fence.cuh"

using namespace mla;

extern "C" __global__ void __launch_bounds__(64)
    bulk_store(const float* values, float* out, float* check, int rows) {
    __shared__ alignas(16) float staging[2][64];
#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
        // The copy of the row before the last has read its buffer.
        if (threadIdx.x == 0) cp_async_bulk_wait_group_read<1>();
        __syncthreads();
        staging[row % 2][threadIdx.x ^ 1] = values[row * 64 + (threadIdx.x ^ 1)] * (row + 1);
        fence_proxy_async_shared_cta();
        __syncthreads();
        if (threadIdx.x == 0) {
            cp_async_bulk_global_shared(out + row * 64, staging[row % 2], sizeof(staging[0]));
            cp_async_bulk_commit_group();
        }
    }
    if (threadIdx.x == 0) {
        cp_async_bulk_wait_group<0>();
        float sum = 0;
        for (int column = 0; column < 64; ++column)
            sum += out[(rows - 1) * 64 + column];
        check[0] = sum;
    }
}
