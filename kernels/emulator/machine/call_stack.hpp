// The calls that each lane of a warp is in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emu {

struct CallFrame {
    std::uint32_t function, site, return_pc;
    std::uint64_t caller_frame;     // where it starts in the lane's local memory
    std::uint32_t caller_top;       // where free memory starts once the call is over
    std::vector<std::byte> saved;   // the lane's part of the registers that the function writes
    std::vector<bool> saved_flags;  // and of its predicates
};

struct CallStack {
    std::array<std::vector<CallFrame>, 32> frames;
    std::array<std::uint32_t, 32> top{};  // of the local memory in use
};

}  // namespace emu
