// Tensor copies: loads of a box into the shared memory of one or several CTAs, stores and reductions of a
// box, and prefetches. A copy comes in several parts, each of which moves its data before it is counted.
#include <algorithm>
#include <cstring>

#include "exec/atomic.hpp"
#include "exec/bulk.hpp"
#include "exec/tensor_box.hpp"

namespace emu {
namespace {

using tensor_map::Kind;
using tensor_map::TensorMap;
using tma::Box;
using tma::Run;

constexpr u64 kMulticast = 1, kPair = 2;  // with a CTA mask; the mbarrier may be in the pair's other CTA

void fill(std::byte* place, u32 bytes, const TensorMap& map) {
    if (!map.fill_nan) {
        std::memset(place, 0, bytes);
        return;
    }
    for (u32 k = 0; k < bytes; k += sizeof tensor_map::kNan)
        std::memcpy(place + k, &tensor_map::kNan, sizeof tensor_map::kNan);
}

// Loads of the tf32 types round, also subnormals; those with "ftz" in their name do not flush (an H200).
u32 round_tf32(u32 bits) {
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fffe000;
    return (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000;  // to nearest, ties to even
}

void load_part(std::byte* shared, const Box& part, const TensorMap& map) {
    for (const Run& run : part.runs) {
        std::byte* const place = shared + run.shared;
        if (!run.inside()) {
            fill(place, run.bytes, map);
            continue;
        }
        std::memcpy(place, reinterpret_cast<const std::byte*>(run.global), run.bytes);
        if (!map.rounds_to_tf32()) continue;
        for (u32 k = 0; k < run.bytes; k += 4) {
            u32 bits;
            std::memcpy(&bits, place + k, 4);
            bits = round_tf32(bits);
            std::memcpy(place + k, &bits, 4);
        }
    }
}

// ops: [dst], [map, coordinates], [mbarrier], offsets of im2col, CTA mask?, policy?; target: coordinates
Step load(Warp& w, const Instruction& i, u32 mask) {
    Cluster& cluster = w.cta().cluster();
    const u32 rank = i.target;
    const u32 space = (i.aux & kIm2col) != 0 ? rank - 2 : 0;
    const Operand &barrier_operand = i.op[2 + rank], &mask_operand = i.op[3 + rank + space];
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const TensorOperand t = tensor_operand(w, i, l, i.op + 1, rank, TensorAccess::load);
        const u64 to = w.address(i.op[0], l);
        const u32 offset = shared_place(w, i, l, i.space, to, t, Warp::Access::write);
        const Box box = box_of(w, i, l, t, &i.op[3 + rank], offset, tma::Clip::elements);
        check_global(w, i, l, box, false);
        const MbarrierRef named = (i.aux & kPair) != 0
                                      ? MbarrierRef::named(w, i, l, Space::shared_cluster, barrier_operand)
                                      : barrier_beside(w, i, l, i.op[0], barrier_operand);
        const u32 targets = targets_of(w, i, l, to, (i.aux & kMulticast) != 0 ? &mask_operand : nullptr);
        for (u32 target = 0; target < cluster.ctas().size(); ++target) {
            if ((targets >> target & 1) == 0) continue;
            // With .cta_group::2 the even or the odd CTA of each pair is told, as the mbarrier operand says.
            const u32 told = (i.aux & kPair) != 0 ? (target & ~1u) | (named.cta().rank & 1) : target;
            check_target(w, i, l, *cluster.cta(target), offset, t.extent);
            check_signalled(w, i, l, *cluster.cta(told), named.offset());
            std::byte* const shared = cluster.cta(target)->shared();
            for (Box& part : tma::split(box, cluster.parts(box.bytes / 16))) {
                AsyncOp op{.kind = AsyncKind::tensor_load};
                op.reads = global_regions(part);
                op.writes = shared_regions(part, target, true);
                op.signal = {.rank = told, .offset = named.offset(), .bytes = part.bytes};
                op.complete = [shared, map = t.map, part = std::move(part)] { load_part(shared, part, map); };
                cluster.issue(w, i, 1u << l, std::move(op));
            }
        }
    }
    return Step::next;
}

// Two steps: the source is read (wait_group.read), later `put(run, data)` brings each run's bytes to the
// tensor.
template <class F>
void store_box(Warp& w, const Instruction& i, int lane, AsyncKind kind, const TensorOperand& t, F put) {
    Cluster& cluster = w.cta().cluster();
    const u32 offset =
        shared_place(w, i, lane, Space::shared, w.address(i.op[1 + i.target], lane), t, Warp::Access::read);
    const Box box = box_of(w, i, lane, t, nullptr, offset, tma::Clip::units);
    check_global(w, i, lane, box, true);
    const std::byte* const shared = w.cta().shared();
    for (Box& whole : tma::split(box, cluster.parts(box.bytes / 16))) {
        AsyncOp op{.kind = kind};
        op.reads = shared_regions(whole, w.cta().rank, false);
        op.writes = global_regions(whole);
        const auto part = std::make_shared<const Box>(std::move(whole));
        const auto copy = std::make_shared<std::vector<std::byte>>();
        op.fetch = [=] {
            for (const Run& run : part->runs)
                if (run.inside())
                    copy->insert(copy->end(), shared + run.shared, shared + run.shared + run.bytes);
        };
        op.complete = [=] {
            const std::byte* data = copy->data();
            for (const Run& run : part->runs)
                if (run.inside()) put(run, data), data += run.bytes;
        };
        op.fetched = std::make_shared<bool>(false);
        CopyGroup& group = w.copies(lane, true).open;
        group.reads.push_back(op.fetched);
        group.writes.push_back(cluster.issue(w, i, 1u << lane, std::move(op)));
    }
}

Step store(Warp& w, const Instruction& i,
           u32 mask) {  // ops: [map, coordinates], [src], policy?; target: coordinates
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const TensorOperand t = tensor_operand(w, i, l, i.op, i.target, TensorAccess::store);
        store_box(w, i, l, AsyncKind::tensor_store, t, [](const Run& run, const std::byte* data) {
            std::memcpy(reinterpret_cast<std::byte*>(run.global), data, run.bytes);
        });
    }
    return Step::next;
}

// The type that reductions of an element type work on; none where there is no such reduction.
Type reduced_type(u32 element, Mod op) {
    constexpr Type types[] = {Type::none, Type::none, Type::u32,  Type::s32, Type::u64,  Type::s64,
                              Type::f16,  Type::f32,  Type::f32,  Type::f64, Type::bf16, Type::f32,
                              Type::f32,  Type::none, Type::none, Type::none};
    const Type type = types[element];
    const bool bitwise = op == Mod::and_ || op == Mod::or_ || op == Mod::xor_;
    const bool ordered = op == Mod::min || op == Mod::max;
    if ((op == Mod::inc || op == Mod::dec) && type != Type::u32) return Type::none;
    if (bitwise && is_float(type)) return Type::none;
    if (type == Type::s64 && !ordered) return Type::none;
    if (ordered && (type == Type::f32 || type == Type::f64)) return Type::none;
    return type;
}

template <class S>
void reduce_run(const Run& run, const std::byte* data, u64 function) {
    const auto f = reinterpret_cast<Rmw<S>>(function);
    for (u32 k = 0; k < run.bytes; k += sizeof(S)) {
        S value;
        std::memcpy(&value, data + k, sizeof(S));
        static_cast<void>(rmw_at(reinterpret_cast<std::byte*>(run.global) + k, f, value, S{0}));
    }
}

// ops: [map, coordinates], [src], policy?; target: coordinates; aux: the operation
Step reduce(Warp& w, const Instruction& i, u32 mask) {
    const auto op = static_cast<Mod>(i.aux & 0xffff);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const TensorOperand t = tensor_operand(w, i, l, i.op, i.target, TensorAccess::store);
        const Type type = reduced_type(t.map.type, op);
        if (type == Type::none)
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' on a tensor of " + std::string(t.map.element().name) +
                       ", which has no reduction ." + std::string(name_of(op)),
                   0, {}, "tensor-map");
        const u64 function = bulk_function(op, type);
        store_box(w, i, l, AsyncKind::tensor_reduce, t, [=](const Run& run, const std::byte* data) {
            switch (bits_of(type)) {
                case 16:
                    return reduce_run<u16>(run, data, function);
                case 32:
                    return reduce_run<u32>(run, data, function);
                default:
                    return reduce_run<u64>(run, data, function);
            }
        });
    }
    return Step::next;
}

