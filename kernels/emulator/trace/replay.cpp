#include "trace/replay.hpp"

#include <algorithm>
#include <deque>
#include <queue>

#include "trace/issue.hpp"
#include "trace/operations.hpp"
#include "trace/prepare.hpp"
#include "trace/rows.hpp"

namespace emu {
namespace {

using EventKind = Event::Kind;

struct Groups {
    std::vector<std::vector<std::uint32_t>> committed;
    std::vector<std::uint32_t> open;
};

struct WarpState {
    std::uint32_t cluster = 0, cta = 0, number = 0;  // cta: in the grid
    double t = 0, block = 0;                         // next issue; latest start in this straight line
    std::size_t next = 0;                            // in the stream
    std::uint32_t pc = 0, end = 0;                   // of the run that it is in
    std::uint32_t role = ~0u;
    double wait_from = 0;
    const Event* wait = nullptr;  // the latest that is not over
    bool blocked = false;         // handled once, before what it waits for was known
    bool passed = false, started = false;
    std::vector<double> registers, predicates;
    std::vector<Kind> origin;  // of the value in a register
    Kind stall = Kind::alu;    // what the latest start waited for
    std::deque<const Event*> accesses;
    std::array<Groups, 3> groups;
};

constexpr double kEndless = 100;

Actor actor(const WarpState& w, std::uint32_t operation = 0) {
    return {w.cta, w.number, operation, w.role};
}

class Replay {
  public:
    Replay(const EventLog& log, const Costs& costs, std::uint32_t resident)
        : log_(log),
          k_(costs),
          resident_(std::max(resident, 1u)),
          all_(prepare(log)),
          sms_(static_cast<std::size_t>(std::max(costs.sms, 1.0))),
          rows_(log, all_, out_) {
        charges_.reserve(log.code.size());
        for (const EventLog::Line& line : log.code)
            charges_.push_back(charge_of(line.kind, k_));
    }

    Timeline run() {
        std::size_t ctas = all_.clusters.size() * all_.cluster_size;
        warps_.resize(ctas * all_.warps);
        out_.ctas.resize(ctas);
        alive_.assign(ctas, all_.warps);
        for (const PreparedCluster& c : all_.clusters)
            for (std::uint32_t rank = 0; rank < c.log->ctas.size(); ++rank)
                out_.ctas[c.first_cta + rank] = {c.log->number, rank, 0, c.log->ctas[rank], 0, 0};
        for (PreparedCluster& c : all_.clusters) {
            operations_.emplace_back(c.log->operations.size());
            for (std::uint32_t i = 0; i < c.log->operations.size(); ++i)
                operations_.back()[i].id = i + 1, operations_.back()[i].cluster = c.log->number;
        }
        place(0);
        while (!queue_.empty()) {
            const auto [time, w] = queue_.top();
            queue_.pop();
            warps_[w].t = std::max(warps_[w].t, time);
            go_on(w);
        }
        finish();
        return std::move(out_);
    }

  private:
    using Entry = std::pair<double, std::uint32_t>;

    // ---- CTAs onto multiprocessors

    void place(double time) {
        while (next_cluster_ < all_.clusters.size()) {
            std::vector<std::uint32_t> chosen;
            std::vector<std::uint32_t> load(sms_.size());
            for (std::size_t s = 0; s < sms_.size(); ++s)
                load[s] = sms_[s].resident;
            const std::size_t size = all_.clusters[next_cluster_].log->ctas.size();
            while (chosen.size() < size) {
                const auto least = std::ranges::min_element(load);
                if (*least >= resident_) return;
                ++*least;
                chosen.push_back(static_cast<std::uint32_t>(least - load.begin()));
            }
            for (std::uint32_t rank = 0; rank < size; ++rank)
                start_cta(next_cluster_, rank, chosen[rank], time);
            ++next_cluster_;
        }
    }

    void start_cta(std::size_t cluster, std::uint32_t rank, std::uint32_t sm, double time) {
        const PreparedCluster& c = all_.clusters[cluster];
        const std::uint32_t cta = c.first_cta + rank;
        ++sms_[sm].resident;
        out_.ctas[cta] = {c.log->number, rank, sm, c.log->ctas[rank], time, time};
        for (std::uint32_t n = 0; n < all_.warps; ++n) {
            WarpState& w = warps_[std::size_t{cta} * all_.warps + n];
            w.cluster = static_cast<std::uint32_t>(cluster);
            w.cta = cta;
            w.number = n;
            w.t = w.block = time + k_.start_latency;
            w.started = true;
            w.registers.assign(log_.registers + 1, 0);
            w.origin.assign(log_.registers + 1, Kind::alu);
            w.predicates.assign(log_.predicates + 1, 0);
            queue_.push({w.t, cta * all_.warps + n});
        }
    }

