// The report when nothing can run any more: who waits on what, and what that still lacks.
#include <cstdio>
#include <cstring>

#include "check/story.hpp"
#include "units/mbarrier.hpp"

namespace emu {
namespace {

std::string mbarrier_line(const Cta& cta, Warp& warp, const Wait& wait) {
    std::uint64_t word;
    const std::uint32_t offset = wait.number & kOffsetMask;
    std::memcpy(&word, warp.cta().shared() + offset, 8);
    const mbarrier::State s = mbarrier::unpack(word);
    std::string text = "mbarrier at shared offset " + std::to_string(offset) + " (" + cta.object_at(offset) +
                       "), parity " + std::to_string(wait.value) + ": phase parity " +
                       std::to_string(s.phase) + ", " + std::to_string(s.pending) + " of " +
                       plural(s.expected, "arrival") + " pending, " + std::to_string(s.tx) + " bytes owed";
    return text;
}

// The warps of the warpgroup that have not begun a multiply which this one waits for.
std::string missing_mates(const Cta& cta, Warp& warp, const Wait& wait) {
    const std::uint64_t number = warp.multiplies().awaited(wait.value);
    const auto group = static_cast<std::size_t>(warp.number() / 4);
    const Warpgroup& mates = cta.warpgroups[group];
    std::string text;
    for (std::size_t w = 0; w < 4; ++w)
        if (mates.issued[w] < number)
            text += (text.empty() ? "" : ", ") + ("warp " + std::to_string(4 * group + w)) +
                    " has executed " + std::to_string(mates.issued[w]) + " of " + plural(number, "wgmma");
    return text;
}

std::string waits_on(const Cta& cta, Warp& warp, const Split& s) {
    switch (s.wait.kind) {
        case Wait::Kind::warp_sync: {
            char members[16];
            std::snprintf(members, sizeof members, "0x%08x", s.wait.number & warp.alive() & ~s.mask);
            return std::string("warp-level sync: lanes ") + members + " have not come";
        }
        case Wait::Kind::barrier: {
            const NamedBarrier& b = cta.barriers[s.wait.number];
            const std::uint32_t needed = b.expected != 0 ? b.expected : cta.live_threads();
            return "barrier " + std::to_string(s.wait.number) + ": " + std::to_string(b.arrived) + " of " +
                   plural(needed, "thread") + " have come";
        }
        case Wait::Kind::mbarrier:
            return mbarrier_line(cta, warp, s.wait);
        case Wait::Kind::cluster: {
            std::uint32_t live = 0;
            for (const auto& other : cta.cluster().ctas())
                live += other->live_threads();
            return "cluster barrier: " + std::to_string(cta.cluster().cluster_arrived) + " of " +
                   plural(live, "thread") + " have come";
        }
        case Wait::Kind::copies:
            return "its own copy groups";
        case Wait::Kind::multiplies:
            return "its multiplies: " + missing_mates(cta, warp, s.wait);
        case Wait::Kind::converge:
            return "the other lanes of its warp";
        case Wait::Kind::registers:
            return "registers: it needs " + std::to_string(s.wait.value) + " more, and " +
                   std::to_string(cta.free_registers) + " of the CTA's are free";
        case Wait::Kind::grid:
            return "the grid before this one";
        case Wait::Kind::none:
            return "nothing";
    }
    return {};
}

Waiting waiting(const Cta& cta, Warp& warp, const Split& s, const Where& at) {
    static constexpr const char* kKinds[] = {"none",   "warp",       "barrier", "mbarrier", "cluster",
                                             "copies", "multiplies", "warp",    "registers"};
    Waiting w{cta.rank, warp.number(), s.mask, kKinds[static_cast<int>(s.wait.kind)], {}};
    w.where = at;
    if (s.wait.kind == Wait::Kind::barrier) {
        const NamedBarrier& b = cta.barriers[s.wait.number];
        w.object = std::to_string(s.wait.number);
        w.expected = b.expected != 0 ? b.expected : cta.live_threads();
        w.pending = w.expected - b.arrived;
    }
    if (s.wait.kind != Wait::Kind::mbarrier) return w;
    w.offset = s.wait.number & kOffsetMask;
    std::uint64_t word;
    std::memcpy(&word, warp.cta().shared() + w.offset, 8);
    const mbarrier::State m = mbarrier::unpack(word);
    w.object = cta.object_at(w.offset), w.parity = s.wait.value, w.phase = m.phase, w.pending = m.pending;
    w.expected = m.expected, w.tx = m.tx, w.completed = warp.cta().mbarriers[w.offset].completed;
    return w;
}

}  // namespace

Deadlock deadlock_report(Cluster& cluster) {
    std::string table;
    std::vector<Waiting> waits;
    const Split* first = nullptr;
    Warp* first_warp = nullptr;
    int most = -1;
    for (const auto& cta : cluster.ctas())
        for (const auto& warp : cta->warps)
            for (const Split& s : warp->splits()) {
                const Instruction& ins = warp->kernel().code[s.pc];
                char lanes[16];
                std::snprintf(lanes, sizeof lanes, "0x%08x", s.mask);
                const Where at = warp->where(ins);
                waits.push_back(waiting(*cta, *warp, s, at));
                table += "\n  CTA " + std::to_string(cta->rank) + " warp " + std::to_string(warp->number()) +
                         (warp->role().empty() ? "" : " (" + std::string(warp->role()) + ")") + " lanes " +
                         lanes + " at " +
                         (at.source_line > 0 ? "source line " + std::to_string(at.source_line) + ", "
                                             : std::string()) +
                         "PTX line " + std::to_string(ins.ptx_line) + " ('" + warp->text(ins) +
                         "') waits on " + waits_on(*cta, *warp, s);
                if (const int now = suspicion(s, *warp); now > most)
                    first = &s, first_warp = warp.get(), most = now;
            }
    const Where at = first_warp->where(first_warp->kernel().code[first->pc]);
    std::string text = "Deadlock: no warp can run and no copy is in flight: " + describe(at) + table;
    if (const std::string why = story(*first, *first_warp); !why.empty()) text += "\n" + why;
    Deadlock error(text, at);
    error.waits = std::move(waits);
    for (std::size_t i = 0; i < 3; ++i)
        error.cta[i] = first_warp->cta().id[i];
    error.warp = first_warp->number();
    error.role = first_warp->role();
    error.rule = "deadlock";
    return error;
}

}  // namespace emu
