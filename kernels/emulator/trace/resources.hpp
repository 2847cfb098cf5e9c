// What warps compete for: servers that take requests in turn, the units of a multiprocessor, and points at
// which warps meet.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace emu {

// Serves one request after the other.
struct Server {
    double free = 0;
    // When a request that comes at `at` and takes `duration` starts to be served.
    double take(double at, double duration) {
        const double start = std::max(at, free);
        free = start + duration;
        return start;
    }
};

enum class Pipe : std::uint8_t { integer, float32, half, float64, convert, special, count };

struct SubPartition {
    Server issue, tensor;
    std::array<Server, static_cast<std::size_t>(Pipe::count)> pipes;
};

struct Multiprocessor {
    std::array<SubPartition, 4> parts;
    Server shared, l2, bulk, remote, shuffle;
    std::unordered_set<std::uint32_t> lines;  // of global memory, in the first cache
    std::uint32_t resident = 0;
};

// A phase of a barrier: over when everything that belongs to it has come.
struct Point {
    std::uint32_t missing = 0, count = 0;
    bool closed = false;  // the log saw its end
    double time = 0;      // of the last that came
    std::vector<std::uint32_t> waiters;
};

}  // namespace emu
