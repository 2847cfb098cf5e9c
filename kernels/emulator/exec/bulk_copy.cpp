// Linear bulk copies and reductions: contiguous bytes, global to shared memory and back, and between the
// CTAs of a cluster. A copy comes in several parts, each of which moves its data before it is counted.
#include <cstring>

#include "exec/atomic.hpp"
#include "exec/bulk.hpp"

namespace emu {
namespace {

constexpr u64 kMulticast = 1, kFromShared = 2;

Step bulk_load(Warp& w, const Instruction& i,
               u32 mask) {  // ops: [dst], [src], size, [mbarrier], cta mask?, policy?
    Cluster& cluster = w.cta().cluster();
    const Space source = (i.aux & kFromShared) != 0 ? Space::shared : Space::global;
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u32 size = bulk_size(w, i, l, i.op[2]);
        const u64 to = w.address(i.op[0], l);
        const std::byte* const from =
            w.resolve(i, l, source, w.address(i.op[1], l), size, Warp::Access::read);
        static_cast<void>(w.resolve(i, l, Space::shared_cluster, to, size, Warp::Access::write));
        const MbarrierRef named = barrier_beside(w, i, l, i.op[0], i.op[3]);
        const u32 targets = targets_of(w, i, l, to, (i.aux & kMulticast) != 0 ? &i.op[4] : nullptr);
        for (u32 rank = 0; rank < cluster.ctas().size(); ++rank) {
            if ((targets >> rank & 1) == 0) continue;
            Cta& cta = *cluster.cta(rank);
            const u32 offset = static_cast<u32>(to) & kOffsetMask;
            check_target(w, i, l, cta, offset, size);
            check_signalled(w, i, l, cta, named.offset());
            for (const Slice& part : slices(cluster, size)) {
                std::byte* const place = cta.shared() + offset + part.begin;
                AsyncOp op{.kind = AsyncKind::bulk_load};
                op.reads = {cluster.region(from + part.begin, part.bytes)};
                op.writes = {cluster.region(place, part.bytes)};
                op.signal = {.rank = rank, .offset = named.offset(), .bytes = part.bytes};
                op.complete = [=] { std::memcpy(place, from + part.begin, part.bytes); };
                cluster.issue(w, i, 1u << l, std::move(op));
            }
        }
    }
    return Step::next;
}

// Two steps: first the source is read (wait_group.read), later the destination is written (wait_group).
// `write` puts the bytes read to their place.
template <class F>
void store(Warp& w, const Instruction& i, int lane, AsyncKind kind, std::byte* to, const std::byte* from,
           u32 size, F write) {
    Cluster& cluster = w.cta().cluster();
    for (const Slice& part : slices(cluster, size)) {
        const auto copy = std::make_shared<std::vector<std::byte>>();
        AsyncOp op{.kind = kind};
        op.reads = {cluster.region(from + part.begin, part.bytes)};
        op.writes = {cluster.region(to + part.begin, part.bytes)};
        op.fetch = [=] { copy->assign(from + part.begin, from + part.begin + part.bytes); };
        op.complete = [=] { write(to + part.begin, *copy); };
        op.fetched = std::make_shared<bool>(false);
        CopyGroup& group = w.copies(lane, true).open;
        group.reads.push_back(op.fetched);
        group.writes.push_back(cluster.issue(w, i, 1u << lane, std::move(op)));
    }
}

Step bulk_store(Warp& w, const Instruction& i, u32 mask) {  // ops: [dst], [src], size, policy?
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u32 size = bulk_size(w, i, l, i.op[2]);
        std::byte* const to =
            w.resolve(i, l, Space::global, w.address(i.op[0], l), size, Warp::Access::write);
        const std::byte* const from =
            w.resolve(i, l, Space::shared, w.address(i.op[1], l), size, Warp::Access::read);
        store(w, i, l, AsyncKind::bulk_store, to, from, size,
              [](std::byte* place, const std::vector<std::byte>& data) {
                  std::memcpy(place, data.data(), data.size());
              });
    }
    return Step::next;
}

