// The emulator's arithmetic behind a C interface, for comparing billions of results with a GPU's from Python.
// Build: see `_model.py`.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "bindings/scalar_ops.hpp"
#include "units/tensor_core.hpp"

namespace {

// Calls work(begin, end) over [0, n) from `threads` threads, in chunks.
template <typename Work>
void in_parallel(std::uint64_t n, std::uint64_t chunk, int threads, Work work) {
    std::atomic<std::uint64_t> next{0};
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
        pool.emplace_back([&] {
            for (std::uint64_t begin; (begin = next.fetch_add(chunk)) < n;)
                work(begin, std::min(begin + chunk, n));
        });
    for (std::thread& thread : pool)
        thread.join();
}

std::uint64_t read(const void* base, int bits, std::uint64_t i) {
    switch (bits) {
        case 16:
            return static_cast<const std::uint16_t*>(base)[i];
        case 32:
            return static_cast<const std::uint32_t*>(base)[i];
        default:
            return static_cast<const std::uint64_t*>(base)[i];
    }
}

// Floats in order: the distance of two keys is their distance in units in the last place.
std::int64_t order(std::uint64_t bits) {
    const auto magnitude = static_cast<std::int64_t>(bits & 0x7FFF'FFFF);
    return (bits >> 31 & 1) != 0 ? -magnitude : magnitude;
}

}  // namespace

extern "C" {

struct Report {
    std::uint64_t mismatches;
    std::uint64_t unlike;           // one is NaN and the other is not (32-bit results)
    std::int64_t largest;           // signed distance of the worst 32-bit result, GPU minus model
    std::uint64_t histogram[17];    // distances -8 to 8, the ends take all beyond
    std::uint64_t examples[16][5];  // a, b, c, GPU, model

    void add(std::uint64_t x, std::uint64_t y, std::uint64_t z, std::uint64_t is, std::uint64_t want,
             bool is_float) {
        if (mismatches < 16) {
            const std::uint64_t row[5] = {x, y, z, is, want};
            std::copy_n(row, 5, examples[mismatches]);
        }
        ++mismatches;
        if (!is_float) return;
        const bool is_nan = (is & 0x7FFF'FFFF) > 0x7F80'0000, want_nan = (want & 0x7FFF'FFFF) > 0x7F80'0000;
        if (is_nan || want_nan) {
            unlike += is_nan != want_nan ? 1 : 0;
            return;
        }
        const std::int64_t distance = order(is) - order(want);
        ++histogram[std::clamp<std::int64_t>(distance, -8, 8) + 8];
        if (std::llabs(distance) > std::llabs(largest)) largest = distance;
    }

    void add(const Report& other) {
        for (std::uint64_t i = 0; i < other.mismatches && i < 16 && mismatches + i < 16; ++i)
            std::copy_n(other.examples[i], 5, examples[mismatches + i]);
        mismatches += other.mismatches;
        unlike += other.unlike;
        for (int i = 0; i < 17; ++i)
            histogram[i] += other.histogram[i];
        if (std::llabs(other.largest) > std::llabs(largest)) largest = other.largest;
    }
};

int op_count() {
    return static_cast<int>(emu::scalar_ops().size());
}
const char* op_name(int op) {
    return emu::scalar_ops()[static_cast<std::size_t>(op)].opcode;
}
int op_bits(int op, int operand) {
    const emu::ScalarOp& it = emu::scalar_ops()[static_cast<std::size_t>(op)];
    return operand < 0 ? it.result_bits : it.operand_bits[operand];
}

// Compares `got`, the GPU's n results. Operand a is base + i where `a` is null.
void compare(int op, std::uint64_t base, std::uint64_t n, const void* a, const void* b, const void* c,
             const void* got, int threads, Report* report) {
    const emu::ScalarOp& it = emu::scalar_ops()[static_cast<std::size_t>(op)];
    const std::uint64_t mask = it.result_bits == 64 ? ~0ULL : (1ULL << it.result_bits) - 1;
    std::mutex guard;
    *report = {};
    in_parallel(n, 1 << 16, threads, [&](std::uint64_t begin, std::uint64_t end) {
        Report mine{};
        for (std::uint64_t i = begin; i < end; ++i) {
            const std::uint64_t x = a == nullptr ? base + i : read(a, it.operand_bits[0], i);
            const std::uint64_t y = it.operand_bits[1] == 0 ? 0 : read(b, it.operand_bits[1], i);
            const std::uint64_t z = it.operand_bits[2] == 0 ? 0 : read(c, it.operand_bits[2], i);
            const std::uint64_t want = it.run(x, y, z) & mask;
            const std::uint64_t is = read(got, it.result_bits, i);
            if (want != is) mine.add(x, y, z, is, want, it.result_bits == 32);
        }
        if (mine.mismatches == 0) return;
        const std::lock_guard<std::mutex> lock(guard);
        report->add(mine);
    });
}

// Results of one operation for n operands from `base` on, as the 64 bits that a register would show.
void evaluate(int op, std::uint64_t base, std::uint64_t n, std::uint64_t* out, int threads) {
    const emu::ScalarOp& it = emu::scalar_ops()[static_cast<std::size_t>(op)];
    in_parallel(n, 1 << 16, threads, [&](std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t i = begin; i < end; ++i)
            out[i] = it.run(base + i, 0, 0);
    });
}

// `tiles` chains of `steps` instructions. Codes are uint32: a [tiles][steps][64][k], b [tiles][steps][n][k];
// c and d [tiles][64][n]. c may be null.
void matrix(int a_type, int b_type, int accumulator, int satfinite, int negate_a, int negate_b, int n, int k,
            int tiles, int steps, const std::uint32_t* a, const std::uint32_t* b, const std::uint32_t* c,
            std::uint32_t* d, int threads) {
    const emu::MmaOptions options{.accumulator = static_cast<emu::Accumulator>(accumulator),
                                  .satfinite = satfinite != 0};
    in_parallel(static_cast<std::uint64_t>(tiles), 1, threads, [&](std::uint64_t begin, std::uint64_t end) {
        emu::Factor left(static_cast<emu::Element>(a_type), 64, k),
            right(static_cast<emu::Element>(b_type), n, k);
        for (std::uint64_t tile = begin; tile < end; ++tile) {
            const std::uint64_t outputs = 64ULL * static_cast<std::uint64_t>(n);
            const std::uint32_t* addend = c == nullptr ? nullptr : c + tile * outputs;
            for (int step = 0; step < steps; ++step) {
                const std::uint64_t place =
                    (tile * static_cast<std::uint64_t>(steps) + static_cast<std::uint64_t>(step)) *
                    static_cast<std::uint64_t>(k);
                left.load(a + place * 64, k, 1, negate_a != 0);
                right.load(b + place * static_cast<std::uint64_t>(n), k, 1, negate_b != 0);
                emu::multiply_add(left, right, addend, d + tile * outputs, options);
                addend = d + tile * outputs;
            }
        }
    });
}
}
