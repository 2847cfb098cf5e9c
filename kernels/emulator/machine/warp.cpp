// The interpreter. Splits with the lowest program counter run first, so that lanes which went different ways
// meet again where the ways meet; a split that only spins lets the others run.
#include <algorithm>
#include <bit>
#include <cstring>

#include "check/monitor.hpp"
#include "machine/machine.hpp"
#include "machine/special.hpp"
#include "trace/log.hpp"
#include "units/mbarrier.hpp"

namespace emu {
namespace {

constexpr std::uint32_t kSpinLimit = 32;  // backward branches of one split while others could run

// Waits whose instruction simply runs again, with more lanes if others have arrived meanwhile.
bool may_merge(const Split& s) {
    return !s.resumed && (s.wait.kind == Wait::Kind::none || s.wait.kind == Wait::Kind::warp_sync ||
                          s.wait.kind == Wait::Kind::mbarrier || s.wait.kind == Wait::Kind::converge);
}

// What a wait is called in the event log, and the number of what it waits for.
Waited waited(const Wait& w) {
    switch (w.kind) {
        case Wait::Kind::mbarrier:
            return Waited::mbarrier;
        case Wait::Kind::barrier:
            return Waited::barrier;
        case Wait::Kind::cluster:
            return Waited::cluster;
        case Wait::Kind::multiplies:
            return Waited::wgmma;
        case Wait::Kind::copies:
            return !w.bulk ? Waited::copies : w.reads_only ? Waited::bulk_reads : Waited::bulk;
        default:
            return Waited::lanes;
    }
}

}  // namespace

Warp::Warp(Cta& cta, const Kernel& kernel, int number, std::uint32_t lanes)
    : cta_(cta), kernel_(kernel), log_(cta.cluster().log()), number_(number), lanes_(lanes), alive_(lanes) {
    splits_.push_back({.pc = kernel.entry, .mask = lanes});
    storage_ = std::make_unique<std::byte[]>(kernel.register_bytes + 64);
    registers_ = storage_.get() + (64 - reinterpret_cast<std::uintptr_t>(storage_.get()) % 64);
    bank_[0] = registers_;
    bank_[1] = kernel.constants.data();
    predicates_.assign(kernel.predicates, 0);
    predicates_[kPredTrue] = ~0u;
    if (kernel.local_bytes > 0) {
        local_ = std::make_unique_for_overwrite<std::byte[]>(local_stride() * 32);
        for (int lane = 0; lane < 32; ++lane)  // the rest is filled as calls take it
            std::memset(local(lane), 0xff, kernel.frame_bytes);
    }
    if (kernel.frame_slot != 0) {
        stack_ = std::make_unique<CallStack>();
        stack_->top.fill(kernel.frame_bytes);
    }
    fill_constants();
}

void Warp::fill_constants() {
    for (const WarpConstant& c : kernel_.warp_constants) {
        for (int lane = 0; lane < 32; ++lane) {
            const std::uint64_t v =
                c.kind == WarpConstant::Kind::special ? special_value(c.number, *this, lane)
                : c.kind == WarpConstant::Kind::frame ? 0
                                                      : (cta_.rank << kRankShift | c.number);
            if (c.bits == 64)
                reinterpret_cast<std::uint64_t*>(registers_ + c.slot)[lane] = v;
            else
                reinterpret_cast<std::uint32_t*>(registers_ + c.slot)[lane] = static_cast<std::uint32_t>(v);
        }
    }
}

std::uint64_t Warp::value(const Operand& o, int lane) const {
    return o.bits == 64 ? in<std::uint64_t>(o)[lane] : in<std::uint32_t>(o)[lane];
}

std::array<std::uint32_t, 3> Warp::thread(int lane) const {
    const auto& block = cta_.cluster().grid().launch.block;
    const std::uint32_t flat = static_cast<std::uint32_t>(number_ * 32 + lane);
    return {flat % block[0], flat / block[0] % block[1], flat / (block[0] * block[1])};
}

Step Warp::branch(std::uint32_t target, std::uint32_t mask) {
    Split& s = split();
    if (target <= s.pc) ++s.spins, loop_from = s.pc, loop_to = target;
    if (mask == s.mask) {
        s.pc = target;
        return Step::jump;
    }
    s.mask &= ~mask;
    const Split taken{.pc = target, .mask = mask, .spins = s.spins};
    ++s.pc;
    splits_.push_back(taken);
    return Step::jump;
}

Step Warp::scatter(const std::uint32_t* to, std::uint32_t mask) {
    Split& s = split();
    const std::uint32_t away = s.mask & ~mask, pc = s.pc, spins = s.spins;
    std::uint32_t left = mask;
    bool first = true;
    while (left != 0) {
        const std::uint32_t target = to[std::countr_zero(left)];
        std::uint32_t same = 0;
        for (int lane = 0; lane < 32; ++lane)
            same |= static_cast<std::uint32_t>((left >> lane & 1) != 0 && to[lane] == target) << lane;
        left &= ~same;
        Split next{.pc = target, .mask = same, .spins = spins};
        if (target <= pc) ++next.spins, loop_from = pc, loop_to = target;
        if (first)
            splits_[current_] = next, first = false;
        else
            splits_.push_back(next);
    }
    if (away != 0) splits_.push_back({.pc = pc + 1, .mask = away, .spins = spins});
    return Step::jump;
}

Step Warp::exit(std::uint32_t mask) {
    alive_ &= ~mask;
    if (monitor_ != nullptr) monitor_->exited(*this);
    // Who has exited counts as arrived at the cluster barrier, but not twice.
    Cluster& cluster = cta_.cluster();
    if (cluster_phase == cluster.cluster_generation)
        cluster.cluster_arrived -= static_cast<std::uint32_t>(std::popcount(mask & cluster_lanes));
    Split& s = split();
    s.mask &= ~mask;
    if (s.mask == 0)
        splits_.erase(splits_.begin() + static_cast<std::ptrdiff_t>(current_));
    else
        ++s.pc;
    cta_.thread_exited();
    return Step::jump;
}

bool Warp::gather(const Instruction& ins, std::uint32_t mask, std::uint32_t members) {
    if ((members & mask) != mask)
        trap(ins, mask & ~members,
             "'" + text(ins) + "' is executed by lanes that its member mask does not name");
    if ((members & alive_ & ~mask) == 0 || split().resumed) {
        split().resumed = false;
        return true;
    }
    split().wait = {.kind = Wait::Kind::warp_sync, .number = members};
    return false;
}

bool Warp::ready(const Split& s) const {
    const Wait& w = s.wait;
    switch (w.kind) {
        case Wait::Kind::none:
            return true;
        case Wait::Kind::warp_sync: {
            // All live members are here, or stand at another instruction of the same kind with the same mask.
            std::uint32_t there = 0;
            for (const Split& other : splits_)
                if (&other == &s ||
                    (other.wait.kind == Wait::Kind::warp_sync && other.wait.number == w.number &&
                     (kernel_.code[other.pc].aux & kMeetsElsewhere) != 0 &&
                     kernel_.code[other.pc].run == kernel_.code[s.pc].run))
                    there |= other.mask;
            return (w.number & alive_ & ~there) == 0;
        }
        case Wait::Kind::barrier:
            return cta_.barriers[w.number].generation != w.value;
        case Wait::Kind::mbarrier: {
            std::uint64_t word;
            std::memcpy(&word, cta_.shared() + (w.number & kOffsetMask), 8);
            return mbarrier::passed(word, static_cast<std::uint32_t>(w.value));
        }
        case Wait::Kind::converge:
            return s.mask == alive_;
        case Wait::Kind::cluster:
            return cta_.cluster().cluster_generation != w.value;
        case Wait::Kind::copies:
            for (int lane = 0; lane < 32; ++lane) {
                if ((s.mask >> lane & 1) == 0 || !copies_[w.bulk]) continue;
                const auto& groups = (*copies_[w.bulk])[static_cast<std::size_t>(lane)].committed;
                for (std::size_t g = 0; g + w.value < groups.size(); ++g)
                    for (const Done& d : w.reads_only ? groups[g].reads : groups[g].writes)
                        if (!*d) return false;
            }
            return true;
        case Wait::Kind::grid:
            return cta_.cluster().grid().may_go_on();
        case Wait::Kind::registers:
            return cta_.free_registers >= w.value;
        case Wait::Kind::multiplies: {
            // A multiply is the work of four warps: it ends for none before all have begun it.
            const Warpgroup& group = cta_.warpgroups[static_cast<std::size_t>(number_ / 4)];
            return multiplies_->settled(w.value) && group.all_issued(multiplies_->awaited(w.value));
        }
    }
    return true;
}

void Warp::merge() {
    for (std::size_t a = 0; a < splits_.size(); ++a)
        for (std::size_t b = a + 1; b < splits_.size();) {
            if (splits_[a].pc != splits_[b].pc || !may_merge(splits_[a]) || !may_merge(splits_[b])) {
                ++b;
                continue;
            }
            splits_[a].mask |= splits_[b].mask;
            splits_[a].wait = {};
            splits_.erase(splits_.begin() + static_cast<std::ptrdiff_t>(b));
        }
}

// Chooses the split to run; false where none can.
bool Warp::pick() {
    if (splits_.size() > 1) merge();
    std::array<bool, 32> can{};
    bool any = false, fresh = false;
    for (std::size_t i = 0; i < splits_.size(); ++i) {
        any |= can[i] = ready(splits_[i]);
        fresh |= can[i] && splits_[i].spins < kSpinLimit;
    }
    if (!any) return false;
    if (!fresh)
        for (Split& s : splits_)
            s.spins = 0;
    std::size_t best = splits_.size();
    for (std::size_t i = 0; i < splits_.size(); ++i) {
        if (!can[i] || splits_[i].spins >= kSpinLimit) continue;
        if (best == splits_.size() || splits_[i].pc < splits_[best].pc) best = i;
    }
    // Splits released together by one warp-level sync must all know before the first of them moves on.
    if (splits_[best].wait.kind == Wait::Kind::warp_sync) {
        const std::uint32_t members = splits_[best].wait.number;
        for (std::size_t i = 0; i < splits_.size(); ++i)
            if (splits_[i].wait.kind == Wait::Kind::warp_sync && splits_[i].wait.number == members && can[i])
                splits_[i].wait = {}, splits_[i].resumed = true;
    } else if (splits_[best].wait.kind != Wait::Kind::none) {
        const Wait& wait = splits_[best].wait;
        splits_[best].resumed = wait.kind != Wait::Kind::mbarrier && wait.kind != Wait::Kind::converge;
        if (log_ != nullptr && splits_[best].resumed &&
            wait.kind != Wait::Kind::multiplies) {  // who runs its instruction again says so itself
            log_->start(*this, splits_[best].pc, splits_[best].mask);
            log_->pass(waited(wait), wait.number, wait.value);
        }
        splits_[best].wait = {};
    }
    current_ = best;
    return true;
}

// Runs the current split until it parks, yields, splits, or comes to where another split stands.
template <bool Traced>
std::uint32_t Warp::run_split(std::uint32_t quantum) {
    const Instruction* const code = kernel_.code.data();
    std::uint32_t pc = split().pc, mask = split().mask, bound = ~0u, done = 0, busy = 0;
    for (const Split& other : splits_)
        if (&other != &split() && other.pc > pc) bound = std::min(bound, other.pc);
    const std::uint32_t width = static_cast<std::uint32_t>(std::popcount(mask));
    if constexpr (Traced) log_->start(*this, pc, mask);
    while (done < quantum && pc < bound) {
        const Instruction& ins = code[pc];
        std::uint32_t active = mask;
        ++done;
        if (ins.guard != kNoGuard) {
            const std::uint32_t p = predicates_[static_cast<std::size_t>(ins.guard)];
            active &= ins.guard_negated ? ~p : p;
            if (active == 0) {
                ++pc;
                continue;
            }
        }
        busy += active == mask ? width : static_cast<std::uint32_t>(std::popcount(active));
        splits_[current_].pc = pc;
        if constexpr (Traced) log_->at(pc, active);
        const Step step = ins.run(*this, ins, active);
        if (step == Step::next) {
            ++pc;
            continue;
        }
        if constexpr (Traced) {
            if (step != Step::park) log_->stop(pc + 1);
        }
        if (step == Step::jump) {
            const bool alone = splits_.size() == 1 && bound == ~0u;
            if (alone && splits_[0].mask == mask) {
                pc = splits_[0].pc;
                if constexpr (Traced) log_->start(*this, pc, mask);
                continue;
            }
            instructions += done, lane_instructions += busy;
            return done;
        }
        if (step == Step::yield) ++splits_[current_].pc;
        if (step == Step::park) {
            const Wait& wait = splits_[current_].wait;
            if constexpr (Traced) log_->wait(waited(wait), wait.number & kOffsetMask, wait.value);
            --done, busy -= static_cast<std::uint32_t>(std::popcount(active));
            // Lanes that the guard excludes do not wait with the others.
            splits_[current_].mask = active;
            if (active != mask) splits_.push_back({.pc = pc + 1, .mask = mask & ~active});
        }
        instructions += done, lane_instructions += busy;
        return step == Step::yield ? quantum : done;
    }
    splits_[current_].pc = pc;
    if constexpr (Traced) log_->stop(pc);
    instructions += done, lane_instructions += busy;
    return done;
}

Warp::State Warp::run(std::uint32_t quantum) {
    std::uint32_t done = 0;
    bool moved = false;
    while (done < quantum && !splits_.empty() && pick()) {
        const std::uint32_t ran =
            log_ == nullptr ? run_split<false>(quantum - done) : run_split<true>(quantum - done);
        moved |= ran > 0;
        // Parking without having run anything is no progress, but another split may still run.
        done += std::max(ran, 1u);
    }
    if (splits_.empty()) return State::finished;
    return moved ? State::progressed : State::blocked;
}

}  // namespace emu
