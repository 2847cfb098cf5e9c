// The beginning and the end of CTAs: who reaches into another CTA must know that it runs, and nothing may be
// going on in the shared memory of one that ends.
#include <bit>

#include "check/monitor.hpp"
#include "check/story.hpp"

namespace emu {

void Monitor::visits(Warp& w, const Instruction& ins, std::uint32_t lanes, Cta& cta) {
    WarpState& s = state(w);
    CtaState& there = state(cta);
    const Act act{w, ins, lanes, false};
    const std::string name = "CTA " + std::to_string(cta.rank);
    if (there.ended)
        report("remote-exited", act,
               who(w) + " reaches into the shared memory of " + name + ", which has exited",
               "Let every CTA of the cluster wait at a cluster barrier before it exits.",
               "shared memory of " + name);
    if ((s.started >> cta.rank & 1) != 0) return;
    for (const auto& warp : cta.warps)
        if (s.now.known[state(*warp).self] > 0) {
            s.started |= 1u << cta.rank;
            return;
        }
    report("remote-start", act,
           who(w) + " reaches into the shared memory of " + name + ", which may not have started yet",
           "Wait at a cluster barrier before the first access to another CTA.", "shared memory of " + name);
}

void Monitor::exited(Warp& w) {
    WarpState& s = state(w);
    state(w.cta()).exited.join(s.now);
    cluster_barrier_.coming.join(s.now);
    cluster_arrivals_.raise(s.self, s.now.known[s.self]);
    tick(s);
    if (w.cta().live_threads() == 0) ended(w, w.cta());
}

void Monitor::ended(Warp& w, Cta& cta) {
    CtaState& c = state(cta);
    c.ended = true;
    check::Clock known = c.exited.known;  // what all of its warps together know
    const Instruction& last = w.kernel().code[w.split().pc];
    const std::string name = ctas_.size() > 1 ? "CTA " + std::to_string(cta.rank) : "The CTA";
    for (Agent number = 0; number < agents_.size(); ++number) {
        const AgentInfo& agent = agents_[number];
        const bool here =
            agent.kind == AgentInfo::Kind::mbarrier ? agent.rank == cta.rank : &agent.warp->cta() == &cta;
        const Time needed = here ? agent.last.time() : c.sources[number];
        if (agent.last.none() || known[number] >= needed) continue;
        const Instruction& ins = instruction(agent.last);
        const Act act{*agent.last_issuer, ins, 0, false};
        const std::string what =
            "the operation '" + w.text(ins) + "' that " + who(*agent.last_issuer) + " issued";
        if (agent.kind == AgentInfo::Kind::mbarrier)
            report("exit-pending", act, name + " exits although nobody has waited for " + what,
                   "It completes on mbarrier " + cta.object_at(agent.offset) +
                       "; wait for that phase before the CTA ends.",
                   cta.object_at(agent.offset));
        else
            report("exit-pending", act, name + " exits while " + what + " may still use its shared memory",
                   std::string("Wait for it with ") +
                       (agent.kind == AgentInfo::Kind::bulk    ? "cp.async.bulk.wait_group.read 0"
                        : agent.kind == AgentInfo::Kind::wgmma ? "wgmma.wait_group 0"
                                                               : "cp.async.wait_group 0") +
                       " in the thread that issued it.",
                   "shared memory");
    }
    for (const auto& op : cluster_.queue().operations())
        for (const Region& r : op->writes)
            if (r.where == Region::Where::shared && r.rank == cta.rank)
                report("exit-pending", {*op->issuer, *op->ins, op->lanes, true, r.bytes, op.get()},
                       name + " exits while the operation '" + op->issuer->text(*op->ins) + "' that " +
                           who(*op->issuer) + " issued is still writing to " +
                           cta.object_at(static_cast<std::uint32_t>(r.address)),
                       "Wait for it before the CTA ends.",
                       cta.object_at(static_cast<std::uint32_t>(r.address)));
    for (const WarpState& other : warps_) {
        const Time visit = c.touched[other.self];
        if (visit <= known[other.self] || visit <= c.passed[other.self]) continue;
        report("remote-exited", {w, last, 0, false},
               name + " exits although nothing orders that after the accesses of " +
                   who(*agents_[other.self].warp) + " to its shared memory",
               "Let every CTA of the cluster wait at a cluster barrier before it exits.", "shared memory");
    }
}

void Monitor::turn_ended() {
    if (postponed_ && ++turns_postponed_ > 64 * warps_.size()) say_postponed();
}
void Monitor::say_postponed() {
    if (postponed_) throw *postponed_;
}

void Monitor::add_postponed(KernelTrap& trap) const {
    if (!postponed_ || trap.rule == postponed_->rule || trap.rule == "race" || trap.rule == "proxy") return;
    static_cast<std::runtime_error&>(trap) =
        std::runtime_error(std::string(trap.what()) + "\nBefore that: " + postponed_->what());
}

void Monitor::nothing_runs() {
    for (const auto& cta : cluster_.ctas())
        for (const auto& warp : cta->warps)
            for (const Split& split : warp->splits()) {
                const Instruction& ins = warp->kernel().code[split.pc];
                if (split.wait.kind != Wait::Kind::converge) continue;
                report("aligned-divergence", {*warp, ins, split.mask, false},
                       "'" + warp->text(ins) + "' is executed by " +
                           std::to_string(std::popcount(split.mask)) + " of the " +
                           std::to_string(std::popcount(warp->alive())) + " lanes of " + who(*warp) +
                           ", but it is .aligned: all lanes of a warp must execute it together",
                       "Move it out of the branch, or use the form without .aligned (barrier.sync).", "");
            }
}

}  // namespace emu