template <class S>
void reduce_at(std::byte* place, const std::byte* data, std::size_t bytes, Rmw<S> f) {
    for (std::size_t k = 0; k < bytes; k += sizeof(S)) {
        S value;
        std::memcpy(&value, data + k, sizeof(S));
        static_cast<void>(rmw_at(place + k, f, value, S{0}));
    }
}

// aux: the function on elements of type S
template <class S>
Step bulk_reduce_global(Warp& w, const Instruction& i, u32 mask) {  // ops: [dst], [src], size, policy?
    const auto f = reinterpret_cast<Rmw<S>>(i.aux);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u32 size = bulk_size(w, i, l, i.op[2]);
        std::byte* const to = w.resolve(i, l, Space::global, w.address(i.op[0], l), size, Warp::Access::both);
        const std::byte* const from =
            w.resolve(i, l, Space::shared, w.address(i.op[1], l), size, Warp::Access::read);
        store(w, i, l, AsyncKind::bulk_reduce, to, from, size,
              [f](std::byte* place, const std::vector<std::byte>& data) {
                  reduce_at<S>(place, data.data(), data.size(), f);
              });
    }
    return Step::next;
}

template <class S>
Step bulk_reduce_cluster(Warp& w, const Instruction& i, u32 mask) {  // ops: [dst], [src], size, [mbarrier]
    Cluster& cluster = w.cta().cluster();
    const auto f = reinterpret_cast<Rmw<S>>(i.aux);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u32 size = bulk_size(w, i, l, i.op[2]);
        const u64 address = w.address(i.op[0], l);
        std::byte* const to = w.resolve(i, l, Space::shared_cluster, address, size, Warp::Access::both);
        const std::byte* const from =
            w.resolve(i, l, Space::shared, w.address(i.op[1], l), size, Warp::Access::read);
        const MbarrierRef barrier = barrier_beside(w, i, l, i.op[0], i.op[3]);
        static_cast<void>(targets_of(w, i, l, address, nullptr));
        check_target(w, i, l, barrier.cta(), static_cast<u32>(address) & kOffsetMask, size);
        for (const Slice& part : slices(cluster, size)) {
            AsyncOp op{.kind = AsyncKind::bulk_reduce};
            op.reads = {cluster.region(from + part.begin, part.bytes)};
            op.writes = {cluster.region(to + part.begin, part.bytes)};
            op.signal = {.rank = barrier.cta().rank, .offset = barrier.offset(), .bytes = part.bytes};
            op.complete = [=] { reduce_at<S>(to + part.begin, from + part.begin, part.bytes, f); };
            cluster.issue(w, i, 1u << l, std::move(op));
        }
    }
    return Step::next;
}

}  // namespace

void select_bulk_load(const Choice& c, Instruction& i) {
    i.aux = (c.has(Mod::multicast_cluster) ? kMulticast : u64{0}) | (c.has(Mod::global) ? 0u : kFromShared);
    if ((i.aux & kMulticast) != 0 && i.op[4].absent) throw SelectError("a CTA mask is missing", true);
    i.run = bulk_load;
}
void select_bulk_store(const Choice&, Instruction& i) {
    i.run = bulk_store;
}
void select_bulk_reduce(const Choice& c, Instruction& i) {
    const Type type = c.type(0);
    const bool global = c.has(Mod::global);
    i.aux = bulk_function(
        c.one_of({Mod::add, Mod::min, Mod::max, Mod::inc, Mod::dec, Mod::and_, Mod::or_, Mod::xor_}), type);
    switch (bits_of(type)) {
        case 16:
            i.run = bulk_reduce_global<u16>;
            break;
        case 32:
            i.run = global ? bulk_reduce_global<u32> : bulk_reduce_cluster<u32>;
            break;
        default:
            i.run = global ? bulk_reduce_global<u64> : bulk_reduce_cluster<u64>;
            break;
    }
}

}  // namespace emu
