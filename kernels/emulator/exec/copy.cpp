// Asynchronous copies of threads: cp.async, st.async, red.async; and the groups of cp.async and of bulk
// copies. Addresses are checked when an operation is issued; data moves when the queue completes it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "check/monitor.hpp"
#include "exec/atomic.hpp"
#include "exec/bulk.hpp"
#include "trace/log.hpp"

namespace emu {
namespace {

Cluster& cluster_of(const Warp& w) {
    return w.cta().cluster();
}

// ---- cp.async: 4, 8 or 16 bytes a thread, in groups of the thread
// -----------------------------------------------------------

// ops: [dst], [src], size, source size or a predicate that says to ignore the source?, policy?
Step cp_async(Warp& w, const Instruction& i, u32 mask) {
    Cluster& cluster = cluster_of(w);
    const u32 size = static_cast<u32>(i.op[2].imm);
    const u32 ignored = i.op[3].bits == 1 && !i.op[3].absent ? w.pred(i.op[3]) : 0;
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u32 given = i.op[3].absent            ? size
                          : i.op[3].bits != 1       ? w.in<u32>(i.op[3])[l]
                          : (ignored >> l & 1) != 0 ? 0
                                                    : size;
        if (given > size)
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' with a source size of " + std::to_string(given) +
                       " bytes for a copy of " + std::to_string(size));
        std::byte* const to =
            w.resolve(i, l, Space::shared, w.address(i.op[0], l), size, Warp::Access::write);
        // With source size 0 the global address is not touched and may be anything.
        std::byte* const from = given == 0 ? nullptr
                                           : w.resolve(i, l, Space::global, w.address(i.op[1], l),
                                                       given == size ? size : 1, Warp::Access::read);
        if (given > 1 && given < size)
            static_cast<void>(
                w.resolve(i, l, Space::global, w.address(i.op[1], l) + given - 1, 1, Warp::Access::read));
        AsyncOp op{.kind = AsyncKind::cp_async};
        if (given > 0) op.reads = {cluster.region(from, given)};
        op.writes = {cluster.region(to, size)};
        op.complete = [=] {
            if (given > 0) std::memcpy(to, from, given);
            std::memset(to + given, 0, size - given);
        };
        w.copies(l, false).open.writes.push_back(cluster.issue(w, i, 1u << l, std::move(op)));
    }
    return Step::next;
}

void forget_finished(ThreadCopies& own) {
    const auto finished = [](const CopyGroup& g) {
        const auto done = [](const Done& d) { return *d; };
        return std::ranges::all_of(g.reads, done) && std::ranges::all_of(g.writes, done);
    };
    // Groups count from the newest, so finished ones may only go from the front.
    const auto first = std::ranges::find_if_not(own.committed, finished);
    own.committed.erase(own.committed.begin(), first);
}

template <bool Bulk>
constexpr Monitor::Groups kGroups = Bulk ? Monitor::Groups::bulk : Monitor::Groups::cp_async;

template <bool Bulk>
Step commit(Warp& w, const Instruction&, u32 mask) {
    if (Monitor* const m = w.monitor()) m->committed(w, mask, kGroups<Bulk>);
    if (ClusterLog* log = w.log()) log->commit(Bulk ? Group::bulk : Group::copies);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        ThreadCopies& own = w.copies(l, Bulk);
        forget_finished(own);
        own.committed.push_back(std::move(own.open));
        own.open = {};
    }
    return Step::next;
}

// aux: bit 0 .read, bit 1 wait_all
template <bool Bulk>
Step wait(Warp& w, const Instruction& i, u32 mask) {
    const bool resumed = std::exchange(w.split().resumed, false);
    if ((i.aux & 2) != 0 && !resumed) commit<Bulk>(w, i, mask);
    Split probe = w.split();
    probe.mask = mask;
    probe.wait = {.kind = Wait::Kind::copies,
                  .value = (i.aux & 2) != 0 ? 0 : static_cast<u64>(i.op[0].imm),
                  .reads_only = (i.aux & 1) != 0,
                  .bulk = Bulk};
    if (!w.ready(probe)) return w.park(probe.wait);
    if (Monitor* const m = w.monitor()) m->waited(w, mask, kGroups<Bulk>, probe.wait.value);
    if (ClusterLog* log = w.log(); log != nullptr && !resumed)
        log->pass(!Bulk                   ? Waited::copies
                  : probe.wait.reads_only ? Waited::bulk_reads
                                          : Waited::bulk,
                  0, probe.wait.value);
    return Step::next;
}

