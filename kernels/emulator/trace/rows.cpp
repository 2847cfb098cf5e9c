#include "trace/rows.hpp"

#include <algorithm>

namespace emu {
namespace {

constexpr double kShort = 8;       // a run of instructions of one kind that is shorter joins its neighbour
constexpr double kNear = 16;       // runs so close to each other touch
constexpr double kAccessGap = 64;  // accesses so close to each other are one interval

}  // namespace

void Rows::span(const Actor& by, double t0, double t1, Kind kind, std::uint32_t pc,
                std::uint32_t instructions) {
    if (t1 <= t0) return;
    const std::size_t index = std::size_t{by.cta} * all_.warps + by.warp;
    if (runs_.size() <= index) runs_.resize(index + 1), merged_.resize(index + 1);
    Open& run = runs_[index];
    if (run.any && run.span.kind == kind && t0 - run.span.t1 <= kNear && run.span.role == by.role) {
        run.span.t1 = std::max(run.span.t1, t1);
        run.span.instructions += instructions;
        return;
    }
    if (run.any) close(run);
    run.any = true;
    run.span = {by.cta, by.warp, t0, t1, kind, pc, instructions, {}, by.role, order_++};
}

// A finished run goes to the joined runs before it, or those are done and it starts anew.
void Rows::close(Open& run) {
    if (!run.any) return;
    run.any = false;
    Open& to = merged_[std::size_t{run.span.cta} * all_.warps + run.span.warp];
    const double length = run.span.t1 - run.span.t0;
    const bool joins = to.any && run.span.t0 - to.span.t1 <= kNear && to.span.role == run.span.role &&
                       (length < kShort || to.span.t1 - to.span.t0 < kShort);
    if (!joins) {
        if (to.any) out_.spans.push_back(to.span);
        to = {true, run.span, {}};
    } else {
        to.span.t1 = std::max(to.span.t1, run.span.t1);
        to.span.instructions += run.span.instructions;
    }
    to.cycles[static_cast<std::size_t>(run.span.kind)] += length;
    to.span.kind = static_cast<Kind>(std::ranges::max_element(to.cycles) - to.cycles.begin());
}

std::string Rows::object(const PreparedCluster& c, const Event& e) const {
    switch (static_cast<Waited>(e.detail)) {
        case Waited::mbarrier: {
            const Buffer* found = nullptr;
            for (const Buffer& b : c.log->buffers)
                if (b.cta == e.cta && e.object >= b.offset && e.object - b.offset < b.bytes) found = &b;
            if (found == nullptr) return "mbarrier at " + std::to_string(e.object);
            return found->name +
                   (e.object > found->offset ? " + " + std::to_string(e.object - found->offset) : "");
        }
        case Waited::barrier:
            return "barrier " + std::to_string(e.object);
        case Waited::cluster:
            return "cluster barrier";
        case Waited::copies:
            return "cp.async groups";
        case Waited::bulk:
            return "bulk groups";
        case Waited::bulk_reads:
            return "sources of bulk groups";
        case Waited::wgmma:
            return "wgmma groups";
        case Waited::lanes:
            return "lanes of the warp";
    }
    return {};
}

void Rows::wait(const Actor& by, const PreparedCluster& c, const Event& e, double t0, double t1) {
    const std::size_t index = std::size_t{by.cta} * all_.warps + by.warp;
    if (index < runs_.size()) {
        close(runs_[index]);
        if (merged_[index].any) out_.spans.push_back(merged_[index].span), merged_[index] = {};
    }
    out_.spans.push_back({by.cta, by.warp, t0, t1, Kind::wait, e.pc, 0, object(c, e), by.role, order_++});
}

void Rows::barrier(const Actor& by, const PreparedCluster& c, std::uint32_t event, double time) {
    const std::uint32_t life = c.life[event];
    if (life == kNoPoint) return;
    const Event& e = c.log->events[event];
    const bool waits = e.kind == Event::Kind::wait || e.kind == Event::Kind::pass;
    if (e.kind == Event::Kind::phase) time = -1;  // the time of its last contribution, known at the end
    if (lives_.size() <= life) lives_.resize(all_.lives);
    lives_[life].push_back({c.first_cta + (waits ? e.cta : e.owner), e.object, time, e.kind, 0, 0, 0, e.y,
                            by.warp, by.operation, e.x, by.cta, order_++, c.point[event], c.log->number});
}

void Rows::access(const Actor& by, std::uint32_t buffer_cta, std::uint32_t buffer, bool write, double t0,
                  double t1) {
    for (std::size_t i = out_.accesses.size(), seen = 0; i-- > 0 && seen < 16; ++seen) {
        AccessRow& a = out_.accesses[i];
        if (a.cta != buffer_cta || a.buffer != buffer || a.write != write || a.by_cta != by.cta ||
            a.by_warp != by.warp || a.by_operation != by.operation)
            continue;
        if (t0 - a.t1 > kAccessGap || t0 < a.t0) break;
        a.t1 = std::max(a.t1, t1);
        return;
    }
    out_.accesses.push_back({buffer_cta, buffer, t0, t1, write, by.warp, by.operation, by.cta});
}

void Rows::operation(const Actor& by, const PreparedCluster& c, const Operation& o, const OperationTimes& t) {
    for (const Stretch& s : o.reads)
        if (s.buffer != kGlobalBuffer) access(by, c.first_cta + s.cta, s.buffer, false, t.start, t.fetched);
    for (const Stretch& s : o.writes)
        if (s.buffer != kGlobalBuffer) access(by, c.first_cta + s.cta, s.buffer, true, t.start, t.end);
}

void Rows::barrier_states() {
    for (auto& rows : lives_) {
        // A phase ends with its last contribution; what counts for the next phase counts from then on.
        std::vector<double> ends;
        const auto end_of = [&](std::uint32_t phase) { return phase < ends.size() ? ends[phase] : 0.0; };
        for (BarrierRow& r : rows)
            if (r.event == Event::Kind::phase) {
                r.time = all_.points[r.point].time;
                if (ends.size() <= r.phase) ends.resize(r.phase + 1, 0);
                ends[r.phase] = r.time;
            }
        const auto waits = [](const BarrierRow& r) {
            return r.event == Event::Kind::wait || r.event == Event::Kind::pass;
        };
        const auto counts = [&](const BarrierRow& r) {
            return !waits(r) && r.event != Event::Kind::init && r.event != Event::Kind::inval;
        };
        for (BarrierRow& r : rows)
            if (counts(r) && r.phase > 0) r.time = std::max(r.time, end_of(r.phase - 1));
        const auto rank = [&](const BarrierRow& r) {
            return r.event == Event::Kind::init ? 0.0
                   : !counts(r)                 ? 1e18
                                                : 2.0 * r.phase + (r.event == Event::Kind::phase ? 2 : 1);
        };
        std::ranges::stable_sort(rows, [&](const BarrierRow& a, const BarrierRow& b) {
            return a.time != b.time ? a.time < b.time : rank(a) < rank(b);
        });
        std::uint32_t expected = 0, pending = 0, phase = 0;
        std::int64_t tx = 0;
        for (BarrierRow& r : rows) {
            const std::int64_t amount = static_cast<std::int32_t>(r.amount);
            const std::uint32_t count = r.amount;
            switch (r.event) {
                case Event::Kind::init:
                    expected = pending = count, tx = 0, phase = 0;
                    break;
                case Event::Kind::arrive:
                    pending -= count;
                    break;
                case Event::Kind::drop:
                    pending -= count, expected -= count;
                    break;
                case Event::Kind::expect_arrive:
                    pending += count;
                    break;
                case Event::Kind::expect_tx:
                    tx += amount;
                    break;
                case Event::Kind::complete_tx:
                    tx -= amount;
                    break;
                case Event::Kind::phase:
                    pending = expected, ++phase;
                    break;
                default:
                    break;
            }
            r.expected = expected, r.pending = pending, r.tx = tx, r.phase = phase;
            out_.barriers.push_back(r);
        }
    }
    std::ranges::stable_sort(out_.barriers, {}, &BarrierRow::time);
}

void Rows::finish() {
    for (Open& run : runs_)
        close(run);
    for (Open& run : merged_)
        if (run.any) out_.spans.push_back(run.span);
    std::ranges::sort(out_.spans, [](const Span& a, const Span& b) {
        return std::tie(a.cta, a.warp, a.t0, a.order) < std::tie(b.cta, b.warp, b.t0, b.order);
    });
    barrier_states();
}

}  // namespace emu