    void end_warp(WarpState& w) {
        CtaRow& cta = out_.ctas[w.cta];
        cta.t1 = std::max(cta.t1, w.t);
        w.registers = {}, w.predicates = {}, w.origin = {};
        if (--alive_[w.cta] > 0) return;
        --sms_[cta.sm].resident;
        place(cta.t1 + k_.cta_gap);
    }

    // ---- a warp, until another one is behind it in time or it has to wait

    void go_on(std::uint32_t index) {
        WarpState& w = warps_[index];
        const PreparedCluster& c = all_.clusters[w.cluster];
        const auto& stream = c.streams[std::size_t{out_.ctas[w.cta].rank} * all_.warps + w.number];
        for (;;) {
            if (!queue_.empty() && w.t > queue_.top().first) return queue_.push({w.t, index});
            if (w.pc < w.end) {
                step(w);
                continue;
            }
            if (w.next >= stream.size()) return;  // the log ends here: a hang, or a failure
            const std::uint32_t e = stream[w.next];
            if (!handle(w, c, e, index)) return;
            ++w.next;
        }
    }

    void settle(WarpState& w) {
        if (w.block > w.t) {
            rows_.span(actor(w), w.t, w.block, w.stall, w.pc > 0 ? w.pc - 1 : 0, 0);
            w.t = w.block;
        }
        w.stall = Kind::alu;
    }

    // False where the warp has to wait.
    bool handle(WarpState& w, const PreparedCluster& c, std::uint32_t number, std::uint32_t index) {
        const Event& e = c.log->events[number];
        if (e.kind == EventKind::access) return w.accesses.push_back(&e), true;
        const bool same_line = e.kind == EventKind::run && e.pc == w.end && w.end > 0 && !w.passed &&
                               log_.code[w.end - 1].kind != Class::branch;
        if (!same_line) settle(w);
        switch (e.kind) {
            case EventKind::run:
                w.pc = e.pc, w.end = e.x;
                break;
            case EventKind::wait:
                w.wait = &e;
                rows_.barrier(actor(w), c, number, w.t);
                break;
            case EventKind::pass:
                return pass(w, c, number, index);
            case EventKind::commit: {
                Groups& g = w.groups[e.detail];
                g.committed.push_back(std::move(g.open));
                g.open = {};
                break;
            }
            case EventKind::issue:
                issue(w, c, e.object);
                break;
            case EventKind::role:
                w.role = e.object;
                break;
            case EventKind::exit:
                end_warp(w);
                break;
            default:
                come(w, c, number);
        }
        return true;
    }

    void come(WarpState& w, const PreparedCluster& c, std::uint32_t number) {
        const Event& e = c.log->events[number];
        const bool mbarrier = c.life[number] != kNoPoint;
        const bool remote = mbarrier && e.owner != out_.ctas[w.cta].rank;
        double time = w.t;
        if (mbarrier && e.kind != EventKind::init && e.kind != EventKind::inval)
            time += remote ? k_.remote_arrive_latency : k_.mbarrier_arrive_latency;
        if (mbarrier) rows_.barrier(actor(w), c, number, time);
        if (c.point[number] != kNoPoint && e.kind != EventKind::phase) contribute(c.point[number], time);
    }

    void contribute(std::uint32_t number, double time) {
        Point& p = all_.points[number];
        p.time = std::max(p.time, time);
        if (--p.missing > 0 || !p.closed) return;
        for (const std::uint32_t w : p.waiters)
            queue_.push({p.time, w});
        p.waiters.clear();
    }

