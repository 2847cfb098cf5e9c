// wgmma: the matrix multiply of a warpgroup. Each warp executes its quarter, 16 rows of A and all of B, when
// the queue completes it; the four warps must pass the same operands.
#include "exec/wgmma.hpp"

#include <cstring>

#include "check/monitor.hpp"
#include "check/multiply_registers.hpp"
#include "exec/wgmma_operands.hpp"
#include "trace/log.hpp"

namespace emu {
namespace {

Warpgroup& warpgroup(Warp& w) {
    return w.cta().warpgroups[static_cast<std::size_t>(w.number() / 4)];
}

// ---- one multiply on its way
// -------------------------------------------------------------------------------

struct Job {
    WgmmaForm form;
    u64 number = 0;
    bool accumulate = false;
    std::vector<u32> a, b;   // addresses of pieces; a is empty where A is in registers
    std::vector<u32> saved;  // accumulators that were poisoned when issued: [register][lane]
    std::vector<bool> is_saved;
};

constexpr u32 kRows = 16;  // of a warp

void gather_pieces(const std::byte* shared, const std::vector<u32>& addresses, std::byte* raw) {
    for (std::size_t k = 0; k < addresses.size(); ++k)
        std::memcpy(raw + 16 * k, shared + addresses[k], 16);
}

// Register r of lane l holds four bytes of a row's 32, whatever the type.
void gather_fragment(Warp& w, const Operand* registers, std::byte* raw) {
    for (u32 r = 0; r < 4; ++r) {
        const u32* v = w.in<u32>(registers[r]);
        for (u32 l = 0; l < 32; ++l)
            std::memcpy(raw + (l / 4 + r % 2 * 8) * 32 + l % 4 * 4 + r / 2 * 16, v + l, 4);
    }
}

Factor take_apart(Element type, bool single_bits, const std::byte* raw, u32 lines, bool k_major,
                  bool negate) {
    if (single_bits) {
        std::vector<u8> bits(std::size_t{lines} * 256);
        for (std::size_t k = 0; k < bits.size(); ++k)
            bits[k] = static_cast<u8>(raw[k / 8]) >> k % 8 & 1;
        Factor out(Element::u8, static_cast<int>(lines), 256);
        out.load(bits.data(), 256, 1);
        return out;
    }
    const u32 bytes = element_bytes(type);
    const int depth = static_cast<int>(32 / bytes), n = static_cast<int>(lines);
    Factor out(type, n, depth);
    const int line_stride = k_major ? depth : 1, k_stride = k_major ? 1 : n;
    if (bytes == 1)
        out.load(reinterpret_cast<const u8*>(raw), line_stride, k_stride, negate);
    else if (bytes == 2)
        out.load(reinterpret_cast<const u16*>(raw), line_stride, k_stride, negate);
    else
        out.load(reinterpret_cast<const u32*>(raw), line_stride, k_stride, negate);
    return out;
}

// B is the same for the four warps, which usually follow each other: keep the latest taken apart.
const Factor& factor_b(Cta& cta, const Job& job) {
    const WgmmaForm& f = job.form;
    std::vector<std::byte> raw(job.b.size() * 16);
    gather_pieces(cta.shared(), job.b, raw.data());
    if (cta.latest_b == nullptr) cta.latest_b = std::make_shared<TakenApart>();
    TakenApart& kept = *cta.latest_b;
    const bool transpose = f.has(WgmmaForm::transpose_b), negate = f.has(WgmmaForm::negate_b);
    const TakenApart::Key key{f.b, f.n, f.has(WgmmaForm::single_bits), transpose, negate};
    if (kept.factor == nullptr || kept.key != key || kept.raw != raw) {
        kept.factor = std::make_unique<Factor>(
            take_apart(f.b, f.has(WgmmaForm::single_bits), raw.data(), f.n, !transpose, negate));
        kept.key = key;
        kept.raw = std::move(raw);
    }
    return *kept.factor;
}

// Calls f(value of the tile, register, lane, half): element (row, column) of the warp's 16 x n is value row ·
// n + column.
template <class F>
void each_accumulator(u32 n, bool half, F f) {
    for (u32 v = 0; v < n / 2; ++v) {
        const u32 reg = half ? v / 2 : v, first = v / 2 % 2 * 8 * n + v / 4 * 8 + v % 2;
        for (u32 row = 0; row < 8; ++row)
            for (u32 pair = 0; pair < 4; ++pair)
                f(first + row * n + pair * 2, reg, row * 4 + pair, v % 2);
    }
}

void execute(Warp& w, const Instruction& i, const Job& job) {
    const WgmmaForm& f = job.form;
    const bool half = f.d == Accumulator::f16;
    std::byte raw[kRows * 32];
    if (job.a.empty())
        gather_fragment(w, i.op + f.registers(), raw);
    else
        gather_pieces(w.cta().shared(), job.a, raw);
    const Factor a = take_apart(f.a, f.has(WgmmaForm::single_bits), raw, kRows,
                                !f.has(WgmmaForm::transpose_a), f.has(WgmmaForm::negate_a));
    const Factor& b = factor_b(w.cta(), job);

    std::vector<u32> tile(std::size_t{kRows} * f.n);
    std::vector<u32*> d(f.registers());
    for (u32 r = 0; r < d.size(); ++r)
        d[r] = w.out<u32>(i.op[r]);
    if (job.accumulate) {
        std::vector<const u32*> c(d.begin(), d.end());
        for (u32 r = 0; r < job.is_saved.size(); ++r)
            if (job.is_saved[r]) c[r] = &job.saved[std::size_t{r} * 32];
        each_accumulator(f.n, half, [&](u32 at, u32 r, u32 l, u32 h) {
            tile[at] = half ? c[r][l] >> 16 * h & 0xffff : c[r][l];
        });
    }
    multiply_add(a, b, job.accumulate ? tile.data() : nullptr, tile.data(),
                 {f.d, Arithmetic::silicon, f.has(WgmmaForm::satfinite)});
    each_accumulator(f.n, half, [&](u32 at, u32 r, u32 l, u32 h) {
        if (!half)
            d[r][l] = tile[at];
        else
            d[r][l] = (d[r][l] & (h != 0 ? 0xffffu : 0xffff0000u)) | tile[at] << 16 * h;
    });
    if (const Multiply* m = w.multiplies().find(job.number))
        for (const Multiply::Copy& copy : m->copies)
            std::memcpy(w.out<u32>({.offset = copy.offset}), d[copy.accumulator], 128);
}

// Poisons D until the multiply completes, and keeps what it will add to. Accumulators of an earlier multiply
// in flight get their value when that completes.
void poison(Warp& w, const Instruction& i, Job& job) {
    const u32 count = job.form.registers();
    job.is_saved.assign(count, false);
    job.saved.resize(std::size_t{count} * 32);
    for (u32 r = 0; r < count; ++r) {
        const RegisterNote& note = w.multiplies().note(i.op[r]);
        const Multiply* earlier =
            note.use == RegisterNote::Use::none ? nullptr : w.multiplies().find(note.multiply);
        if (earlier != nullptr && !*earlier->done) continue;
        u32* d = w.out<u32>(i.op[r]);
        std::memcpy(&job.saved[std::size_t{r} * 32], d, 128);
        std::memset(d, 0xff, 128);
        job.is_saved[r] = true;
    }
}

void agree(Warp& w, const Instruction& i, const MultiplyCall& call) {
    const MultiplyCall* other = warpgroup(w).enter(static_cast<std::size_t>(w.number() % 4), call);
    if (other == nullptr) return;
    std::string why;
    if (other->ins != call.ins)
        why = "another executes '" + w.text(*other->ins) + "' at PTX line " +
              std::to_string(other->ins->ptx_line);
    else if (other->a != call.a)
        why = "the descriptor of A is " + hex(call.a) + " here and " + hex(other->a) + " in another";
    else if (other->b != call.b)
        why = "the descriptor of B is " + hex(call.b) + " here and " + hex(other->b) + " in another";
    else
        why = std::string("scale-d is ") + (call.accumulate ? "true here and false" : "false here and true") +
              " in another";
    w.trap(i, ~0u,
           "The four warps of a warpgroup must execute the same wgmma with the same operands, but " + why, 0,
           {}, "aligned-divergence");
}

Step mma(Warp& w, const Instruction& i, u32 mask) {  // ops: d…, a (descriptor or 4 registers), b, scale-d, …
    if (!whole_warp(w, i, mask)) return Step::park;
    const auto job = std::make_shared<Job>();
    const WgmmaForm f = job->form = std::bit_cast<WgmmaForm>(i.aux);
    const u32 quarter = static_cast<u32>(w.number() % 4), d = f.registers();
    const bool in_registers = f.has(WgmmaForm::a_in_registers);
    if (w.cta().warps.size() < static_cast<std::size_t>(w.number() / 4 * 4 + 4))
        w.trap(i, mask,
               "'" + w.text(i) + "' needs a warpgroup of four warps, but the block has only " +
                   std::to_string(w.cta().warps.size()) + " warps",
               0, {}, "aligned-divergence");
    MultiplyCall call{
        .ins = &i, .a = 0, .b = 0, .accumulate = accumulates(w, i, i.op[d + (in_registers ? 5 : 2)])};
    if (!in_registers) {
        call.a = descriptor(w, i, i.op[d], "A");
        job->a = pieces(w, i, call.a, !f.has(WgmmaForm::transpose_a), quarter * kRows, kRows, "A");
    }
    call.b = descriptor(w, i, i.op[d + (in_registers ? 4 : 1)], "B");
    job->b = pieces(w, i, call.b, !f.has(WgmmaForm::transpose_b), 0, f.n, "B");
    job->accumulate = call.accumulate;
    agree(w, i, call);
    check_multiply(w, i, d, in_registers ? 4 : 0);

    Cluster& cluster = w.cta().cluster();
    WarpMultiplies& own = w.multiplies();
    if (cluster.queue().policy() != Policy::eager) poison(w, i, *job);
    AsyncOp op{.kind = AsyncKind::wgmma};
    add_regions(w.cta(), job->a, op.reads);
    add_regions(w.cta(), job->b, op.reads);
    if (!own.in_flight().empty()) op.after = {own.in_flight().back().done};
    op.done = std::make_shared<bool>(false);
    Multiply& m = own.add(i);
    job->number = m.number;
    m.done = op.done;
    note_multiply(w, i, m.number, d, in_registers ? 4 : 0);
    op.complete = [&w, &i, job] { execute(w, i, *job); };
    cluster.issue(w, i, ~0u, std::move(op));
    return Step::next;
}

// ---- what stands around the multiplies
// -----------------------------------------------------------------------

Step fence(Warp& w, const Instruction& i, u32 mask) {
    if (!whole_warp(w, i, mask)) return Step::park;
    w.multiplies().fence();
    return Step::next;
}

Step commit(Warp& w, const Instruction& i, u32 mask) {
    if (!whole_warp(w, i, mask)) return Step::park;
    w.multiplies().commit();
    if (Monitor* const m = w.monitor()) m->committed(w, mask, Monitor::Groups::wgmma);
    if (ClusterLog* log = w.log()) log->commit(Group::wgmma);
    return Step::next;
}

Step wait(Warp& w, const Instruction& i, u32 mask) {
    if (!whole_warp(w, i, mask)) return Step::park;
    w.split().resumed = false;
    const auto pending = static_cast<u64>(i.op[0].imm);
    static_cast<void>(w.multiplies());
    const Split probe{.wait = {.kind = Wait::Kind::multiplies, .value = pending}};
    if (!w.ready(probe)) return w.park(probe.wait);
    w.multiplies().retire(pending);
    if (Monitor* const m = w.monitor()) m->waited(w, mask, Monitor::Groups::wgmma, pending);
    if (ClusterLog* log = w.log()) log->pass(Waited::wgmma, 0, pending);
    return Step::next;
}

Element element_of(Mod mod) {
    switch (mod) {
        case Mod::f16:
            return Element::f16;
        case Mod::bf16:
            return Element::bf16;
        case Mod::tf32:
            return Element::tf32;
        case Mod::e4m3:
            return Element::e4m3;
        case Mod::e5m2:
            return Element::e5m2;
        case Mod::s8:
            return Element::s8;
        default:
            return Element::u8;  // b1 too: bits become bytes
    }
}

}  // namespace

bool whole_warp(Warp& w, const Instruction& i, u32 mask) {
    if (w.alive() != ~0u)
        w.trap(i, mask,
               "'" + w.text(i) + "' needs all 32 threads of the warp, but some have exited or never were", 0,
               {}, "aligned-divergence");
    return w.converge(mask);
}

u32 element_bytes(Element type) {
    return type == Element::tf32 ? 4 : type == Element::f16 || type == Element::bf16 ? 2 : 1;
}

void select_wgmma_mma(const Choice& c, Instruction& i) {
    WgmmaForm f{};
    f.n = static_cast<u16>(shape_of(c).n);
    const Type d = c.type(0);
    f.d = d == Type::f16 ? Accumulator::f16 : d == Type::s32 ? Accumulator::s32 : Accumulator::f32;
    std::vector<Mod> kinds;
    for (const Mod mod : c.mods())
        if (mod == Mod::f16 || mod == Mod::bf16 || mod == Mod::tf32 || mod == Mod::e4m3 || mod == Mod::e5m2 ||
            mod == Mod::s8 || mod == Mod::u8 || mod == Mod::b1)
            kinds.push_back(mod);
    f.a = element_of(kinds[kinds.size() - 2]);
    f.b = element_of(kinds.back());
    if (kinds.back() == Mod::b1) f.add(WgmmaForm::single_bits);
    if (c.has(Mod::satfinite)) f.add(WgmmaForm::satfinite);
    const u32 registers = f.registers();
    // After D: A, B, scale-d, then the signs of A and B, then the transposes of those in shared memory.
    const bool in_registers = i.op[registers].bits == 32;
    if (in_registers) f.add(WgmmaForm::a_in_registers);
    const u32 signs = registers + (in_registers ? 6 : 3);
    const auto immediate = [&](u32 at, s64 low, s64 high, const char* what) {
        const s64 v = i.op[at].imm;
        if (v != low && v != high)
            throw SelectError(std::string(what) + " must be " + std::to_string(low) + " or " +
                                  std::to_string(high) + ", not " + std::to_string(v),
                              true);
        return v;
    };
    if (f.d != Accumulator::s32) {
        if (immediate(signs, -1, 1, "the scale of A") < 0) f.add(WgmmaForm::negate_a);
        if (immediate(signs + 1, -1, 1, "the scale of B") < 0) f.add(WgmmaForm::negate_b);
    }
    u32 next = signs + 2;
    if (f.a == Element::f16 || f.a == Element::bf16) {
        if (!in_registers && immediate(next++, 0, 1, "the transpose of A") == 1)
            f.add(WgmmaForm::transpose_a);
        if (immediate(next, 0, 1, "the transpose of B") == 1) f.add(WgmmaForm::transpose_b);
    }
    i.aux = std::bit_cast<u64>(f);
    i.run = mma;
}
void select_wgmma_fence(const Choice&, Instruction& i) {
    i.run = fence;
}
void select_wgmma_commit(const Choice&, Instruction& i) {
    i.run = commit;
}
void select_wgmma_wait(const Choice&, Instruction& i) {
    i.run = wait;
}

}  // namespace emu
