// Tensor maps where they lie: finding, checking, prefetching and changing them.
#include <algorithm>
#include <cstring>

#include "exec/tensor_operand.hpp"

namespace emu {
namespace {

using tensor_map::ConstRecord;
using tensor_map::Record;

std::byte* record_at(Warp& w, const Instruction& i, int lane, Space space, u64 address, Warp::Access access) {
    std::byte* const record = w.resolve(i, lane, space, address, tensor_map::kBytes, access);
    if (address % 64 != 0)
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' on a tensor map at address " + std::to_string(address) +
                   ", which is no multiple of 64",
               address, {}, "alignment");
    if (!tensor_map::is_map(ConstRecord(record, tensor_map::kBytes)))
        w.trap(i, 1u << lane,
               "'" + w.text(i) +
                   "' on 128 bytes that are not a tensor map; is the kernel's parameter a "
                   "'const __grid_constant__ CUtensorMap', and is its address passed?",
               address, {}, "tensor-map");
    return record;
}

void check_fences(Warp& w, const Instruction& i, int lane, u64 address, ConstRecord record) {
    const u64 patch = tensor_map::patch_of(record);
    if (patch == 0) return;
    if (!w.cta().cluster().grid().map_patches.released(patch))
        w.trap(i, 1u << lane,
               "'" + w.text(i) +
                   "' uses a tensor map that tensormap.replace has changed and no thread has "
                   "released; after the change, the changing thread needs "
                   "fence.proxy.tensormap::generic.release",
               address, {}, "tensormap-fence");
    if (!w.cta().acquired_maps.holds(address, record))
        w.trap(i, 1u << lane,
               "'" + w.text(i) +
                   "' uses a tensor map that tensormap.replace has changed, without having "
                   "acquired the change; it needs fence.proxy.tensormap::generic.acquire on the map's "
                   "address before",
               address, {}, "tensormap-fence");
}

Step prefetch_map(Warp& w, const Instruction& i, u32 mask) {  // ops: [map]
    for (int l = 0; l < 32; ++l)
        if (mask >> l & 1)
            static_cast<void>(record_at(w, i, l, i.space, w.address(i.op[0], l), Warp::Access::read));
    return Step::next;
}

// target: the field; aux: 1 where operand 1 is an axis and operand 2 the value, 2 where operand 1 is a
// constant
Step replace(Warp& w, const Instruction& i, u32 mask) {  // ops: [map], axis?, value
    const auto field = static_cast<tensor_map::Field>(i.target);
    Grid& grid = w.cta().cluster().grid();
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        std::byte* const record = record_at(w, i, l, i.space, w.address(i.op[0], l), Warp::Access::both);
        const u32 axis = i.aux == 1 ? static_cast<u32>(i.op[1].imm) : 0;
        const u64 value = i.aux == 2 ? static_cast<u64>(i.op[1].imm) : w.value(i.op[i.aux == 1 ? 2 : 1], l);
        tensor_map::replace(Record(record, tensor_map::kBytes), field, axis, value,
                            grid.map_patches.make(&w.cta()));
    }
    return Step::next;
}

Step acquire(Warp& w, const Instruction& i, u32 mask) {  // ops: [map], 128
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u64 address = w.address(i.op[0], l);
        const std::byte* const record =
            w.resolve(i, l, Space::generic, address, tensor_map::kBytes, Warp::Access::read);
        w.cta().acquired_maps.acquire(address, ConstRecord(record, tensor_map::kBytes));
    }
    return Step::next;
}

Step release(Warp& w, const Instruction&, u32) {
    w.cta().cluster().grid().map_patches.release(&w.cta());
    return Step::next;
}

Step copy_and_release(Warp& w, const Instruction& i, u32 mask) {  // ops: [to], [from], 128
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        std::byte* const to =
            w.resolve(i, l, Space::global, w.address(i.op[0], l), tensor_map::kBytes, Warp::Access::write);
        const std::byte* const from =
            record_at(w, i, l, Space::shared, w.address(i.op[1], l), Warp::Access::read);
        std::memcpy(to, from, tensor_map::kBytes);
    }
    return release(w, i, mask);
}

void require_whole_map(const Operand& size) {
    if (size.imm != tensor_map::kBytes) throw SelectError("the size must be 128", true);
}

struct FieldRow {
    Mod mod;
    tensor_map::Field field;
    s64 most;  // the largest constant, or the largest axis
};
constexpr FieldRow kFields[] = {
    {Mod::global_address, tensor_map::Field::global_address, 0},
    {Mod::rank, tensor_map::Field::rank, 0},
    {Mod::box_dim, tensor_map::Field::box_dim, 4},
    {Mod::global_dim, tensor_map::Field::global_dim, 4},
    {Mod::global_stride, tensor_map::Field::global_stride, 3},
    {Mod::element_stride, tensor_map::Field::element_stride, 4},
    {Mod::elemtype, tensor_map::Field::elemtype, 15},
    {Mod::interleave_layout, tensor_map::Field::interleave_layout, 2},
    {Mod::swizzle_mode, tensor_map::Field::swizzle_mode, 4},
    {Mod::swizzle_atomicity, tensor_map::Field::swizzle_atomicity, 3},
    {Mod::fill_mode, tensor_map::Field::fill_mode, 1},
};

}  // namespace