    bool pass(WarpState& w, const PreparedCluster& c, std::uint32_t number, std::uint32_t index) {
        const Event& e = c.log->events[number];
        const auto what = static_cast<Waited>(e.detail);
        if (!w.blocked) w.wait_from = w.t;
        double ready = 0, own = w.wait_from;
        if (what == Waited::mbarrier) own += k_.mbarrier_wait_latency;
        if (const std::uint32_t p = c.point[number]; p != kNoPoint) {
            Point& point = all_.points[p];
            if (point.missing > 0 && point.closed) {
                w.blocked = true;
                return point.waiters.push_back(index), false;
            }
            ready =
                point.time + (what == Waited::mbarrier  ? k_.mbarrier_wake_latency
                              : what == Waited::barrier ? k_.barrier_latency + point.count * k_.barrier_warp
                                                        : k_.cluster_latency);
        } else if (what != Waited::mbarrier && what != Waited::lanes) {
            ready = groups_done(w, what, e.y);
        }
        const double from = w.wait_from;
        w.blocked = false;
        w.wait = nullptr;
        w.t = w.block = std::max(own, ready);
        if (ready > own)
            rows_.wait(actor(w), c, e, from, w.t);
        else
            rows_.span(actor(w), from, w.t, Kind::sync, e.pc, 0);
        rows_.barrier(actor(w), c, number, w.t);
        w.passed = true;
        return true;
    }

    double groups_done(const WarpState& w, Waited what, std::uint32_t open) {
        const Group g = what == Waited::copies  ? Group::copies
                        : what == Waited::wgmma ? Group::wgmma
                                                : Group::bulk;
        const auto& committed = w.groups[static_cast<std::size_t>(g)].committed;
        double ready = 0;
        for (std::size_t i = 0; i + open < committed.size(); ++i)
            for (const std::uint32_t id : committed[i]) {
                const OperationTimes& o = operations_[w.cluster][id - 1];
                ready = std::max(ready, what == Waited::bulk_reads ? o.fetched : o.end);
            }
        return g == Group::wgmma ? ready + k_.wgmma_wait_latency : ready;
    }

    // ---- one instruction

    double inputs(const WarpState& w, const EventLog::Line& line, Kind& origin) const {
        double ready = 0;
        for (std::size_t o = line.written; o < line.operands.size(); ++o) {
            const Operand& op = line.operands[o];
            if (op.absent || op.bank != 0) continue;
            const bool predicate = op.bits == 1;
            if (predicate ? op.offset < kFirstPred : op.offset < kSinkBytes) continue;
            const double t = predicate ? w.predicates[op.offset] : w.registers[op.offset / 128];
            if (t <= ready) continue;
            ready = t;
            origin = predicate ? Kind::alu : w.origin[op.offset / 128];
        }
        if (line.guard != kNoGuard)
            ready = std::max(ready, w.predicates[static_cast<std::size_t>(line.guard)]);
        return ready;
    }

    void produce(WarpState& w, const EventLog::Line& line, double time, Kind origin) const {
        for (std::size_t o = 0; o < line.written; ++o) {
            const Operand& op = line.operands[o];
            if (op.bits == 1) {
                w.predicates[op.offset] = time;
            } else if (op.offset >= kSinkBytes) {
                w.registers[op.offset / 128] = time;
                w.origin[op.offset / 128] = origin;
            }
        }
    }

    void step(WarpState& w) {
        const std::uint32_t pc = w.pc++;
        const EventLog::Line& line = log_.code[pc];
        if (line.kind == Class::marker) return;
        const Kind kind = kind_of(line.kind);
        Kind origin = kind;
        const double ready = inputs(w, line, origin);
        if (line.kind == Class::free) return produce(w, line, ready, origin);

        const Charge& charge = charges_[pc];
        Multiprocessor& sm = sms_[out_.ctas[w.cta].sm];
        SubPartition& part = sm.parts[w.number % 4];
        const double at = part.issue.take(w.t, charge.slots);
        rows_.span(actor(w), at, at + charge.slots, kind, pc, 1);
        w.t = at + charge.slots;
        double start = at, result;
        if (charge.pipe != Pipe::count)
            start = part.pipes[static_cast<std::size_t>(charge.pipe)].take(at, charge.occupancy);
        if (touches_memory(line.kind)) {
            const Event* access = nullptr;
            double last = 0;
            result = std::max(start, ready);
            for (; !w.accesses.empty() && w.accesses.front()->pc == pc; w.accesses.pop_front()) {
                access = w.accesses.front();
                const MemoryTimes m = memory_times(line.kind, access, start, sm, dram_, k_);
                const double late = std::max(0.0, ready - m.start);
                start = std::max(start, m.start);
                last = std::max(last, m.result + late);
                note_access(w, *access, m.start + late, m.result + late);
            }
            result = access != nullptr ? last : std::max(start, ready);
            if (line.kind == Class::local) result = std::max(start, ready) + k_.l1_latency;
        } else if (line.kind == Class::shuffle) {
            start = sm.shuffle.take(start, k_.shuffle_issue);
            result = std::max(start, ready) + k_.shuffle_latency;
        } else if (line.kind == Class::mma) {
            const double duration = macs_of(line.text) / k_.mma_macs * 4;
            start = part.tensor.take(start, duration);
            result = std::max(start, ready) + duration + k_.mma_latency;
        } else {
            result =
                std::max(start, ready) + (w.passed && line.kind == Class::mbarrier_wait ? 0 : charge.latency);
        }
        start = std::max(start, ready);
        if (start > w.block) w.block = start, w.stall = ready >= start ? origin : kind;
        produce(w, line, result, kind);
        w.passed = false;
        if (charge.hold > 0 && (line.kind != Class::branch || w.pc == w.end)) {  // a branch that is taken
            settle(w);
            const double from = w.t;
            w.t = w.block = std::max(w.t, start + charge.hold);
            rows_.span(actor(w), from, w.t, kind, pc, 0);
        }
        if (line.kind == Class::exit || line.kind == Class::branch) settle(w);
    }

