// MLACADEMY_VECTOR: compile a loop once for every x86-64 machine and once more for newer vector units; the
// loader picks. The results are the same bits: no function here uses a fused multiply-add or reorders a sum.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define MLACADEMY_VECTOR __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define MLACADEMY_VECTOR
#endif
