#include "machine/memory.hpp"

#include <algorithm>

#include "ir/errors.hpp"

namespace emu {

void GlobalMemory::add(Range range) {
    if (range.size == 0) return;
    if (range.begin == 0 || ((range.begin | (range.begin + range.size)) & kWindowMask) != 0)
        throw LaunchInvalid("buffers: '" + range.name + "' does not lie in host memory");
    ranges_.push_back(std::move(range));
}

void GlobalMemory::seal() {
    std::ranges::sort(ranges_, [](const Range& a, const Range& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.size > b.size;
    });
    std::vector<Range> kept;
    for (Range& r : ranges_) {
        if (!kept.empty() && r.begin < kept.back().begin + kept.back().size) {
            // The same memory twice (one tensor as two arguments, or a view inside another): the outer range
            // stands.
            if (r.begin + r.size > kept.back().begin + kept.back().size)
                throw LaunchInvalid("buffers: '" + kept.back().name + "' and '" + r.name +
                                    "' overlap in part");
            kept.back().writable |= r.writable;
            continue;
        }
        kept.push_back(std::move(r));
    }
    ranges_ = std::move(kept);
    tracked_ = std::ranges::any_of(ranges_, [](const Range& r) { return r.written != nullptr; });
}

std::string GlobalMemory::element(const Range& range, std::uint64_t address) const {
    std::uint64_t elements = 1, at = address - range.begin;
    for (const std::uint64_t size : range.shape)
        elements *= size;
    if (range.item_bytes == 0 || elements * range.item_bytes != range.size)
        return "'" + range.name + "', byte " + std::to_string(at);
    at /= range.item_bytes;
    std::string index;
    for (auto size = range.shape.rbegin(); size != range.shape.rend(); ++size) {
        index = std::to_string(at % *size) + (index.empty() ? "" : ", ") + index;
        at /= *size;
    }
    return "'" + range.name + "[" + index + "]'";
}

const Range* GlobalMemory::find(std::uint64_t address, std::uint64_t bytes) const {
    auto after = std::ranges::upper_bound(ranges_, address, {}, &Range::begin);
    if (after == ranges_.begin()) return nullptr;
    const Range& r = *--after;
    return r.holds(address, bytes) ? &r : nullptr;
}

std::uint64_t GlobalMemory::relative(std::uint64_t address) const {
    const Range* range = find(address, 1);
    if (range == nullptr) return address;
    return static_cast<std::uint64_t>(range - ranges_.data() + 1) << 36 | (address - range->begin);
}

std::string GlobalMemory::locate(std::uint64_t address, std::string& object) const {
    const Range* nearest = nullptr;
    std::uint64_t distance = 1u << 20;
    bool before = false;
    for (const Range& r : ranges_) {
        const std::uint64_t end = r.begin + r.size;
        const std::uint64_t past = address >= r.begin ? (address < end ? 0 : address - end) : ~0ull;
        const std::uint64_t ahead = address < r.begin ? r.begin - address : ~0ull;
        if (std::min(past, ahead) < distance)
            nearest = &r, distance = std::min(past, ahead), before = ahead < past;
    }
    if (nearest == nullptr) return address < 4096 ? "a null pointer" : "in no buffer of this launch";
    object = nearest->name;
    std::string shape;
    for (const std::uint64_t size : nearest->shape)
        shape += (shape.empty() ? " (shape [" : ", ") + std::to_string(size);
    if (!shape.empty()) shape += "])";
    if (before) return std::to_string(distance) + " bytes before the start of '" + object + "'";
    if (address < nearest->begin + nearest->size)
        return "at byte " + std::to_string(address - nearest->begin) + " of '" + object + "', which has " +
               std::to_string(nearest->size) + " bytes" + shape;
    return (distance == 0 ? std::string("just") : std::to_string(distance) + " bytes") +
           " past the end of '" + object + "', which has " + std::to_string(nearest->size) + " bytes" + shape;
}

}  // namespace emu
