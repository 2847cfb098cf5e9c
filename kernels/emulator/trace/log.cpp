#include "trace/log.hpp"

#include <algorithm>
#include <bit>

#include "ir/errors.hpp"
#include "machine/machine.hpp"

namespace emu {
namespace {

constexpr std::uint32_t kBanks = 32;

// How many passes of 128 bytes shared memory needs: lanes are served in groups that fill one pass if they
// can, and words of one bank take turns.
std::uint32_t bank_passes(const auto& lanes) {
    const std::uint32_t words = std::max(lanes.front().bytes / 4, 1u);
    const std::size_t group = std::max<std::size_t>(kBanks / words, 1);
    std::uint32_t passes = 0;
    for (std::size_t first = 0; first < lanes.size(); first += group) {
        std::array<std::vector<std::uint64_t>, kBanks> bank;
        std::size_t most = 1;
        for (std::size_t l = first; l < std::min(first + group, lanes.size()); ++l)
            for (std::uint32_t w = 0; w < words; ++w) {
                const std::uint64_t word = lanes[l].place / 4 + w;
                auto& seen = bank[word % kBanks];
                if (std::ranges::find(seen, word) == seen.end()) seen.push_back(word);
                most = std::max(most, seen.size());
            }
        passes += static_cast<std::uint32_t>(most);
    }
    return passes;
}

std::uint32_t distinct(const auto& lanes, std::uint64_t unit) {
    std::vector<std::uint64_t> seen;
    for (const auto& l : lanes)
        for (std::uint64_t u = l.place / unit; u <= (l.place + l.bytes - 1) / unit; ++u)
            seen.push_back(u);
    std::ranges::sort(seen);
    return static_cast<std::uint32_t>(std::ranges::unique(seen).begin() - seen.begin());
}

}  // namespace

// ---- the log of a launch

void EventLog::begin(const Kernel& kernel, std::array<std::uint32_t, 3> block, std::uint32_t bytes) {
    kernel_name = kernel.name;
    files = kernel.files;
    names = kernel.names;
    registers = kernel.register_bytes / 128;
    predicates = kernel.predicates;
    threads = block[0] * block[1] * block[2];
    shared_bytes = bytes;
    for (const Instruction& ins : kernel.code) {
        const std::string text =
            ins.text >= 0 ? kernel.texts[static_cast<std::size_t>(ins.text)] : std::string();
        code.push_back({text,
                        class_of(text),
                        ins.ptx_line,
                        ins.source_file,
                        ins.source_line,
                        ins.written,
                        ins.guard,
                        {ins.op, ins.op + ins.count}});
    }
}

ClusterLog& EventLog::cluster(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    return clusters.try_emplace(number, *this, number).first->second;
}

void EventLog::spend() {
    if (count_.fetch_add(1, std::memory_order_relaxed) < limit_) return;
    throw TraceFull("The trace is full: " + std::to_string(limit_) +
                        " events have been logged. Launch fewer blocks, or give trace_limit a larger number",
                    Where{.kernel = kernel_name});
}

// ---- the log of a cluster

void ClusterLog::start(const Warp& warp, std::uint32_t pc, std::uint32_t lanes) {
    cta_ = static_cast<std::uint16_t>(warp.cta().rank);
    warp_ = static_cast<std::uint16_t>(warp.number());
    first_ = pc_ = pc;
    mask_ = lanes;
    busy_ = last_busy_ = 0;
    by_operation_ = false;
}

void ClusterLog::at(std::uint32_t pc, std::uint32_t active) {
    if (!lanes_.empty()) flush();
    by_operation_ = false;
    pc_ = pc;
    last_busy_ = all_.code[pc].kind == Class::marker ? 0 : static_cast<std::uint32_t>(std::popcount(active));
    busy_ += last_busy_;
}

void ClusterLog::stop(std::uint32_t end) {
    if (!lanes_.empty()) flush();
    by_operation_ = false;
    if (first_ < end) add({.kind = Event::Kind::run, .pc = first_, .object = busy_, .x = end, .y = mask_});
    first_ = end;
    busy_ = last_busy_ = 0;
}

void ClusterLog::add(Event e) {
    all_.spend();
    e.cta = cta_;
    e.warp = by_operation_ ? kNoWarp : warp_;
    events.push_back(e);
}

void ClusterLog::note(Event e) {
    if (!lanes_.empty()) flush();
    if (!by_operation_ && first_ < pc_) {
        add({.kind = Event::Kind::run, .pc = first_, .object = busy_ - last_busy_, .x = pc_, .y = mask_});
        first_ = pc_;
        busy_ = last_busy_;
    }
    add(e);
}

std::uint32_t ClusterLog::buffer_at(const Cta& cta, std::uint32_t offset) {
    const SharedObject& o = cta.shared_object(offset);
    const auto [at, fresh] =
        buffer_index_.try_emplace({cta.rank, o.offset, o.name}, static_cast<std::uint32_t>(buffers.size()));
    if (fresh) buffers.push_back({static_cast<std::uint16_t>(cta.rank), o.offset, o.size, o.name});
    return at->second;
}

void ClusterLog::access(const Cluster& cluster, const std::byte* place, std::uint32_t bytes, bool reads,
                        bool writes) {
    if (!touches_memory(all_.code[pc_].kind)) return;
    const Region r = cluster.region(place, bytes);
    const bool shared = r.where == Region::Where::shared;
    const auto detail =
        static_cast<std::uint8_t>((reads ? kReads : 0) | (writes ? kWrites : 0) | (shared ? 0 : kGlobal));
    const Cta* owner = shared ? cluster.ctas()[r.rank].get() : nullptr;
    const std::uint32_t buffer =
        shared ? buffer_at(*owner, static_cast<std::uint32_t>(r.address)) : kGlobalBuffer;
    if (!lanes_.empty() &&
        (pending_.detail != detail || pending_owner_ != owner || pending_.object != buffer))
        flush();
    pending_ = {.kind = Event::Kind::access, .detail = detail, .pc = pc_, .object = buffer};
    pending_owner_ = owner;
    lanes_.push_back({shared ? r.address : cluster.grid().memory.relative(r.address), bytes});
}

void ClusterLog::flush() {
    Event e = pending_;
    std::uint64_t low = ~std::uint64_t{0}, high = 0;
    for (const Lane& l : lanes_)
        low = std::min(low, l.place), high = std::max(high, l.place + l.bytes - 1);
    std::uint32_t weight;
    if ((e.detail & kGlobal) != 0) {
        weight = distinct(lanes_, 32);
        e.x = static_cast<std::uint32_t>(low / 128);
        e.y = distinct(lanes_, 128);
    } else {
        weight = bank_passes(lanes_);
        if (pending_owner_->rank != cta_) e.detail |= kRemote;
        e.x = static_cast<std::uint32_t>(low);
        e.y = static_cast<std::uint32_t>(high);
    }
    e.owner = static_cast<std::uint16_t>(std::min(weight, 0xffffu));
    lanes_.clear();
    add(e);
}

void ClusterLog::wait(Waited what, std::uint32_t object, std::uint64_t value) {
    busy_ -= last_busy_;  // it has done nothing yet
    last_busy_ = 0;
    note({.kind = Event::Kind::wait,
          .detail = static_cast<std::uint8_t>(what),
          .pc = pc_,
          .object = object,
          .y = static_cast<std::uint32_t>(value)});
}

void ClusterLog::pass(Waited what, std::uint32_t object, std::uint64_t value) {
    note({.kind = Event::Kind::pass,
          .detail = static_cast<std::uint8_t>(what),
          .pc = pc_,
          .object = object,
          .y = static_cast<std::uint32_t>(value)});
}

void ClusterLog::mbarrier(Event::Kind kind, const Cta& owner, std::uint32_t offset, std::uint32_t amount,
                          std::uint32_t phase) {
    static_cast<void>(buffer_at(owner, offset));
    note({.kind = kind,
          .owner = static_cast<std::uint16_t>(owner.rank),
          .pc = pc_,
          .object = offset,
          .x = amount,
          .y = phase});
}

void ClusterLog::named_barrier(Event::Kind kind, const Cta& cta, std::uint32_t which,
                               std::uint64_t generation, std::uint32_t threads) {
    note({.kind = kind,
          .owner = static_cast<std::uint16_t>(cta.rank),
          .pc = pc_,
          .object = which,
          .x = threads,
          .y = static_cast<std::uint32_t>(generation)});
}

void ClusterLog::cluster_barrier(Event::Kind kind, std::uint64_t generation, std::uint32_t threads) {
    note({.kind = kind, .pc = pc_, .x = threads, .y = static_cast<std::uint32_t>(generation)});
}

void ClusterLog::commit(Group group) {
    note({.kind = Event::Kind::commit, .detail = static_cast<std::uint8_t>(group), .pc = pc_});
}

void ClusterLog::stretches(const Cluster& cluster, const std::vector<Region>& regions,
                           std::vector<Stretch>& to) {
    for (const Region& r : regions) {
        Stretch s{
            .buffer = kGlobalBuffer, .first = static_cast<std::uint32_t>(r.address / 128), .bytes = r.bytes};
        if (r.where == Region::Where::shared) {
            s.cta = static_cast<std::uint16_t>(r.rank);
            s.first = static_cast<std::uint32_t>(r.address);
            s.buffer = buffer_at(*cluster.ctas()[r.rank], s.first);
        }
        // Rows of a box that follow each other in one buffer are one stretch.
        if (!to.empty() && to.back().buffer == s.buffer && to.back().cta == s.cta &&
            s.buffer != kGlobalBuffer && to.back().first + to.back().bytes == s.first)
            to.back().bytes += s.bytes;
        else
            to.push_back(s);
    }
}

void ClusterLog::issue(const Cluster& cluster, const AsyncOp& op) {
    Operation o{.kind = op.kind,
                .cta = static_cast<std::uint16_t>(op.issuer->cta().rank),
                .warp = static_cast<std::uint16_t>(op.issuer->number()),
                .pc = static_cast<std::uint32_t>(op.ins - op.issuer->kernel().code.data()),
                .lanes = op.lanes,
                .signal = op.signal};
    for (const auto* side : {&op.reads, &op.writes}) {
        std::uint32_t bytes = 0;
        for (const Region& r : *side) {
            bytes += r.bytes;
            if (r.where == Region::Where::global)
                ++o.rows, o.from_global |= side == &op.reads;
            else if (r.rank != o.cta)
                o.remote = true;
        }
        o.bytes = std::max(o.bytes, bytes);
    }
    if (op.signal.bytes != 0) o.bytes = op.signal.bytes;
    stretches(cluster, op.reads, o.reads);
    stretches(cluster, op.writes, o.writes);
    for (const Done& d : op.after)
        if (const auto found = done_.find(d.get()); found != done_.end() && !*d)
            o.after.push_back(found->second);
    done_[op.done.get()] = static_cast<std::uint32_t>(op.id);
    by_operation_ = false;  // another operation of this instruction may have completed at once
    operations.push_back(std::move(o));
    note({.kind = Event::Kind::issue,
          .pc = operations.back().pc,
          .object = static_cast<std::uint32_t>(op.id)});
}

void ClusterLog::stage(const AsyncOp& op, AsyncStage stage) {
    if (!lanes_.empty()) flush();
    const auto kind = stage == AsyncStage::fetched ? Event::Kind::fetched : Event::Kind::landed;
    by_operation_ = true;
    add({.kind = kind, .object = static_cast<std::uint32_t>(op.id)});
}

void ClusterLog::role(std::uint32_t name) {
    note({.kind = Event::Kind::role, .pc = pc_, .object = name});
}

void ClusterLog::exit(const Warp& warp) {
    start(warp, 0, 0);
    add({.kind = Event::Kind::exit});
}

}  // namespace emu
