// Markers: names of warps and of shared memory. They count as no instruction, because a GPU runs none.
#include "exec/lanes.hpp"
#include "trace/log.hpp"

namespace emu {

void select_marker_role(Instruction& i);
void select_marker_buffer(Instruction& i);

namespace {

constexpr std::size_t kMostNames = 4096;  // of one CTA

enum Kind : u64 { kRole, kBuffer, kArray, kElement };

// Takes back what the interpreter is about to count.
void weightless(Warp& w, u32 mask) {
    --w.instructions;
    w.lane_instructions -= static_cast<u32>(std::popcount(mask));
}

Step role(Warp& w, const Instruction& i, u32 mask) {
    weightless(w, mask);
    w.take_role(static_cast<u32>(i.aux));
    if (ClusterLog* log = w.log()) log->role(static_cast<u32>(i.aux));
    return Step::next;
}

Step buffer(Warp& w, const Instruction& i, u32 mask) {  // ops: address, bytes, pieces or index?
    weightless(w, mask);
    const std::string& name = w.kernel().names[static_cast<u32>(i.aux)];
    const u64 kind = i.aux >> 32;
    for (u32 left = mask; left != 0; left &= left - 1) {
        const int l = std::countr_zero(left);
        const u32 offset = w.in<u32>(i.op[0])[l] & kOffsetMask, bytes = w.in<u32>(i.op[1])[l];
        const u32 third = kind == kBuffer ? 0 : w.in<u32>(i.op[2])[l];
        const u32 pieces = kind == kArray ? third : 1;
        if (bytes == 0 || offset + u64{bytes} * pieces > w.cta().shared_bytes() || pieces == 0)
            w.trap(i, 1u << l,
                   "The name '" + name + "' is given to " + std::to_string(u64{bytes} * pieces) +
                       " bytes at shared offset " + std::to_string(offset) + ", but the CTA has " +
                       std::to_string(w.cta().shared_bytes()) + " bytes of shared memory",
                   offset, name);
        if (pieces + w.cta().named().size() > kMostNames)
            w.trap(i, 1u << l,
                   "The name '" + name + "' would give the CTA more than " + std::to_string(kMostNames) +
                       " names",
                   offset, name);
        for (u32 piece = 0; piece < pieces; ++piece) {
            const u32 index = kind == kArray ? piece : third;
            w.cta().name_shared(kind == kBuffer ? name : name + "[" + std::to_string(index) + "]",
                                offset + piece * bytes, bytes);
        }
    }
    return Step::next;
}

}  // namespace

void select_marker_role(Instruction& i) {
    i.run = role;
}
void select_marker_buffer(Instruction& i) {
    i.run = buffer;
}

}  // namespace emu