tensor_map::TensorMap map_at(Warp& w, const Instruction& i, int lane, u64 address) {
    const u64 window = address & kWindowMask;
    if (window == kSharedWindow || window == kLocalWindow)
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' uses a tensor map in " + (window == kSharedWindow ? "shared" : "local") +
                   " memory; it must lie in a kernel parameter, in constant or in global memory. Is the "
                   "parameter declared __grid_constant__?",
               address, {}, "tensor-map");
    const std::byte* const bytes = record_at(w, i, lane, Space::generic, address, Warp::Access::read);
    const ConstRecord record(bytes, tensor_map::kBytes);
    tensor_map::TensorMap map;
    if (const std::string problem = tensor_map::decode(record, map); !problem.empty())
        w.trap(i, 1u << lane, "'" + w.text(i) + "' with a tensor map that breaks a rule: " + problem, address,
               {}, "tensor-map");
    check_fences(w, i, lane, address, record);
    return map;
}

TensorOperand tensor_operand(Warp& w, const Instruction& i, int lane, const Operand* first, u32 count,
                             TensorAccess access) {
    TensorOperand t{.map = map_at(w, i, lane, w.address(first[0], lane))};
    const bool rows = (i.aux & kFourRows) != 0;
    if (t.map.rank != (rows ? 2 : count))
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' gives " + std::to_string(count) + " coordinates for a tensor map with " +
                   std::to_string(t.map.rank) + " axes",
               0, {}, "tensor-map");
    if (rows && t.map.box[1] != 1)
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' with a tensor map whose box has " + std::to_string(t.map.box[1]) +
                   " rows; for four rows by their numbers, the box has one",
               0, {}, "tensor-map");
    t.extent = rows ? 4 * t.map.row_pitch() : tma::extent(t.map);
    if (t.map.im2col != ((i.aux & kIm2col) != 0))
        w.trap(i, 1u << lane,
               "'" + w.text(i) +
                   "' with a tensor map of the other mode; .im2col and its like need a map made "
                   "for im2col, all other copies a tiled one",
               0, {}, "tensor-map");
    for (u32 axis = 0; axis < count; ++axis) {
        t.at[axis] = static_cast<s32>(w.in<u32>(first[1 + axis])[lane]);
        // A row that is to be left out may have any number outside of the tensor.
        if (access == TensorAccess::store && t.at[axis] < 0 && !(rows && axis > 0))
            w.trap(i, 1u << lane,
                   "'" + w.text(i) + "' with coordinate c" + std::to_string(axis) + " = " +
                       std::to_string(t.at[axis]) +
                       "; stores and reductions take no negative coordinates (a GPU reports an illegal "
                       "instruction). Store a smaller box, or begin it at 0",
                   0, {}, "tensor-coordinate");
    }
    const s64 bits = static_cast<s64>(t.at[0]) * t.map.element().bits;
    if (bits % 128 != 0)
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' with c0 = " + std::to_string(t.at[0]) + ": " + std::to_string(t.at[0]) +
                   " elements of " + std::string(t.map.element().name) +
                   " are no multiple of 16 bytes (a GPU reports an illegal instruction). Move c0 by " +
                   std::to_string(128 / t.map.element().bits) + " elements at a time",
               0, {}, "tensor-coordinate");
    return t;
}

void select_prefetch_map(const Choice&, Instruction& i) {
    i.run = prefetch_map;
}
void select_map_acquire(const Choice&, Instruction& i) {
    require_whole_map(i.op[1]);
    i.run = acquire;
}
void select_map_release(const Choice&, Instruction& i) {
    i.run = release;
}
void select_map_copy(const Choice&, Instruction& i) {
    require_whole_map(i.op[2]);
    i.run = copy_and_release;
}
void select_map_replace(const Choice& c, Instruction& i) {
    const auto row = std::ranges::find_if(kFields, [&](const FieldRow& r) { return c.has(r.mod); });
    i.target = static_cast<u32>(row->field);
    const bool axis = i.count == 3, constant = row->mod != Mod::rank && row->mod != Mod::global_address;
    i.aux = axis ? 1 : constant ? 2 : 0;
    if (i.aux != 0 && (i.op[1].imm < 0 || i.op[1].imm > row->most))
        throw SelectError(
            std::string(axis ? "the axis" : "the value") + " must be 0 to " + std::to_string(row->most),
            true);
    i.run = replace;
}

}  // namespace emu
