#include "exec/bulk.hpp"

namespace emu {

MbarrierRef barrier_beside(Warp& w, const Instruction& i, int lane, const Operand& data,
                           const Operand& barrier) {
    const MbarrierRef b = MbarrierRef::named(w, i, lane, Space::shared_cluster, barrier);
    if ((static_cast<u32>(w.address(data, lane)) >> kRankShift) != b.cta().rank)
        w.trap(i, 1u << lane, "'" + w.text(i) + "' with its destination and its mbarrier in different CTAs",
               w.address(barrier, lane), {}, "barrier-place");
    return b;
}

u32 targets_of(Warp& w, const Instruction& i, int lane, u64 destination, const Operand* mask) {
    Cluster& cluster = w.cta().cluster();
    u32 targets = 1u << (static_cast<u32>(destination) >> kRankShift);
    if (mask != nullptr) {
        targets = w.in<u32>(*mask)[lane] & 0xffff;
        if (targets == 0 || (targets >> cluster.ctas().size()) != 0)
            w.trap(i, 1u << lane,
                   "'" + w.text(i) + "' with CTA mask " + std::to_string(targets) + " in a cluster of " +
                       std::to_string(cluster.ctas().size()) + " CTAs",
                   0, {}, "multicast-mask");
    }
    for (u32 rank = 0; rank < cluster.ctas().size(); ++rank)
        if ((targets >> rank & 1) != 0 && cluster.cta(rank)->live_threads() == 0)
            w.trap(i, 1u << lane,
                   "'" + w.text(i) + "' copies to the CTA of rank " + std::to_string(rank) +
                       ", whose threads have all exited; let every CTA wait for its last copy, or end "
                       "with a cluster barrier",
                   destination, {}, "remote-exited");
    return targets;
}

void check_target(Warp& w, const Instruction& i, int lane, Cta& target, u32 offset, u32 bytes) {
    const auto covered = target.mbarriers.lower_bound(offset < 7 ? 0 : offset - 7);
    if (covered != target.mbarriers.end() && covered->first < offset + bytes)
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' writes " + std::to_string(bytes) + " bytes at shared offset " +
                   std::to_string(offset) + ", over the mbarrier at offset " +
                   std::to_string(covered->first) + " (" + target.object_at(covered->first) + ")",
               offset, target.object_at(covered->first), "barrier-overwrite");
}

void check_signalled(Warp& w, const Instruction& i, int lane, Cta& target, u32 barrier) {
    if (!target.mbarriers.contains(barrier))
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' signals shared offset " + std::to_string(barrier) + " of rank " +
                   std::to_string(target.rank) + ", where no mbarrier has been initialised",
               barrier, target.object_at(barrier), "barrier-init");
}

std::vector<Slice> slices(Cluster& cluster, u32 bytes) {
    const u32 units = bytes / 16, parts = cluster.parts(units);
    std::vector<Slice> cut;
    for (u32 k = 0, begin = 0; k < parts; ++k) {
        const u32 end = k + 1 == parts ? bytes : units * (k + 1) / parts * 16;
        cut.push_back({begin, end - begin});
        begin = end;
    }
    return cut;
}

u32 bulk_size(Warp& w, const Instruction& i, int lane, const Operand& o) {
    const u32 size = w.in<u32>(o)[lane];
    if (size == 0 || size % 16 != 0)
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' of " + std::to_string(size) +
                   " bytes; the size must be a positive multiple of 16",
               0, {}, "alignment");
    return size;
}

}  // namespace emu
