// Finds the instructions that touch registers of wgmma: its accumulators, its fragments of A, and what `mov`
// copies from them.
#include "check/multiply_registers.hpp"
#include "ptx/draft.hpp"

namespace emu {
namespace {

bool is_register(const Operand& o) {
    return o.bank == kBankVirtual && o.bits > 1;
}

std::vector<bool> registers_of_multiplies(const std::vector<Draft>& drafts, std::size_t registers) {
    std::vector<bool> known(registers, false);
    bool changed = false;
    for (const Draft& d : drafts)
        for (std::uint32_t k = 0; k < d.held; ++k)
            if (is_register(d.ops[k])) known[d.ops[k].offset] = changed = true;
    while (changed) {
        changed = false;
        for (const Draft& d : drafts)
            if (d.part == Draft::Part::move && known[d.ops[1].offset] && !known[d.ops[0].offset])
                known[d.ops[0].offset] = changed = true;
    }
    return known;
}

}  // namespace

void watch_multiplies(Kernel& kernel, std::vector<Draft>& drafts, std::size_t registers) {
    const std::vector<bool> known = registers_of_multiplies(drafts, registers);
    for (Draft& d : drafts) {
        if (d.part == Draft::Part::multiply) continue;
        Watch watch{d.ins.run, 0, 0, false};
        for (std::size_t k = 0; k < d.ops.size(); ++k)
            if (is_register(d.ops[k]) && known[d.ops[k].offset])
                (d.dest[k] ? watch.writes : watch.reads) |= std::uint64_t{1} << k;
        watch.move = d.part == Draft::Part::move && watch.reads != 0;
        if (d.part == Draft::Part::move && !watch.move) d.part = Draft::Part::none;
        if (watch.reads == 0 && watch.writes == 0) continue;
        d.ins.watch = static_cast<std::int32_t>(kernel.watches.size());
        d.ins.run = run_watched;
        kernel.watches.push_back(watch);
    }
}

}  // namespace emu