Step prefetch(Warp& w, const Instruction& i, u32 mask) {  // ops: [map, coordinates], policy?
    for (int l = 0; l < 32; ++l)
        if (mask >> l & 1) static_cast<void>(tensor_operand(w, i, l, i.op, i.target, TensorAccess::load));
    return Step::next;
}

}  // namespace

void select_tensor_load(const Choice& c, Instruction& i) {
    i.target = static_cast<u32>(coordinates(c));
    i.space = c.has(Mod::shared_cta) ? Space::shared : Space::shared_cluster;
    i.aux =
        (c.has(Mod::multicast_cluster) ? kMulticast : u64{0}) | (c.has(Mod::cta_group_2) ? kPair : u64{0});
    const u32 space = c.has(Mod::im2col) ? i.target - 2 : 0;
    if (space != 0) i.aux |= kIm2col;
    if (c.has(Mod::tile_gather4)) i.aux |= kFourRows;
    if ((i.aux & kMulticast) != 0 && i.op[3 + i.target + space].absent)
        throw SelectError("a CTA mask is missing", true);
    i.run = load;
}
void select_tensor_store(const Choice& c, Instruction& i) {
    i.target = static_cast<u32>(coordinates(c));
    i.aux = c.has(Mod::im2col_no_offs) ? kIm2col : c.has(Mod::tile_scatter4) ? kFourRows : 0;
    i.run = store;
}
void select_tensor_reduce(const Choice& c, Instruction& i) {
    i.target = static_cast<u32>(coordinates(c));
    i.aux = static_cast<u64>(
        c.one_of({Mod::add, Mod::min, Mod::max, Mod::inc, Mod::dec, Mod::and_, Mod::or_, Mod::xor_}));
    if (c.has(Mod::im2col_no_offs)) i.aux |= kIm2col;
    i.run = reduce;
}
void select_tensor_prefetch(const Choice& c, Instruction& i) {
    i.target = static_cast<u32>(coordinates(c));
    i.aux = c.has(Mod::im2col) ? kIm2col : c.has(Mod::tile_gather4) ? kFourRows : 0;
    i.run = prefetch;
}

}  // namespace emu
