// Named barriers of a CTA and the barrier of a cluster.
#include <utility>

#include "check/monitor.hpp"
#include "exec/lanes.hpp"
#include "trace/log.hpp"

namespace emu {
namespace {

u32 uniform(Warp& w, const Instruction& i, const Operand& o, u32 mask, const char* what) {
    const u32* v = w.in<u32>(o);
    const u32 first = v[std::countr_zero(mask)];
    for (int l = 0; l < 32; ++l)
        if ((mask >> l & 1) != 0 && v[l] != first)
            w.trap(i, mask, "'" + w.text(i) + "' needs one " + what + " for the whole warp");
    return first;
}

constexpr u32 kAligned = 1;  // in target: all lanes of a warp must come together

u32 aligned(const Choice& c) {
    return c.opcode == "bar" || c.has(Mod::aligned) ? kAligned : 0;
}
// With checks, lanes that come to an .aligned instruction wait for the others of their warp.
bool together(Warp& w, const Instruction& i, u32 mask) {
    return i.target != kAligned || w.monitor() == nullptr || !w.monitor()->checks().barrier ||
           w.converge(mask);
}

// Counts the lanes of `mask` in. A warp that comes whole counts 32, as on hardware, whatever lanes it lacks.
NamedBarrier& arrive(Warp& w, const Instruction& i, u32 mask, const Operand& number, const Operand& count) {
    const u32 n = uniform(w, i, number, mask, "barrier number");
    if (n > 15) w.trap(i, mask, "Barrier number " + std::to_string(n) + " is not in 0 to 15");
    NamedBarrier& b = w.cta().barriers[n];
    u32 threads = static_cast<u32>(std::popcount(mask)), expected = 0;
    if (!count.absent) {
        expected = uniform(w, i, count, mask, "thread count");
        if (expected == 0 || expected % 32 != 0)
            w.trap(i, mask,
                   "Barrier " + std::to_string(n) + " with a count of " + std::to_string(expected) +
                       " threads, which is no multiple of 32",
                   0, "barrier " + std::to_string(n), "barrier-count");
        if (mask == w.alive()) threads += 32 - static_cast<u32>(std::popcount(w.alive()));
    }
    if (b.arrived > 0 && b.expected != expected)
        w.trap(i, mask,
               "Barrier " + std::to_string(n) + " is used with two counts at once: " +
                   std::to_string(b.expected) + " and " + std::to_string(expected) + " threads (0 = all)",
               0, "barrier " + std::to_string(n), "barrier-count");
    if (expected != 0 && b.arrived + threads > expected)
        w.trap(i, mask,
               "Barrier " + std::to_string(n) + " waits for " + std::to_string(expected) + " threads, but " +
                   std::to_string(b.arrived + threads) + " have come",
               0, "barrier " + std::to_string(n), "barrier-count");
    b.expected = expected;
    if (Monitor* const m = w.monitor()) m->barrier_arrived(w, n);
    w.cta().arrive(n, threads);
    return b;
}

Step wait_at(Warp& w, const Instruction& i, u32 mask, const Operand& number, const Operand& count) {
    const u32 n = uniform(w, i, number, mask, "barrier number");
    if (!w.split().resumed) {
        const u64 generation = n < 16 ? w.cta().barriers[n].generation : 0;
        if (arrive(w, i, mask, number, count).generation == generation)
            return w.park({.kind = Wait::Kind::barrier, .number = n, .value = generation});
        if (ClusterLog* log = w.log()) log->pass(Waited::barrier, n, generation);
    }
    w.split().resumed = false;
    if (Monitor* const m = w.monitor()) m->barrier_passed(w, n);
    return Step::next;
}

Step bar_sync(Warp& w, const Instruction& i, u32 mask) {
    if (!together(w, i, mask)) return Step::park;
    return wait_at(w, i, mask, i.op[0], i.op[1]);
}
Step bar_arrive(Warp& w, const Instruction& i, u32 mask) {
    if (!together(w, i, mask)) return Step::park;
    arrive(w, i, mask, i.op[0], i.op[1]);
    return Step::next;
}

enum Reduce : u64 { kPopc, kAnd, kOr };

Step bar_red(Warp& w, const Instruction& i, u32 mask) {  // ops: d, number, count?, p
    if (!together(w, i, mask)) return Step::park;
    const u32 n = uniform(w, i, i.op[1], mask, "barrier number");
    if (n < 16 && !w.split().resumed) {
        NamedBarrier& b = w.cta().barriers[n];
        const u32 yes = w.pred(i.op[3]) & mask;
        b.votes += static_cast<u32>(std::popcount(yes));
        b.any |= yes != 0;
        b.all &= yes == mask;
    }
    if (wait_at(w, i, mask, i.op[1], i.op[2]) == Step::park) return Step::park;
    const NamedBarrier& b = w.cta().barriers[n];
    if (i.aux == kPopc)
        each_lane(w.out<u32>(i.op[0]), mask, [&](int) { return b.result_votes; });
    else
        w.set_pred(i.op[0], (i.aux == kAnd ? b.result_all : b.result_any) ? ~0u : 0u, mask);
    return Step::next;
}

Step cluster_arrive(Warp& w, const Instruction& i, u32 mask) {
    if (!together(w, i, mask)) return Step::park;
    Cluster& cluster = w.cta().cluster();
    if (w.cluster_phase != cluster.cluster_generation) w.cluster_lanes = 0;
    if ((w.cluster_lanes & mask) != 0)
        w.trap(i, w.cluster_lanes & mask, "'" + w.text(i) + "' twice without a barrier.cluster.wait between");
    w.cluster_phase = cluster.cluster_generation;
    w.cluster_lanes |= mask;
    if (Monitor* const m = w.monitor()) m->cluster_arrived(w, i.aux != 0);
    cluster.cluster_arrive(static_cast<u32>(std::popcount(mask)));
    return Step::next;
}
Step cluster_wait(Warp& w, const Instruction& i, u32 mask) {
    if (w.cluster_phase == ~u64{0})
        w.trap(i, mask, "'" + w.text(i) + "' without a barrier.cluster.arrive before it");
    if (!together(w, i, mask)) return Step::park;
    const bool resumed = std::exchange(w.split().resumed, false);
    if (w.cta().cluster().cluster_generation == w.cluster_phase)
        return w.park({.kind = Wait::Kind::cluster, .value = w.cluster_phase});
    if (Monitor* const m = w.monitor()) m->cluster_passed(w);
    if (ClusterLog* log = w.log(); log != nullptr && !resumed) log->pass(Waited::cluster, 0, w.cluster_phase);
    return Step::next;
}

// mapa: the same place in another CTA of the cluster.
template <class S>
Step mapa(Warp& w, const Instruction& i, u32 mask) {
    const S* a = w.in<S>(i.op[1]);
    const u32* rank = w.in<u32>(i.op[2]);
    const std::size_t size = w.cta().cluster().ctas().size();
    for (int l = 0; l < 32; ++l)
        if ((mask >> l & 1) != 0 && rank[l] >= size)
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' with rank " + std::to_string(rank[l]) + " in a cluster of " +
                       std::to_string(size) + " CTAs");
    each_lane(w.out<S>(i.op[0]), mask, [=](int l) {
        return (a[l] & ~static_cast<S>(0xff000000u)) | static_cast<S>(rank[l] << kRankShift);
    });
    return Step::next;
}
template <class S>
Step getctarank(Warp& w, const Instruction& i, u32 mask) {
    const S* a = w.in<S>(i.op[1]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return static_cast<u32>(a[l]) >> kRankShift; });
    return Step::next;
}

}  // namespace

void select_bar_sync(const Choice& c, Instruction& i) {
    i.target = aligned(c);
    i.run = bar_sync;
}
void select_bar_arrive(const Choice& c, Instruction& i) {
    i.target = aligned(c);
    i.run = bar_arrive;
}
void select_bar_red(const Choice& c, Instruction& i) {
    i.target = aligned(c);
    i.aux = c.has(Mod::popc) ? kPopc : c.has(Mod::and_) ? kAnd : kOr;
    i.run = bar_red;
}
void select_cluster_arrive(const Choice& c, Instruction& i) {
    i.target = aligned(c);
    i.aux = c.has(Mod::relaxed);
    i.run = cluster_arrive;
}
void select_cluster_wait(const Choice& c, Instruction& i) {
    i.target = aligned(c);
    i.run = cluster_wait;
}
void select_mapa(const Choice& c, Instruction& i) {
    // Without .shared::cluster the operand is a generic address, which carries the rank in the same bits.
    i.run = bits_of(c.type(0)) == 64 ? mapa<u64> : mapa<u32>;
}
void select_getctarank(const Choice& c, Instruction& i) {
    i.run = bits_of(c.type(0)) == 64 ? getctarank<u64> : getctarank<u32>;
}

}  // namespace emu
