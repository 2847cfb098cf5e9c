// The checks in words: one sentence, who and where, the other side, and what would put it right.
#include <bit>
#include <string_view>

#include "check/monitor.hpp"

namespace emu {
namespace {

std::string_view category(std::string_view rule) {
    return rule == "race" || rule == "proxy" ? rule : rule == "uninitialized" ? "init" : "barrier";
}

}  // namespace

std::string Monitor::who(const Warp& w) const {
    std::string text = "warp " + std::to_string(w.number());
    if (!w.role().empty()) text += " (" + std::string(w.role()) + ")";
    if (ctas_.size() > 1) text += " of CTA " + std::to_string(w.cta().rank);
    return text;
}

std::string Monitor::does(const Act& act) const {
    const char* const verb = act.writes ? " writes " : " reads ";
    if (act.op != nullptr)
        return "the operation '" + act.warp.text(act.ins) + "' that " + who(act.warp) + " issues" + verb;
    return who(act.warp) + verb;
}

const Instruction& Monitor::instruction(Epoch e) const {
    return cluster_.grid().kernel.code[e.pc()];
}

const AsyncOp* Monitor::in_flight(Epoch e) const {
    if (e.agent() != check::kInFlight) return nullptr;
    for (const auto& op : cluster_.queue().operations())
        if ((op->id & 0x7fffffff) == e.time()) return op.get();
    return nullptr;
}

Monitor::Earlier Monitor::earlier(Epoch e, bool read) const {
    const AsyncOp* const op = in_flight(e);
    const AgentInfo* const agent = e.agent() < agents_.size() ? &agents_[e.agent()] : nullptr;
    const Warp* warp = op != nullptr ? op->issuer : agent == nullptr ? nullptr : agent->warp;
    if (agent != nullptr && agent->last_issuer != nullptr) warp = agent->last_issuer;
    if (warp == nullptr) warp = cluster_.ctas().front()->warps.front().get();
    const Instruction& ins = instruction(e);
    const std::string name = "'" + warp->text(ins) + "'";
    using Kind = AgentInfo::Kind;
    if (agent != nullptr && agent->kind == Kind::warp)
        return {warp, who(*warp) + (read ? " read" : " wrote"),
                read ? "Let " + who(*warp) +
                           " arrive at a barrier or mbarrier after reading, and wait there before this "
                           "access."
                     : "Put a barrier between them: __syncthreads(), or an mbarrier at which " + who(*warp) +
                           " arrives and for which this warp waits."};
    std::string fix;
    const Signal signal = op != nullptr ? op->signal : Signal{};
    if (signal.any() || (agent != nullptr && agent->kind == Kind::mbarrier)) {
        const std::uint32_t rank = signal.any() ? signal.rank : agent->rank,
                            offset = signal.any() ? signal.offset : agent->offset;
        fix = "It completes on mbarrier " + cluster_.cta(rank)->object_at(offset) +
              ": wait for that phase before this access, or synchronise with a warp that has.";
    } else {
        const Kind kind = agent != nullptr                  ? agent->kind
                          : op == nullptr                   ? Kind::bulk
                          : op->kind == AsyncKind::cp_async ? Kind::cp_async
                          : op->kind == AsyncKind::wgmma    ? Kind::wgmma
                                                            : Kind::bulk;
        const char* const wait = kind == Kind::bulk       ? "cp.async.bulk.wait_group.read"
                                 : kind == Kind::cp_async ? "cp.async.wait_group"
                                                          : "wgmma.wait_group";
        fix = std::string("Wait with ") + wait +
              " in the thread that issued it, then synchronise with the warp that "
              "comes next.";
        const auto group = static_cast<std::size_t>(kind == Kind::bulk       ? Groups::bulk
                                                    : kind == Kind::cp_async ? Groups::cp_async
                                                                             : Groups::wgmma);
        const auto& state =
            warps_[warp->cta().rank * warps_per_cta_ + static_cast<std::uint32_t>(warp->number())];
        if (state.groups[group] != nullptr && state.groups[group]->idle_waits != 0)
            fix += std::string(" ") + wait + " was executed by lane " +
                   std::to_string(std::countr_zero(state.groups[group]->idle_waits)) +
                   ", which has issued nothing: groups belong to the thread that commits them.";
    }
    return {warp,
            std::string("the operation ") + name + " that " + who(*warp) + " issued " +
                (read ? "reads" : "writes"),
            fix};
}

void Monitor::clash(const Act& act, const Cta& cta, std::uint32_t offset, Epoch e, Clash what) const {
    const std::string object = cta.object_at(offset);
    if (what == Clash::barrier) {
        report("barrier-overwrite", act, does(act) + object + ", where a live mbarrier lies",
               "Keep data away from it, or end its life with mbarrier.inval first.", object, e);
        return;
    }
    const bool read = what == Clash::read;
    const Earlier before = earlier(e, read);
    const bool still = before.text.ends_with("s");
    report("race", act,
           "Race on " + object + ": " + does(act) + "it, and nothing orders that after " +
               (still ? before.text + " it" : "the moment when " + before.text + " it"),
           before.fix, object, e, before.warp);
}

void Monitor::unfenced(const Act& act, const Cta& cta, std::uint32_t offset, Epoch e) const {
    const std::string object = cta.object_at(offset);
    const Earlier before = earlier(e, false);
    report("proxy", act,
           "Missing proxy fence on " + object + ": " + does(act) + "what " +
               (agents_[e.agent()].kind == AgentInfo::Kind::warp ? before.text : before.text) +
               " through the generic proxy, without fence.proxy.async between",
           "Execute fence.proxy.async after the writes, in every thread that wrote, before the barrier.",
           object, e, before.warp);
}

void Monitor::unwritten(const Act& act, const std::string& object, const std::string& where) const {
    report("uninitialized", act,
           "Uninitialised memory: " + does(act) + object + " (" + where +
               "), where nothing has been written yet",
           "Write it first; is a loop too short, or a copy missing?", object);
}

void Monitor::report(const char* rule, const Act& act, const std::string& sentence, const std::string& more,
                     const std::string& object, Epoch e, const Warp* other) const {
    const std::string_view kind = category(rule);
    if (kind == "race"    ? !checks_.race
        : kind == "proxy" ? !checks_.proxy
        : kind == "init"  ? !checks_.init
                          : !checks_.barrier)
        return;
    const Warp& w = act.warp;
    const Where here = w.where(act.ins);
    const auto triple = [](const std::array<std::uint32_t, 3>& v) {
        return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) + ")";
    };
    std::string text = sentence;
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    text += ": " + describe(here) + ", block " + triple(w.cta().id) + ", warp " + std::to_string(w.number());
    if (act.lanes != 0) text += ", thread " + triple(w.thread(std::countr_zero(act.lanes)));
    if (!e.none())
        text += ".\nThe earlier one: '" + w.text(instruction(e)) + "', " + describe(w.where(instruction(e)));
    text += ".\n" + more;
    KernelTrap error(text, here);
    for (std::size_t i = 0; i < 3; ++i)
        error.cta[i] = w.cta().id[i];
    error.rule = rule;
    error.role = w.role();
    error.warp = w.number();
    error.lanes = act.lanes;
    error.object = object;
    if (!e.none()) error.other = w.where(instruction(e));
    if (other != nullptr) error.other_warp = other->number();
    if (kind != "init") throw error;
    if (!postponed_) postponed_ = error;
}

}  // namespace emu
