#include "check/multiply_registers.hpp"

#include <algorithm>

#include "exec/wgmma.hpp"

namespace emu {
namespace {

using Use = RegisterNote::Use;

std::string place(Warp& w, const Instruction& i) {
    const Where at = w.where(i);
    return at.source_line > 0 ? "line " + std::to_string(at.source_line)
                              : "PTX line " + std::to_string(at.ptx_line);
}

const Multiply* in_flight(Warp& w, const RegisterNote& note) {
    return note.use == Use::none ? nullptr : w.multiplies().find(note.multiply);
}

// `other`: the multiply, or what touched its register.
[[noreturn]] void hazard(Warp& w, const Instruction& i, u32 mask, const char* rule, const Instruction* other,
                         const std::string& text) {
    try {
        w.trap(i, mask, text, 0, {}, rule);
    } catch (KernelTrap& error) {
        if (other != nullptr) error.other = w.where(*other), error.other_warp = w.number();
        throw;
    }
}

[[noreturn]] void unfinished(Warp& w, const Instruction& i, u32 mask, const char* does, const Multiply& m,
                             const RegisterNote& note) {
    const bool open = m.group == w.multiplies().group();
    hazard(
        w, i, mask, "wgmma-wait", m.ins,
        "A register of an unfinished wgmma is touched: '" + w.text(i) + "' " + does +
            (note.use == Use::fragment ? " a register of A" : " an accumulator") + " of '" + w.text(*m.ins) +
            "' at " + place(w, *m.ins) +
            (open
                 ? ", which belongs to no group yet: wgmma.commit_group is missing, and then wgmma.wait_group"
                 : ", which no wgmma.wait_group has waited for") +
            (open ? "" : ". Wait for its group first"));
}

// Reading a register of A before the multiply reads it does no harm.
void need_fence(Warp& w, const Instruction& i, bool accumulator, const RegisterNote& note) {
    const WarpMultiplies& own = w.multiplies();
    if (note.touched == nullptr || note.fences != own.fences() || own.fenced()) return;
    if (!accumulator && !note.written) return;
    hazard(w, i, ~0u, "wgmma-fence", note.touched,
           std::string("A wgmma.fence is missing: ") + (accumulator ? "an accumulator" : "a register of A") +
               " of '" + w.text(i) + "' was touched by '" + w.text(*note.touched) + "' at " +
               place(w, *note.touched) + ", and no wgmma.fence stands between the two");
}

bool same_shape(const Instruction& a, const Instruction& b) {
    const auto x = std::bit_cast<WgmmaForm>(a.aux), y = std::bit_cast<WgmmaForm>(b.aux);
    return x.n == y.n && x.d == y.d && x.a == y.a;
}

// The register no longer follows the accumulator that `mov` copied.
void forget_copy(Warp& w, const Operand& o, RegisterNote& note) {
    if (Multiply* m = w.multiplies().find(note.multiply))
        std::erase_if(m->copies, [&](const Multiply::Copy& c) { return c.offset == o.offset; });
    note.use = Use::none;
}

void write(Warp& w, const Instruction& i, u32 mask, const Operand& o) {
    RegisterNote& note = w.multiplies().note(o);
    if (note.use == Use::copy) return forget_copy(w, o, note);
    if (const Multiply* m = in_flight(w, note)) unfinished(w, i, mask, "writes", *m, note);
}

// Compilers copy accumulators about, also while a multiply is in flight: the copy then follows the original.
void move(Warp& w, const Instruction& i, u32 mask, const Operand& to, const Operand& from) {
    WarpMultiplies& own = w.multiplies();
    const RegisterNote source = own.note(from);
    if ((source.use == Use::accumulator || source.use == Use::copy) && mask == ~0u) {
        if (Multiply* m = own.find(source.multiply)) {
            RegisterNote& note = own.note(to);
            if (note.use == Use::copy) forget_copy(w, to, note);
            m->copies.push_back({source.accumulator, to.offset});
            note = source;
            note.use = Use::copy;
            return;
        }
    }
    if (const Multiply* m = in_flight(w, source); m != nullptr && source.use != Use::fragment)
        unfinished(w, i, mask, "reads", *m, source);
    write(w, i, mask, to);
    RegisterNote& note = own.note(to);
    note.touched = source.touched, note.fences = source.fences, note.written = source.written;
}

}  // namespace

void check_multiply(Warp& w, const Instruction& i, u32 accumulators, u32 fragments) {
    WarpMultiplies& own = w.multiplies();
    if (own.fences() == 0)
        hazard(w, i, ~0u, "wgmma-fence", nullptr,
               "A wgmma.fence is missing: '" + w.text(i) +
                   "' is the first wgmma of this warp, and the fence must come before it");
    for (u32 k = 0; k < accumulators + fragments; ++k) {
        const RegisterNote& note = own.note(i.op[k]);
        const Multiply* m = in_flight(w, note);
        const bool accumulator = k < accumulators;
        if (m != nullptr && accumulator == (note.use == Use::fragment))
            unfinished(w, i, ~0u, accumulator ? "accumulates in" : "takes as A", *m, note);
        if (m != nullptr && accumulator && note.fences == own.fences() && !same_shape(*m->ins, i))
            hazard(w, i, ~0u, "wgmma-fence", m->ins,
                   "A wgmma.fence is missing: '" + w.text(i) + "' accumulates on '" + w.text(*m->ins) +
                       "' at " + place(w, *m->ins) + ", which has another shape");
        need_fence(w, i, accumulator, note);
    }
}

void note_multiply(Warp& w, const Instruction& i, u64 number, u32 accumulators, u32 fragments) {
    WarpMultiplies& own = w.multiplies();
    for (u32 k = 0; k < accumulators + fragments; ++k)
        own.note(i.op[k]) = {.multiply = number,
                             .accumulator = k,
                             .use = k < accumulators ? Use::accumulator : Use::fragment,
                             .fences = own.fences()};
}

Step run_watched(Warp& w, const Instruction& i, u32 mask) {
    const Watch& watch = w.kernel().watches[static_cast<std::size_t>(i.watch)];
    if (watch.move) {
        move(w, i, mask, i.op[0], i.op[1]);
        return watch.run(w, i, mask);
    }
    WarpMultiplies& own = w.multiplies();
    for (u64 left = watch.reads; left != 0; left &= left - 1) {
        const RegisterNote& note = own.note(i.op[std::countr_zero(left)]);
        if (const Multiply* m = in_flight(w, note); m != nullptr && note.use != Use::fragment)
            unfinished(w, i, mask, "reads", *m, note);
    }
    for (u64 left = watch.writes; left != 0; left &= left - 1)
        write(w, i, mask, i.op[std::countr_zero(left)]);
    for (u64 left = watch.reads | watch.writes; left != 0; left &= left - 1) {
        RegisterNote& note = own.note(i.op[std::countr_zero(left)]);
        // What was written since the last fence stays written, whoever reads it afterwards.
        if (note.fences != own.fences()) note.written = false;
        note.written |= (watch.writes & left & (0 - left)) != 0;
        note.touched = &i;
        note.fences = own.fences();
    }
    return watch.run(w, i, mask);
}

}  // namespace emu
