// The checks in words: one sentence, who and where, the other side, and what would put it right.
#include <bit>
#include <string_view>

#include "check/monitor.hpp"
#include "check/story.hpp"

namespace emu {
namespace {

std::string_view category(std::string_view rule) {
    return rule == "race" || rule == "proxy" ? rule : rule == "uninitialized" ? "init" : "barrier";
}

const char* name_of(AsyncKind kind) {
    switch (kind) {
        case AsyncKind::cp_async:
        case AsyncKind::cp_async_arrive:
            return "cp.async";
        case AsyncKind::bulk_load:
            return "bulk copy";
        case AsyncKind::bulk_store:
            return "bulk store";
        case AsyncKind::bulk_reduce:
            return "bulk reduction";
        case AsyncKind::tensor_load:
            return "tensor load";
        case AsyncKind::tensor_store:
            return "tensor store";
        case AsyncKind::tensor_reduce:
            return "tensor reduction";
        case AsyncKind::st_async:
            return "st.async";
        case AsyncKind::red_async:
            return "red.async";
        case AsyncKind::wgmma:
            return "wgmma";
    }
    return "operation";
}

}  // namespace

std::string Monitor::name(AsyncKind kind, const Warp& issuer) const {
    return std::string("a ") + name_of(kind) + " of " + who(issuer);
}

std::string Monitor::does(const Act& act) const {
    const std::string actor = act.op != nullptr ? name(act.op->kind, act.warp) : who(act.warp);
    return actor + (act.writes ? " writes " : " reads ");
}

const Instruction& Monitor::instruction(Epoch e) const {
    return cluster_.grid().kernel.code[e.pc()];
}

// Where the thread that issued an operation should have waited for it.
std::string Monitor::completion(AsyncKind kind, const Warp& issuer, const AgentInfo* agent,
                                const AsyncOp* op) const {
    const bool signals = op != nullptr && op->signal.any();
    if (signals || (agent != nullptr && agent->kind == AgentInfo::Kind::mbarrier)) {
        const std::uint32_t rank = signals ? op->signal.rank : agent->rank,
                            offset = signals ? op->signal.offset : agent->offset;
        return "It completes on mbarrier " + cluster_.cta(rank)->object_at(offset) +
               ": wait for that phase before, or synchronise with a warp that has.";
    }
    const Groups group = groups_of(kind).value_or(Groups::bulk);
    const std::string wait = group == Groups::bulk       ? "cp.async.bulk.wait_group.read"
                             : group == Groups::cp_async ? "cp.async.wait_group"
                                                         : "wgmma.wait_group";
    std::string text =
        "Wait with " + wait + " in the thread that issued it, then synchronise with whoever comes next.";
    const auto& own = state(issuer).groups[static_cast<std::size_t>(group)];
    if (own != nullptr && own->idle_waits != 0)
        text += " " + wait + " was executed by lane " + std::to_string(std::countr_zero(own->idle_waits)) +
                ", which had committed no group: a thread waits only for groups that it has closed itself.";
    return text;
}

Monitor::Earlier Monitor::earlier(Epoch e) const {
    const AgentInfo* const agent = e.agent() < agents_.size() ? &agents_[e.agent()] : nullptr;
    if (agent != nullptr && agent->kind == AgentInfo::Kind::warp) return {agent->warp, who(*agent->warp), {}};
    const AsyncOp* op = nullptr;
    for (const auto& flying : cluster_.queue().operations())
        if (e.agent() == check::kInFlight && (flying->id & check::kTimeMask) == e.time()) op = flying.get();
    const Warp* const issuer = op != nullptr                                       ? op->issuer
                               : agent != nullptr && agent->last_issuer != nullptr ? agent->last_issuer
                                                                                   : agents_.front().warp;
    const auto kind = kinds_.find(e.pc());
    const AsyncKind known = kind != kinds_.end() ? kind->second : AsyncKind::bulk_load;
    return {issuer, name(known, *issuer), completion(known, *issuer, agent, op)};
}

void Monitor::clash(const Act& act, const Cta& cta, std::uint32_t offset, Epoch e, Clash what) const {
    const std::string object = cta.object_at(offset);
    if (what == Clash::barrier) {
        report("barrier-overwrite", act, does(act) + object + ", where a live mbarrier lies",
               "Keep data away from it, or end its life with mbarrier.inval first.", object, e);
        return;
    }
    const bool read = what == Clash::read;
    const Earlier before = earlier(e);
    const std::string race = "Race on " + object + ": " + does(act) + "it";
    if (!before.completion.empty())
        report("race", act,
               race + " while " + before.text + " may still " + (read ? "read" : "write") + " it",
               before.completion, object, e, before.warp);
    else
        report(
            "race", act,
            race + ", and nothing orders that after the " + (read ? "read by " : "write by ") + before.text,
            read ? "Let " + before.text +
                       " arrive at a barrier or mbarrier when it has read, and wait for that before writing."
                 : "Put a barrier between: __syncthreads(), or an mbarrier at which " + before.text +
                       " arrives and for which the other side waits.",
            object, e, before.warp);
}

void Monitor::unfenced(const Act& act, const Cta& cta, std::uint32_t offset, Epoch e) const {
    const std::string object = cta.object_at(offset);
    const Earlier before = earlier(e);
    report("proxy", act,
           "Missing proxy fence on " + object + ": " + does(act) + "what " + before.text +
               " wrote through the generic proxy, without fence.proxy.async between",
           "Execute fence.proxy.async after the writes, in every thread that wrote, before the barrier.",
           object, e, before.warp);
}

void Monitor::unwritten(const Act& act, const std::string& object, const std::string& where) const {
    report("uninitialized", act,
           "Uninitialised memory: " + does(act) + object + " (" + where +
               "), where nothing has been written yet",
           "Write it first; is a loop too short, a copy missing, or a wait for the copy?", object);
}

void Monitor::unwritten(const Act& act, const Cta& cta, std::uint32_t offset) {
    const bool first = !postponed_;
    unwritten(act, cta.object_at(offset), "shared memory");
    if (first && postponed_) postponed_place_ = cta.rank << kRankShift | offset;
}

void Monitor::write_comes(const Act& act, const Cta& cta, std::uint32_t offset, std::uint32_t bytes) {
    if (!postponed_place_ || *postponed_place_ - (cta.rank << kRankShift | offset) >= bytes) return;
    postponed_place_.reset();
    static_cast<std::runtime_error&>(*postponed_) =
        std::runtime_error(std::string(postponed_->what()) + " Later " + does(act) + "it, at " +
                           describe(act.warp.where(act.ins)) + ".");
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
