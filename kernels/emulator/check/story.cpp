#include "check/story.hpp"

#include <cstring>
#include <set>

#include "units/mbarrier.hpp"

namespace emu {
namespace {

constexpr std::size_t kMostNamed = 3;  // warps that a sentence lists
constexpr int kMostSteps = 4;          // of a chain from one wait to the next

std::string line_of(const Warp& warp, const Instruction& ins) {
    const Where at = warp.where(ins);
    return at.source_line > 0 ? "line " + std::to_string(at.source_line)
                              : "PTX line " + std::to_string(at.ptx_line);
}

mbarrier::State state_of(Cta& cta, std::uint32_t offset) {
    std::uint64_t word;
    std::memcpy(&word, cta.shared() + offset, 8);
    return mbarrier::unpack(word);
}

// What a warp stands at: "has exited", "waits for full[0] at line 48".
std::string stands(const Warp& warp) {
    if (warp.splits().empty()) return "has exited";
    for (const Split& s : warp.splits()) {
        const std::string at = " at " + line_of(warp, warp.kernel().code[s.pc]);
        switch (s.wait.kind) {
            case Wait::Kind::none:
                continue;
            case Wait::Kind::mbarrier:
                return "waits for " + warp.cta().object_at(s.wait.number & kOffsetMask) + at;
            case Wait::Kind::barrier:
                return "waits at barrier " + std::to_string(s.wait.number) + at;
            case Wait::Kind::cluster:
                return "waits at the cluster barrier" + at;
            default:
                return "waits" + at;
        }
    }
    return "could run";
}

const Split* waits_for_mbarrier(const Warp& warp) {
    for (const Split& s : warp.splits())
        if (s.wait.kind == Wait::Kind::mbarrier) return &s;
    return nullptr;
}

std::string bytes_story(const MbarrierInfo& info) {
    std::string text;
    if (info.announcement.warp != nullptr && info.announced != 0)
        text += " " + who(*info.announcement.warp) + " announced " + std::to_string(info.announced) +
                " bytes in this phase, last at " + line_of(*info.announcement.warp, *info.announcement.ins) +
                ".";
    if (info.copy.warp != nullptr && info.landed != 0)
        text += " Copies brought " + std::to_string(info.landed) + " bytes, last that of " +
                line_of(*info.copy.warp, *info.copy.ins) + ".";
    return text;
}

// The waiter's own mistakes with the phase.
std::string parity_story(const Split& s, const Warp& warp, const MbarrierInfo& info) {
    const auto last = std::ranges::find(info.passes, &warp, &MbarrierInfo::Visit::warp);
    if (last == info.passes.end()) {
        if (info.completed < 2 || s.wait.value != 0) return {};
        return " " + std::to_string(info.completed) + " phases have been completed before " + who(warp) +
               " came to wait for the first time: it has missed the first one.";
    }
    const std::uint32_t next = last->phase;  // phases count from 0; `next` is the first it has not passed
    if (next >= info.completed) return {};
    if ((next & 1) == s.wait.value)
        return " " + who(warp) + " wants phase " + std::to_string(next) + ", but phases " +
               std::to_string(next) + " to " + std::to_string(info.completed - 1) +
               " have all been completed since its last wait: it has missed them, and a parity tells only "
               "the "
               "latest from the one before.";
    return " " + who(warp) + " waits for the same parity as at its last wait (" + line_of(warp, *last->ins) +
           "): was it not flipped?";
}

// Who has arrived before, but not in this phase.
std::vector<const MbarrierInfo::Visit*> missing(const MbarrierInfo& info) {
    std::vector<const MbarrierInfo::Visit*> all;
    for (const MbarrierInfo::Visit& v : info.arrivals)
        if (v.phase < info.completed) all.push_back(&v);
    return all;
}

std::string arrivals_story(Cta& cta, std::uint32_t offset,
                           std::set<std::pair<std::uint32_t, std::uint32_t>>& told) {
    told.insert({cta.rank, offset});
    const MbarrierInfo& info = cta.mbarriers[offset];
    const std::string name = cta.object_at(offset);
    if (info.arrivals.empty()) return " No thread has ever arrived at " + name + ".";
    std::string text;
    const auto absent = missing(info);
    for (std::size_t i = 0; i < std::min(absent.size(), kMostNamed); ++i) {
        const MbarrierInfo::Visit& v = *absent[i];
        text += " " + who(*v.warp) + " arrived at " + name + " last in phase " + std::to_string(v.phase) +
                ", at " + line_of(*v.warp, *v.ins) + "; it " + stands(*v.warp) + ".";
    }
    if (absent.size() > kMostNamed)
        text += " So it is with " + plural(absent.size() - kMostNamed, "more warp") + ".";
    // From the first of them to what it waits for in turn.
    if (absent.empty() || told.size() > kMostSteps) return text;
    const Warp& next = *absent.front()->warp;
    const Split* const wait = waits_for_mbarrier(next);
    if (wait == nullptr) return text;
    const std::uint32_t there = wait->wait.number & kOffsetMask;
    if (told.contains({next.cta().rank, there})) return text + " They wait for each other.";
    const mbarrier::State m = state_of(next.cta(), there);
    text += " " + next.cta().object_at(there) + " in turn lacks ";
    text += m.pending > 0 ? plural(m.pending, "arrival") : std::to_string(m.tx) + " bytes";
    return text + "." +
           (m.pending > 0 ? arrivals_story(next.cta(), there, told)
                          : bytes_story(next.cta().mbarriers[there]));
}

// Some have arrived, but not all.
std::string partial_story(const Cta& cta, const MbarrierInfo& info, const mbarrier::State& m,
                          std::uint32_t offset) {
    if (m.pending == m.expected) return {};
    std::string text = " Of " + plural(m.expected, "arrival") + " at " + cta.object_at(offset) + ", " +
                       std::to_string(m.expected - m.pending) + " came";
    std::size_t named = 0;
    for (const MbarrierInfo::Visit& v : info.arrivals)
        if (v.phase == info.completed && ++named <= kMostNamed)
            text += (named == 1 ? ": " : ", ") + who(*v.warp) + " at " + line_of(*v.warp, *v.ins);
    return text + (named > kMostNamed ? " and others" : "") + "; is the count of mbarrier.init right?";
}

std::string mbarrier_story(const Split& s, Warp& warp) {
    Cta& cta = warp.cta();
    const std::uint32_t offset = s.wait.number & kOffsetMask;
    const MbarrierInfo& info = cta.mbarriers[offset];
    const mbarrier::State m = state_of(cta, offset);
    std::set<std::pair<std::uint32_t, std::uint32_t>> told;
    if (m.pending == 0 && m.tx > 0)
        return "All arrivals are in, but " + std::to_string(m.tx) +
               " bytes were announced (expect_tx) that no copy will bring: is the byte count too large, or a "
               "copy missing?" +
               bytes_story(info);
    if (m.pending == 0 && m.tx < 0)
        return "All arrivals are in, but copies brought " + std::to_string(-m.tx) +
               " bytes more than were announced: is the byte count of expect_tx too small?" +
               bytes_story(info);
    if (m.tx < 0)
        return "Copies brought " + std::to_string(-m.tx) + " bytes that nobody announced, and " +
               plural(m.pending, "arrival") + " is missing: was arrive.expect_tx forgotten?" +
               bytes_story(info) + arrivals_story(cta, offset, told);
    if (m.tx > 0)
        return plural(m.pending, "arrival") + " missing, and " + std::to_string(m.tx) +
               " bytes announced that no copy will bring." + bytes_story(info) +
               arrivals_story(cta, offset, told);
    const std::string text =
        info.completed == 0
            ? "The barrier has never completed a phase: " + plural(m.pending, "arrival") +
                  " missing. A wait for parity 1 of a fresh barrier passes at once; is the parity wrong?"
            : plural(m.pending, "arrival") +
                  " missing, and nobody who could still run arrives: is the parity wrong, or an arrive "
                  "missing?";
    return text + parity_story(s, warp, info) + partial_story(cta, info, m, offset) +
           arrivals_story(cta, offset, told);
}

// The warps that are not where `here` holds, and where they are.
template <class F>
std::string absent_story(const Cta& cta, F here) {
    std::string text;
    std::size_t named = 0;
    for (const auto& warp : cta.warps) {
        if (std::ranges::any_of(warp->splits(), here)) continue;
        if (++named <= kMostNamed) text += " " + who(*warp) + " " + stands(*warp) + ".";
    }
    if (named > kMostNamed) text += " So it is with " + plural(named - kMostNamed, "more warp") + ".";
    return text;
}

std::string barrier_story(const Split& s, const Cta& cta) {
    const NamedBarrier& b = cta.barriers[s.wait.number];
    const auto here = [&](const Split& other) {
        return other.wait.kind == Wait::Kind::barrier && other.wait.number == s.wait.number;
    };
    if (b.expected == 0)
        return "Some threads of the block never reach the barrier that the others stand at." +
               absent_story(cta, here);
    return "Barrier " + std::to_string(s.wait.number) + " waits for " +
           plural(b.expected - b.arrived, "more thread") +
           ", and no warp that could still run arrives there." + absent_story(cta, here);
}

std::string cluster_story(const Warp& warp) {
    std::string text = "Some threads of the cluster have neither arrived at the cluster barrier nor exited.";
    for (const auto& cta : warp.cta().cluster().ctas())
        text += absent_story(*cta, [](const Split& s) { return s.wait.kind == Wait::Kind::cluster; });
    return text;
}

std::string sentences(const Split& s, Warp& warp) {
    switch (s.wait.kind) {
        case Wait::Kind::mbarrier:
            return mbarrier_story(s, warp);
        case Wait::Kind::barrier:
            return barrier_story(s, warp.cta());
        case Wait::Kind::cluster:
            return cluster_story(warp);
        case Wait::Kind::registers:
            return "setmaxnreg.inc waits for registers that no other warpgroup gives away: do the budgets of "
                   "all "
                   "warpgroups add up to more than the launch gave?";
        case Wait::Kind::multiplies:
            return "A wgmma is executed by all four warps of a warpgroup, and one of them never comes to it.";
        default:
            return {};
    }
}

}  // namespace

std::string plural(std::uint64_t n, const std::string& thing) {
    return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

std::string who(const Warp& warp) {
    std::string text = "warp " + std::to_string(warp.number());
    if (!warp.role().empty()) text += " (" + std::string(warp.role()) + ")";
    if (warp.cta().cluster().ctas().size() > 1) text += " of CTA " + std::to_string(warp.cta().rank);
    return text;
}

int suspicion(const Split& s, Warp& warp) {
    if (s.wait.kind == Wait::Kind::none) return 0;
    if (s.wait.kind != Wait::Kind::mbarrier) return 1;
    const std::uint32_t offset = s.wait.number & kOffsetMask;
    const mbarrier::State m = state_of(warp.cta(), offset);
    if (m.tx != 0) return m.pending == 0 ? 6 : 5;
    if (!parity_story(s, warp, warp.cta().mbarriers[offset]).empty()) return 4;
    return m.pending < m.expected ? 3 : 2;
}

std::string story(const Split& s, Warp& warp) {
    std::string text = sentences(s, warp);
    for (std::size_t i = 2; i < text.size(); ++i)
        if (text[i - 1] == ' ' && (text[i - 2] == '.' || text[i - 2] == '?'))
            text[i] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[i])));
    return text;
}

}  // namespace emu
