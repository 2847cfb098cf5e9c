// The mbarrier object: 64 bits in shared memory, changed only through these functions. Pure: no machine
// state.
//
//   bit  63        phase parity
//   bits 40..60    tx, signed: bytes announced but not yet arrived (may be negative before the announcement)
//   bits 20..39    expected arrivals of a phase
//   bits 0..19     pending arrivals of the current phase
//
// A phase completes when pending and tx are both zero; then the parity flips and pending starts again at
// expected.
#pragma once

#include <cstdint>

namespace emu::mbarrier {

constexpr std::uint32_t kMaxCount = (1u << 20) - 1;
constexpr std::int32_t kMaxTx = (1 << 20) - 1;

struct State {
    std::uint32_t phase, expected, pending;
    std::int32_t tx;
};

[[nodiscard]] constexpr State unpack(std::uint64_t word) {
    const auto tx = static_cast<std::int64_t>(word << 3) >> 43;
    return {static_cast<std::uint32_t>(word >> 63), static_cast<std::uint32_t>(word >> 20) & kMaxCount,
            static_cast<std::uint32_t>(word) & kMaxCount, static_cast<std::int32_t>(tx)};
}
[[nodiscard]] constexpr std::uint64_t pack(const State& s) {
    return static_cast<std::uint64_t>(s.phase & 1) << 63 |
           (static_cast<std::uint64_t>(s.tx) & 0x1fffff) << 40 |
           static_cast<std::uint64_t>(s.expected) << 20 | s.pending;
}
[[nodiscard]] constexpr std::uint64_t initial(std::uint32_t count) {
    return pack({0, count, count, 0});
}

constexpr void try_complete(State& s) {
    if (s.pending == 0 && s.tx == 0) s.phase ^= 1, s.pending = s.expected;
}

// True iff the phase with this parity is over, i.e. the current phase has the other parity.
[[nodiscard]] constexpr bool passed(std::uint64_t word, std::uint32_t parity) {
    return (word >> 63) != (parity & 1);
}

static_assert(unpack(pack({1, 5, 3, -7})).tx == -7 && unpack(pack({1, 5, 3, -7})).pending == 3);
static_assert(unpack(pack({0, kMaxCount, kMaxCount, kMaxTx})).tx == kMaxTx);
static_assert(!passed(initial(1), 0) && passed(initial(1), 1),
              "a fresh barrier: parity 1 has passed, parity 0 has not");

}  // namespace emu::mbarrier
