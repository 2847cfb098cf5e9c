// setmaxnreg: warpgroups pass registers to each other. PTX has any number of registers, so only the budgets
// are modelled: what the launch gives, what is given away, who waits. A warp takes and gives its own share.
#include "exec/setmaxnreg.hpp"

#include <algorithm>

namespace emu {
namespace {

constexpr u32 kRegistersOfSm = 65536, kMostAtEntry = 240;

// Registers of a thread at entry, as ptxas sets them for a kernel with setmaxnreg; 0 where it cannot know,
// and then it ignores setmaxnreg.
u32 at_entry(const Kernel& k) {
    if (k.maxnreg != 0) return k.maxnreg;
    const auto& most = k.reqntid[0] != 0 ? k.reqntid : k.maxntid;
    if (most[0] == 0 || k.minnctapersm == 0) return 0;
    const u64 threads = u64{most[0]} * std::max(most[1], 1u) * std::max(most[2], 1u);
    return std::min(static_cast<u32>(kRegistersOfSm / (threads * k.minnctapersm)) / 8 * 8, kMostAtEntry);
}

[[noreturn]] void misuse(Warp& w, const Instruction& i, u32 mask, const std::string& text) {
    w.trap(i, mask, text, 0, {}, "setmaxnreg");
}

Warpgroup& warpgroup(const Warp& w) {
    return w.cta().warpgroups[static_cast<std::size_t>(w.number() / 4)];
}

std::string spelled(const Warp& w, const Instruction& i) {
    return "'" + w.text(i) + " " + std::to_string(i.op[0].imm) + "'";
}

void agree(Warp& w, const Instruction& i, u32 mask) {
    Warpgroup& group = warpgroup(w);
    const auto first = static_cast<std::size_t>(w.number()) / 4 * 4,
               mine = static_cast<std::size_t>(w.number()) % 4;
    const std::size_t turn = group.budgets_set[mine]++;
    if (turn == group.budget_calls.size()) group.budget_calls.push_back(&i);
    const Instruction& other = *group.budget_calls[turn];
    if (other.op[0].imm != i.op[0].imm || other.aux != i.aux)
        misuse(w, i, mask,
               "The four warps of a warpgroup must execute the same setmaxnreg, but warp " +
                   std::to_string(w.number()) + " executes " + spelled(w, i) + " where another executed " +
                   spelled(w, other));
    for (std::size_t mate = 0; mate < 4; ++mate)
        if (first + mate < w.cta().warps.size() && w.cta().warps[first + mate]->alive() == 0 &&
            group.budgets_set[mate] <= turn)
            misuse(w, i, mask,
                   "All four warps of a warpgroup must execute " + spelled(w, i) + ", but warp " +
                       std::to_string(first + mate) + " has exited without it");
}

template <bool Take>
Step setmaxnreg(Warp& w, const Instruction& i, u32 mask) {
    if (!w.converge(mask)) return Step::park;
    w.split().resumed = false;
    const auto wanted = static_cast<u32>(i.op[0].imm);
    const u32 entry = at_entry(w.kernel());
    if (entry == 0)
        misuse(w, i, mask,
               "'" + w.text(i) +
                   "' has no effect in this kernel, because ptxas does not know the register count at entry: "
                   "give "
                   "__launch_bounds__ the blocks per multiprocessor too, as in __launch_bounds__(384, 1)");
    if (w.registers == 0) w.registers = entry;
    if (Take ? wanted < w.registers : wanted > w.registers)
        misuse(w, i, mask,
               spelled(w, i) + " would " + (Take ? "lower" : "raise") + " the budget: a thread has " +
                   std::to_string(w.registers) + " registers");
    const u32 change = 32 * (Take ? wanted - w.registers : w.registers - wanted);
    if (Take && change > w.cta().free_registers)
        return w.park({.kind = Wait::Kind::registers, .value = change});
    agree(w, i, mask);
    w.registers = wanted;
    w.cta().free_registers += Take ? 0 - change : change;
    return Step::next;
}

}  // namespace

void check_budgets(Warp& w, const Instruction& i) {
    const Warpgroup& group = warpgroup(w);
    const std::size_t made = group.budgets_set[static_cast<std::size_t>(w.number() % 4)];
    if (made < group.budget_calls.size())
        misuse(w, i, w.alive(),
               "All four warps of a warpgroup must execute " + spelled(w, *group.budget_calls[made]) +
                   ", but warp " + std::to_string(w.number()) + " exits without it");
}

void select_setmaxnreg(const Choice& c, Instruction& i) {
    const s64 wanted = i.op[0].imm;
    if (wanted < 24 || wanted > 256 || wanted % 8 != 0)
        throw SelectError(
            "the register count must be a multiple of 8 from 24 to 256, not " + std::to_string(wanted), true);
    i.aux = c.has(Mod::inc);
    i.run = c.has(Mod::inc) ? setmaxnreg<true> : setmaxnreg<false>;
}

}  // namespace emu