    void note_access(const WarpState& w, const Event& e, double t0, double t1) {
        if ((e.detail & kGlobal) != 0) return;
        const PreparedCluster& c = all_.clusters[w.cluster];
        const std::uint32_t owner = c.first_cta + c.log->buffers[e.object].cta;
        if ((e.detail & kReads) != 0) rows_.access(actor(w), owner, e.object, false, t0, t1);
        if ((e.detail & kWrites) != 0) rows_.access(actor(w), owner, e.object, true, t0, t1);
    }

    // ---- an asynchronous operation: when it starts, when its sources are read, when it is done

    void issue(WarpState& w, const PreparedCluster& c, std::uint32_t id) {
        const Operation& o = c.log->operations[id - 1];
        OperationTimes& t = operations_[w.cluster][id - 1];
        t.issue = w.t;
        t.started = true;
        double after = w.t;
        for (const std::uint32_t earlier : o.after)
            after = std::max(after, operations_[w.cluster][earlier - 1].end);
        Multiprocessor& sm = sms_[out_.ctas[w.cta].sm];
        time_operation(o, log_.code[o.pc].text, after, sm, sm.parts[w.number % 4], dram_, k_, t);
        if (const Group g = group_of(o.kind); g != Group::none)
            w.groups[static_cast<std::size_t>(g)].open.push_back(id);
        rows_.operation(actor(w, id), c, o, t);
        for (const std::uint32_t number : c.effects[id - 1]) {
            rows_.barrier(actor(w, id), c, number, t.end);
            if (c.point[number] != kNoPoint && c.log->events[number].kind != EventKind::phase)
                contribute(c.point[number], t.end);
        }
    }

    void finish() {
        double last = 0;
        for (const WarpState& w : warps_)
            if (w.started) last = std::max({last, w.t, w.block});
        for (auto& cluster : operations_)
            for (OperationTimes& o : cluster) {
                if (o.started) last = std::max(last, o.end);
                out_.operations.push_back(o);
            }
        // What never ends is drawn for a while, so that it can be seen.
        if (std::ranges::any_of(warps_, [](const WarpState& w) { return w.wait != nullptr; }))
            last += kEndless + last / 10;
        for (WarpState& w : warps_)
            if (w.started && alive_[w.cta] > 0) {
                CtaRow& cta = out_.ctas[w.cta];
                cta.t1 = last;
                if (w.wait != nullptr) rows_.wait(actor(w), all_.clusters[w.cluster], *w.wait, w.t, last);
            }
        out_.cycles = last;
        rows_.finish();
    }

    const EventLog& log_;
    const Costs& k_;
    const std::uint32_t resident_;
    Prepared all_;
    Timeline out_;
    std::vector<Multiprocessor> sms_;
    Server dram_;
    std::vector<Charge> charges_;
    std::vector<WarpState> warps_;
    std::vector<std::uint32_t> alive_;
    std::vector<std::vector<OperationTimes>> operations_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
    std::size_t next_cluster_ = 0;
    Rows rows_;
};

}  // namespace

Timeline replay(const EventLog& log, const Costs& costs, std::uint32_t resident) {
    return Replay(log, costs, resident).run();
}

}  // namespace emu
