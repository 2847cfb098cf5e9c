// From an address to host memory, with every check that a GPU makes and the ones it does not; and the words
// for failures.
#include <bit>

#include "machine/machine.hpp"
#include "trace/log.hpp"

namespace emu {

std::uint64_t Warp::address(const Operand& o, int lane) const {
    const std::uint64_t sum = value(o, lane) + static_cast<std::uint64_t>(o.imm);
    return o.bits == 64 ? sum : sum & 0xffffffffu;
}

Where Warp::where(const Instruction& ins) const {
    Where w{kernel_.name, ins.ptx_line, {}, 0};
    if (ins.source_file > 0 && static_cast<std::size_t>(ins.source_file) < kernel_.files.size()) {
        w.source_file = kernel_.files[static_cast<std::size_t>(ins.source_file)];
        w.source_line = ins.source_line;
        if (ins.inner_line > 0 && static_cast<std::size_t>(ins.inner_file) < kernel_.files.size()) {
            w.inner_file = kernel_.files[static_cast<std::size_t>(ins.inner_file)];
            w.inner_line = ins.inner_line;
        }
    }
    return w;
}

std::string Warp::text(const Instruction& ins) const {
    return ins.text >= 0 ? kernel_.texts[static_cast<std::size_t>(ins.text)] : std::string("instruction");
}

void Warp::trap(const Instruction& ins, std::uint32_t lanes, const std::string& text, std::uint64_t address,
                const std::string& object, const char* rule) const {
    const Where at = where(ins);
    const auto triple = [](const std::array<std::uint32_t, 3>& v) {
        return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) + ")";
    };
    const int lane = lanes == 0 ? 0 : std::countr_zero(lanes);
    KernelTrap error(
        text + ": " + describe(at) + ", block " + triple(cta_.id) + ", thread " + triple(thread(lane)) +
            (role().empty() ? "" : " (warp " + std::to_string(number_) + ", " + std::string(role()) + ")"),
        at);
    error.rule = rule;
    error.role = role();
    for (std::size_t i = 0; i < 3; ++i)
        error.cta[i] = cta_.id[i];
    error.warp = number_;
    error.lanes = lanes;
    error.address = address;
    error.object = object;
    throw error;
}

ThreadCopies& Warp::copies(int lane, bool bulk) {
    if (!copies_[bulk]) copies_[bulk] = std::make_unique<std::array<ThreadCopies, 32>>();
    return (*copies_[bulk])[static_cast<std::size_t>(lane)];
}

WarpMultiplies& Warp::multiplies() {
    if (!multiplies_) multiplies_ = std::make_unique<WarpMultiplies>(kernel_.register_bytes);
    return *multiplies_;
}

std::byte* Warp::logged(std::byte* place, std::uint32_t bytes, Access access) const {
    if (log_ != nullptr)
        log_->access(cta_.cluster(), place, bytes, access != Access::write, access != Access::read);
    return place;
}

std::byte* Warp::resolve(const Instruction& ins, int lane, Space space, std::uint64_t address,
                         std::uint32_t bytes, Access access) {
    const std::uint32_t bit = 1u << lane;
    const char* const does = access == Access::read    ? " reads "
                             : access == Access::write ? " writes "
                                                       : " updates ";
    const auto what = [&] { return "'" + text(ins) + "'" + does + std::to_string(bytes) + " bytes "; };
    if ((address & (std::min(bytes, 16u) - 1)) != 0)
        trap(ins, bit,
             "Misaligned access: " + what() + "at " + std::string(name_of(space)) + " address " +
                 std::to_string(address) + ", which is no multiple of " +
                 std::to_string(std::min(bytes, 16u)),
             address, {}, "alignment");

    if (space == Space::generic || space == Space::global || space == Space::constant) {
        switch (address & kWindowMask) {
            case kSharedWindow:
                space = Space::shared_cluster, address &= 0xffffffffu;
                break;
            case kLocalWindow:
                space = Space::local, address &= 0xffffffffu;
                break;
            case kParamWindow:
                space = Space::param, address &= 0xffffffffu;
                break;
            default:
                break;
        }
    }
    switch (space) {
        case Space::shared:
        case Space::shared_cluster: {
            address &= kSharedWindow | 0xffffffffu;  // a 64-bit register may hold the generic form
            const std::uint32_t offset = static_cast<std::uint32_t>(address) & kOffsetMask,
                                rank = static_cast<std::uint32_t>(address) >> kRankShift;
            Cta* owner = rank == cta_.rank ? &cta_ : cta_.cluster().cta(rank);
            if (owner == nullptr)
                trap(ins, bit,
                     "Shared memory of another CTA: " + what() + "of rank " + std::to_string(rank) +
                         ", but the cluster has " + std::to_string(cta_.cluster().ctas().size()) + " CTAs",
                     address, {}, "bounds");
            if (owner != &cta_ && space == Space::shared)
                trap(ins, bit,
                     "Shared memory of another CTA: " + what() + "of rank " + std::to_string(rank) +
                         " from rank " + std::to_string(cta_.rank) + " without .shared::cluster",
                     address, {}, "bounds");
            if (offset + std::uint64_t{bytes} > owner->shared_bytes()) {
                const std::string object = owner->object_at(offset);
                trap(ins, bit,
                     "Out of bounds: " + what() + "at shared offset " + std::to_string(offset) +
                         ", but the CTA has " + std::to_string(owner->shared_bytes()) +
                         " bytes of shared memory",
                     address, object, "bounds");
            }
            return logged(owner->shared() + offset, bytes, access);
        }
        case Space::local:
            if (address > kernel_.local_bytes || address + bytes > kernel_.local_bytes)
                trap(ins, bit,
                     "Out of bounds: " + what() + "at local offset " + std::to_string(address) +
                         ", but the thread has " + std::to_string(kernel_.local_bytes) +
                         " bytes of local memory",
                     address, "local memory", "bounds");
            return local(lane) + address;
        case Space::param:
            if (address > kernel_.param_bytes || address + bytes > kernel_.param_bytes)
                trap(ins, bit,
                     "Out of bounds: " + what() + "at parameter offset " + std::to_string(address) +
                         ", but the parameters have " + std::to_string(kernel_.param_bytes) + " bytes",
                     address, "parameters", "bounds");
            if (access != Access::read)
                trap(ins, bit, "Kernel parameters are read-only: " + what() + "there", address, "parameters",
                     "read-only");
            return cta_.cluster().grid().params + address;
        default:
            break;
    }
    const Range*& hint = cta_.hints[static_cast<std::size_t>(&ins - kernel_.code.data()) & 15];
    if (hint == nullptr || !hint->holds(address, bytes)) {
        const Range* found = cta_.cluster().grid().memory.find(address, bytes);
        if (found == nullptr) {
            std::string object;
            const std::string place = cta_.cluster().grid().memory.locate(address, object);
            trap(ins, bit, "Out of bounds: " + what() + place, address, object, "bounds");
        }
        hint = found;
    }
    if (access != Access::read && !hint->writable)
        trap(ins, bit,
             "Read-only memory: " + what() + "at byte " + std::to_string(address - hint->begin) + " of '" +
                 hint->name + "'",
             address, hint->name, "read-only");
    return logged(reinterpret_cast<std::byte*>(address), bytes, access);
}

}  // namespace emu
