// What the wrappers do, shown by small kernels that run on the emulator and on a GPU: named barriers,
// setmaxnreg, and matrices of a warp.
#include "named_barrier.cuh"
#include "setmaxnreg.cuh"
#include "warp.cuh"

using namespace mla;

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

// Block 32. Four 8 x 8 matrices to registers and back: fragments [32, 4], copies and, transposed, turned
// [4, 8, 8].
extern "C" __global__ void matrices(const uint16_t* in, uint32_t* fragments, uint16_t* copies,
                                    uint16_t* turned) {
    __shared__ alignas(16) uint16_t from[32][8], to[32][8], across[32][8];
    for (int column = 0; column < 8; ++column)
        from[threadIdx.x][column] = in[threadIdx.x * 8 + column];
    __syncwarp();
    uint32_t registers[4];
    ldmatrix_x4(registers, from[threadIdx.x]);
    for (int j = 0; j < 4; ++j)
        fragments[threadIdx.x * 4 + j] = registers[j];
    stmatrix_x4(to[threadIdx.x], registers);
    stmatrix_x4_trans(across[threadIdx.x], registers);
    __syncwarp();
    for (int column = 0; column < 8; ++column) {
        copies[threadIdx.x * 8 + column] = to[threadIdx.x][column];
        turned[threadIdx.x * 8 + column] = across[threadIdx.x][column];
    }
    if (elect_sync()) copies[256] = 1;
}
