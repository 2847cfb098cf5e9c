// Programmatic dependent launch: a kernel starts while the one ahead of it in the stream still runs.
#pragma once

#include "base.cuh"

namespace mla {

// Wait until the kernels this one depends on have ended and their writes are visible. Any thread; without a
// programmatic launch it does nothing.
// section: griddepcontrol; from sm_90
__device__ __forceinline__ void griddepcontrol_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Allow the next kernel to start, once every CTA of this one has said so or has ended. Any thread.
// section: griddepcontrol; from sm_90
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace mla