// Arrives at an mbarrier when all earlier cp.async of the thread are done. Without .noinc it is not among the
// expected arrivals.
Step cp_async_arrive(Warp& w, const Instruction& i, u32 mask) {
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        MbarrierRef b = MbarrierRef::named(w, i, l, i.space, i.op[0]);
        if (i.aux == 0) b.add_pending(1);
        AsyncOp op{.kind = AsyncKind::cp_async_arrive};
        op.signal = {.rank = b.cta().rank, .offset = b.offset(), .arrivals = 1};
        const ThreadCopies& own = w.copies(l, false);
        for (const CopyGroup& g : own.committed)
            op.after.insert(op.after.end(), g.writes.begin(), g.writes.end());
        op.after.insert(op.after.end(), own.open.writes.begin(), own.open.writes.end());
        cluster_of(w).issue(w, i, 1u << l, std::move(op));
    }
    return Step::next;
}

// ---- st.async, red.async: to any CTA of the cluster, counted by an mbarrier there
// ---------------------------------------------

Step st_async(Warp& w, const Instruction& i,
              u32 mask) {  // ops: [dst], values, [mbarrier]; target: bytes of an element
    const u32 each = i.target, n = i.vector, bytes = each * n;
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        std::byte* const to =
            w.resolve(i, l, Space::shared_cluster, w.address(i.op[0], l), bytes, Warp::Access::write);
        const MbarrierRef b = barrier_beside(w, i, l, i.op[0], i.op[n + 1]);
        std::array<std::byte, 32> values;
        for (u32 k = 0; k < n; ++k) {
            const u64 v = w.value(i.op[k + 1], l);
            std::memcpy(values.data() + k * each, &v, each);
        }
        AsyncOp op{.kind = AsyncKind::st_async};
        op.writes = {cluster_of(w).region(to, bytes)};
        op.signal = {.rank = b.cta().rank, .offset = b.offset(), .bytes = bytes};
        op.complete = [=] { std::memcpy(to, values.data(), bytes); };
        cluster_of(w).issue(w, i, 1u << l, std::move(op));
    }
    return Step::next;
}
template <class S>
Step red_async(Warp& w, const Instruction& i, u32 mask) {  // ops: [dst], value, [mbarrier]
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        std::byte* const to =
            w.resolve(i, l, Space::shared_cluster, w.address(i.op[0], l), sizeof(S), Warp::Access::both);
        const MbarrierRef b = barrier_beside(w, i, l, i.op[0], i.op[2]);
        const S value = w.in<S>(i.op[1])[l];
        const auto f = reinterpret_cast<Rmw<S>>(i.aux);
        AsyncOp op{.kind = AsyncKind::red_async};
        op.writes = {cluster_of(w).region(to, sizeof(S))};
        op.signal = {.rank = b.cta().rank, .offset = b.offset(), .bytes = sizeof(S)};
        op.complete = [=] { static_cast<void>(rmw_at(to, f, value, S{0})); };
        cluster_of(w).issue(w, i, 1u << l, std::move(op));
    }
    return Step::next;
}

}  // namespace

void select_cp_async(const Choice& c, Instruction& i) {
    const s64 size = i.op[2].imm;
    if (size != 16 && (c.has(Mod::cg) || (size != 4 && size != 8)))
        throw SelectError(c.has(Mod::cg) ? "the size must be 16" : "the size must be 4, 8 or 16", true);
    i.run = cp_async;
}
void select_cp_async_commit(const Choice&, Instruction& i) {
    i.run = commit<false>;
}
void select_cp_async_wait(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::wait_all) ? 2 : 0;
    i.run = wait<false>;
}
void select_cp_async_arrive(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::noinc);
    i.run = cp_async_arrive;
}
void select_st_async(const Choice& c, Instruction& i) {
    i.target = static_cast<u32>(bits_of(c.type(0)) / 8);
    i.run = st_async;
}
void select_red_async(const Choice& c, Instruction& i) {
    const Mod op =
        c.one_of({Mod::and_, Mod::or_, Mod::xor_, Mod::inc, Mod::dec, Mod::add, Mod::min, Mod::max});
    i.aux = rmw_function(op, c.type(0), false);
    i.run = bits_of(c.type(0)) == 64 ? red_async<u64> : red_async<u32>;
}
void select_bulk_commit(const Choice&, Instruction& i) {
    i.run = commit<true>;
}
void select_bulk_wait(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::read) ? 1 : 0;
    i.run = wait<true>;
}

}  // namespace emu
