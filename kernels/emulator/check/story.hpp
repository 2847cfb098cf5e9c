// How a warp came to wait for what never happens, as told in a deadlock's report.
#pragma once

#include <string>

#include "machine/machine.hpp"

namespace emu {

// "1 byte", "3 bytes"
[[nodiscard]] std::string plural(std::uint64_t n, const std::string& thing);
// "warp 1 (consumer)"; with its CTA where the cluster has several.
[[nodiscard]] std::string who(const Warp& warp);
// How likely the wait is the root of the deadlock: the greater, the likelier.
[[nodiscard]] int suspicion(const Split& split, Warp& warp);
// A few sentences on the split's wait: what it lacks, who should have come, and where those are now.
[[nodiscard]] std::string story(const Split& split, Warp& warp);

}  // namespace emu
