// EMU_VECTOR: compile a loop once for every x86-64 machine and once more for newer vector units; the loader
// picks. The results are the same bits: the build forbids contraction, and no such loop reorders a sum of
// floats.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EMU_VECTOR __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define EMU_VECTOR
#endif
