// wgmma multiplies on their way: what a warp knows of its own, and what the four warps of a warpgroup must
// agree on, which includes setmaxnreg.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "ir/instruction.hpp"
#include "units/async_queue.hpp"

namespace emu {

// One wgmma.mma_async of one warp.
struct Multiply {
    struct Copy {  // a register that `mov` filled with an accumulator on its way
        std::uint32_t accumulator, offset;
    };
    std::uint64_t number = 0;  // of the warp's multiplies, from 1
    std::uint64_t group = 0;
    const Instruction* ins = nullptr;
    Done done;
    std::vector<Copy> copies;
};

// What is known of a register that wgmma uses.
struct RegisterNote {
    enum class Use : std::uint8_t { none, accumulator, fragment, copy };
    std::uint64_t multiply = 0;  // the latest that used it
    std::uint32_t accumulator = 0;
    Use use = Use::none;                   // in flight as; none once a wait_group has covered it
    const Instruction* touched = nullptr;  // the latest other instruction since then
    std::uint64_t fences = 0;              // executed by then
    bool written = false;                  // since that fence
};

class WarpMultiplies {
  public:
    explicit WarpMultiplies(std::uint32_t register_bytes) : notes_(register_bytes / kSlot) {}

    void fence() { ++fences_, fenced_ = true; }
    void commit() { ++group_; }
    // Everything but the newest `pending` groups has completed.
    [[nodiscard]] bool settled(std::uint64_t pending) const;
    // The last multiply that a wait for all but `pending` groups is for; 0 for none.
    [[nodiscard]] std::uint64_t awaited(std::uint64_t pending) const;
    // The wait is over: its multiplies' registers are ordinary again.
    void retire(std::uint64_t pending);

    Multiply& add(const Instruction& ins);
    [[nodiscard]] Multiply* find(std::uint64_t number);  // nullptr where it is retired
    [[nodiscard]] const std::deque<Multiply>& in_flight() const { return in_flight_; }
    [[nodiscard]] RegisterNote& note(const Operand& o) { return notes_[o.offset / kSlot]; }
    [[nodiscard]] std::uint64_t issued() const { return issued_; }
    [[nodiscard]] std::uint64_t group() const { return group_; }  // the open one
    [[nodiscard]] std::uint64_t fences() const { return fences_; }
    [[nodiscard]] bool fenced() const { return fenced_; }  // since the last wait_group

  private:
    static constexpr std::uint32_t kSlot = 128;  // bytes of a 32-bit register

    std::vector<RegisterNote> notes_;
    std::deque<Multiply> in_flight_;  // oldest first
    std::uint64_t issued_ = 0, group_ = 0, fences_ = 0;
    bool fenced_ = false;
};

// What all four warps must pass to one multiply.
struct MultiplyCall {
    const Instruction* ins;
    std::uint64_t a, b;  // descriptors; a is 0 where A is in registers
    bool accumulate;
    friend bool operator==(const MultiplyCall&, const MultiplyCall&) = default;
};
struct Warpgroup {
    std::array<std::uint64_t, 4> issued{};  // multiplies of each warp
    std::uint64_t first = 1;                // number of the oldest call that some warp has not made
    std::deque<MultiplyCall> calls;

    // Warp `warp` makes its next call; the call that another made before it, where they differ.
    const MultiplyCall* enter(std::size_t warp, const MultiplyCall& call);
    [[nodiscard]] bool all_issued(std::uint64_t number) const;

    std::array<std::size_t, 4> budgets_set{};      // setmaxnreg executed by each warp
    std::vector<const Instruction*> budget_calls;  // the first warp to come gives the order
};

}  // namespace emu
