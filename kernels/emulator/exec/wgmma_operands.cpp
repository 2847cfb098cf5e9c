#include "exec/wgmma_operands.hpp"

#include <algorithm>
#include <cstdio>

#include "units/matrix_descriptor.hpp"

namespace emu {

std::string hex(u64 value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

u64 descriptor(Warp& w, const Instruction& i, const Operand& o, const char* what) {
    const u64* v = w.in<u64>(o);
    for (int l = 1; l < 32; ++l)
        if (v[l] != v[0])
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' needs one descriptor of " + what +
                       " for all threads: lane 0 passes " + hex(v[0]) + ", lane " + std::to_string(l) + " " +
                       hex(v[l]),
                   0, {}, "aligned-divergence");
    return v[0];
}

bool accumulates(Warp& w, const Instruction& i, const Operand& o) {
    const u32 p = w.pred(o);
    if (p != 0 && p != ~0u)
        w.trap(i, ~p, "'" + w.text(i) + "' needs one scale-d for all threads", 0, {}, "aligned-divergence");
    return p != 0;
}

std::vector<u32> pieces(Warp& w, const Instruction& i, u64 bits, bool k_major, u32 first, u32 lines,
                        const char* what) {
    const MatrixDescriptor d = MatrixDescriptor::decode(bits);
    if (d.stray != 0)
        w.trap(i, ~0u,
               std::string("The descriptor of ") + what + " (" + hex(bits) + ") of '" + w.text(i) +
                   "' sets bits " + hex(d.stray) +
                   ", which must be zero: was an address or an offset put in without masking 18 bits and "
                   "shifting by 4?",
               0, {}, "matrix-descriptor");
    std::vector<u32> addresses(lines * 2);
    piece_addresses(d, k_major, first, lines, addresses);
    const u32 last = *std::ranges::max_element(addresses);
    if (last + 16 > w.cta().shared_bytes())
        w.trap(i, ~0u,
               "Out of bounds: '" + w.text(i) + "' reads " + what + " at shared offset " +
                   std::to_string(last) + ", but the CTA has " + std::to_string(w.cta().shared_bytes()) +
                   " bytes of shared memory (descriptor " + hex(bits) + ": start " + std::to_string(d.start) +
                   ", leading offset " + std::to_string(d.leading) + ", stride offset " +
                   std::to_string(d.stride) + ")",
               last, "shared memory", "bounds");
    return addresses;
}

void add_regions(const Cta& cta, std::vector<u32> addresses, std::vector<Region>& regions) {
    std::ranges::sort(addresses);
    const std::size_t before = regions.size();
    for (const u32 at : addresses) {
        if (regions.size() > before && regions.back().address + regions.back().bytes >= at)
            regions.back().bytes = at + 16 - static_cast<u32>(regions.back().address);
        else
            regions.push_back({Region::Where::shared, cta.rank, at, 16});
    }
}

}  // namespace emu
