#include "exec/tensor_box.hpp"

#include <algorithm>

namespace emu {
namespace {

using tma::Box;
using tma::Run;

void append(std::vector<Region>& regions, const Region& region) {
    if (!regions.empty() && regions.back().address + regions.back().bytes == region.address)
        regions.back().bytes += region.bytes;
    else
        regions.push_back(region);
}

tma::Offsets offsets_of(Warp& w, int lane, const Operand* first, u32 count) {
    tma::Offsets offsets{};
    for (u32 k = 0; k < count; ++k)
        offsets[k] = static_cast<u16>(w.in<u32>(first[k])[lane]);
    return offsets;
}

}  // namespace

void check_global(Warp& w, const Instruction& i, int lane, const Box& box, bool write) {
    const GlobalMemory& memory = w.cta().cluster().grid().memory;
    const Range* range = nullptr;
    for (const Run& run : box.runs) {
        if (!run.inside()) continue;
        if (range == nullptr || !range->holds(run.global, run.bytes))
            range = memory.find(run.global, run.bytes);
        const auto does = [&] {
            return "'" + w.text(i) + (write ? "' writes " : "' reads ") + std::to_string(run.bytes) +
                   " bytes ";
        };
        if (range == nullptr) {
            std::string object;
            const std::string place = memory.locate(run.global, object);
            w.trap(i, 1u << lane,
                   "Out of bounds: " + does() + place +
                       "; the sizes or strides of its tensor map reach beyond the memory that it describes" +
                       (write ? " (stores write whole units of 16 bytes)" : ""),
                   run.global, object, "bounds");
        }
        if (write && !range->writable)
            w.trap(i, 1u << lane,
                   "Read-only memory: " + does() + "at byte " + std::to_string(run.global - range->begin) +
                       " of '" + range->name + "'",
                   run.global, range->name, "read-only");
    }
}

u32 shared_place(Warp& w, const Instruction& i, int lane, Space space, u64 address, const TensorOperand& t,
                 Warp::Access access) {
    if (address % 128 != 0)
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' on shared address " + std::to_string(address & kOffsetMask) +
                   "; a box in shared memory begins at a multiple of 128 bytes. Declare it "
                   "alignas(128), or alignas(1024) if it is swizzled",
               address, w.cta().object_at(static_cast<u32>(address) & kOffsetMask), "alignment");
    static_cast<void>(w.resolve(i, lane, space, address, t.extent, access));
    return static_cast<u32>(address) & kOffsetMask;
}

std::vector<Region> global_regions(const Box& box) {  // runs follow one another along a row
    std::vector<Region> regions;
    for (const Run& run : box.runs)
        if (run.inside()) append(regions, {Region::Where::global, 0, run.global, run.bytes});
    return regions;
}

std::vector<Region> shared_regions(const Box& box, u32 rank, bool outside_too) {
    u32 low = ~0u, high = 0, bytes = 0;
    for (const Run& run : box.runs)
        if (outside_too || run.inside())
            low = std::min(low, run.shared), high = std::max(high, run.shared + run.bytes),
            bytes += run.bytes;
    if (bytes == 0) return {};
    if (high - low == bytes) return {{Region::Where::shared, rank, low, bytes}};  // a swizzle leaves no gap
    std::vector<Region> pieces, regions;
    for (const Run& run : box.runs)
        if (outside_too || run.inside())
            pieces.push_back({Region::Where::shared, rank, run.shared, run.bytes});
    std::ranges::sort(pieces, {}, &Region::address);
    for (const Region& piece : pieces)
        append(regions, piece);
    return regions;
}

Box box_of(Warp& w, const Instruction& i, int lane, const TensorOperand& t, const Operand* offsets,
           u32 shared, tma::Clip clip) {
    if ((i.aux & kFourRows) != 0) return tma::rows_at(t.map, t.at, shared, clip);
    if (!t.map.im2col) return tma::box_at(t.map, t.at, shared, clip);
    const u32 count = offsets != nullptr ? t.map.rank - 2 : 0;
    return tma::pixels_at(t.map, t.at, offsets_of(w, lane, offsets, count), shared, clip);
}

}  // namespace emu
