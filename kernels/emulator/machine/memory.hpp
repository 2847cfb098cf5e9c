// Address spaces. Global addresses are host addresses inside registered ranges; the other spaces are reached
// from generic addresses through windows that no host pointer can lie in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emu {

constexpr std::uint64_t kWindowMask = 0xff00000000000000ull;
constexpr std::uint64_t kSharedWindow = 0x0100000000000000ull;  // + rank << 24 | offset
constexpr std::uint64_t kLocalWindow = 0x0200000000000000ull;   // + offset in the thread's own memory
constexpr std::uint64_t kParamWindow = 0x0300000000000000ull;   // + offset in the parameter buffer
constexpr std::uint64_t kCodeWindow = 0x0400000000000000ull;    // + 16 * number of a function: not readable
constexpr std::uint32_t kRankShift = 24, kOffsetMask = 0x00ffffff;
constexpr std::uint32_t kMaxSharedBytes = 232448;  // 227 KiB, the most a CTA of sm_90 may have

struct Range {
    std::uint64_t begin = 0, size = 0;
    std::string name;
    bool writable = false;
    std::uint8_t* written =
        nullptr;  // one byte a byte: not 0 where something has been written; null: everywhere
    std::vector<std::uint64_t> shape{};  // of the tensor, where it is known and dense
    std::uint32_t item_bytes = 0;

    [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t bytes) const {
        return address - begin < size && bytes <= size - (address - begin);
    }
};

// The registered ranges, sorted, disjoint.
class GlobalMemory {
  public:
    void add(Range range);  // throws LaunchInvalid where it is empty or wraps
    void seal();            // throws LaunchInvalid where two ranges overlap in part; call once, before find
    [[nodiscard]] const Range* find(std::uint64_t address, std::uint64_t bytes) const;
    // A number for an address that does not depend on where the host put the range, as if ranges were far
    // apart.
    [[nodiscard]] std::uint64_t relative(std::uint64_t address) const;
    // "8 bytes past the end of 'x'", or "in no buffer of this launch".
    [[nodiscard]] std::string locate(std::uint64_t address, std::string& object) const;

    // "x[3, 5]", or "x, byte 24" where the shape is not known.
    [[nodiscard]] std::string element(const Range& range, std::uint64_t address) const;
    [[nodiscard]] bool tracked() const { return tracked_; }  // some range knows what has been written

  private:
    std::vector<Range> ranges_;
    bool tracked_ = false;
};

}  // namespace emu
