// Generic accesses: loads, stores and atomics of threads.
#include <bit>

#include "check/monitor.hpp"

namespace emu {

using check::Cell;

namespace {

constexpr std::size_t kMostLocations = 1u << 16;  // strong accesses beyond share one location

// The lanes of `mask` are neighbours.
bool is_run(std::uint32_t mask) {
    const std::uint32_t shifted = mask >> std::countr_zero(mask);
    return (shifted & (shifted + 1)) == 0;
}

}  // namespace

Monitor::Found Monitor::touch(WarpState& s, CtaState& cta, std::uint32_t offset, std::uint32_t bytes,
                              bool reads, bool writes, bool strong, Epoch now) {
    Found found;
    const check::Clock& known = s.now.known;
    const auto clash = [&](Clash what, Epoch earlier, std::uint32_t at) {
        if (found.clash == Clash::none) found.clash = what, found.earlier = earlier, found.offset = at;
    };
    cta.shadow.each(offset, bytes, [&](Cell& cell, std::uint32_t at) {
        ++found.cells;
        if (cell.write.same_moment(now) && cell.read.none() && writes) {
            cell.write = now;
            return true;
        }
        if (cell.write.none())
            ++found.unwritten;
        else if (cell.write.agent() == check::kBarrier) {
            if (writes) clash(Clash::barrier, cell.write, at);
            return true;
        } else if (!known.knows(cell.write))
            clash(Clash::write, cell.write, at);
        if (writes) {
            cta.shadow.each_reader(cell, [&](Epoch reader) {
                if (!known.knows(reader)) clash(Clash::read, reader, at);
            });
            cta.shadow.set_writer(cell, now);
        } else if (reads && !strong) {
            cta.shadow.add_reader(cell, now, known);
        }
        return true;
    });
    return found;
}

void Monitor::touch_shared(Warp& w, const Instruction& ins, int lane, Cta& cta, std::uint32_t offset,
                           std::uint32_t bytes, Warp::Access access, bool strong) {
    WarpState& s = state(w);
    const bool reads = access != Warp::Access::write, writes = access != Warp::Access::read;
    const Act act{w, ins, 1u << lane, writes, bytes};
    if (&cta != &w.cta()) {
        visits(w, ins, 1u << lane, cta);
        state(cta).touched.raise(s.self,
                                 s.now.known[s.self]);  // operations are waited for by their completion
    }
    const std::byte* const place = cta.shared() + offset;
    if (writes && postponed_) write_comes(act, cta, offset, bytes);
    if (strong) acquire_location(s, place);
    const Epoch moment = now(s, w, ins);
    const Found found = touch(s, state(cta), offset, bytes, reads, writes, strong, moment);
    if (found.clash != Clash::none) clash(act, cta, found.offset, found.earlier, found.clash);
    if (reads && found.unwritten == found.cells) unwritten(act, cta, offset);
    if (strong && writes) release_location(s, place, moment);
}

// The common case: neighbouring lanes touch neighbouring places of their own CTA, as one range.
bool Monitor::touch_row(Warp& w, const Instruction& ins, std::uint32_t mask, std::byte* const* at,
                        std::uint32_t bytes, Warp::Access access) {
    if (!is_run(mask)) return false;
    const int first = std::countr_zero(mask), count = std::popcount(mask);
    Cta& cta = w.cta();
    const auto start = static_cast<std::uint64_t>(at[first] - cta.shared());
    if (start >= cta.shared_bytes()) return false;
    for (int l = 1; l < count; ++l)
        if (at[first + l] != at[first] + static_cast<std::size_t>(l) * bytes) return false;
    WarpState& s = state(w);
    const bool reads = access == Warp::Access::read;
    const auto offset = static_cast<std::uint32_t>(start);
    if (!reads && postponed_)
        write_comes({w, ins, mask, true, bytes}, cta, offset, bytes * static_cast<std::uint32_t>(count));
    const Found found = touch(s, state(cta), offset, bytes * static_cast<std::uint32_t>(count), reads, !reads,
                              false, now(s, w, ins));
    if (found.clash != Clash::none) {
        const std::uint32_t lane = static_cast<std::uint32_t>(first) + (found.offset - offset) / bytes;
        clash({w, ins, 1u << lane, !reads, bytes}, cta, found.offset, found.earlier, found.clash);
    }
    return !reads || found.unwritten == 0;  // lanes that read what nobody wrote are found one by one
}

bool Monitor::touch_local(Warp& w, const Instruction& ins, std::uint32_t mask, std::byte* const* at,
                          std::uint32_t bytes, Warp::Access access) {
    const std::size_t size = w.local_stride() * 32;
    if (size == 0 || static_cast<std::size_t>(at[std::countr_zero(mask)] - w.local(0)) >= size) return false;
    auto& written = local_written_[&w];
    written.resize(size);
    for (std::uint32_t left = mask; left != 0; left &= left - 1) {
        const int l = std::countr_zero(left);
        const auto place = written.begin() + (at[l] - w.local(0));
        if (access == Warp::Access::read && std::all_of(place, place + bytes, [](auto b) { return b == 0; }))
            unwritten({w, ins, 1u << l, false, bytes}, "local memory", "a local variable");
        if (access != Warp::Access::read) std::fill_n(place, bytes, std::uint8_t{1});
    }
    return true;
}

void Monitor::touch_global(const Act& act, std::byte* at, std::uint32_t bytes, bool reads) {
    const GlobalMemory& memory = cluster_.grid().memory;
    if (!memory.tracked()) return;
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const Range* const range = memory.find(address, bytes);
    if (range == nullptr || range->written == nullptr) return;
    std::uint8_t* const written = range->written + (address - range->begin);
    if (reads && std::all_of(written, written + bytes, [](auto b) { return b == 0; }))
        unwritten(act, memory.element(*range, address), "global memory");
    if (act.writes) std::fill_n(written, bytes, std::uint8_t{1});
}

void Monitor::access(Warp& w, const Instruction& ins, std::uint32_t mask, std::byte* const* at,
                     std::uint32_t bytes, Warp::Access access, bool strong) {
    if (!strong && touch_row(w, ins, mask, at, bytes, access)) return;
    if (touch_local(w, ins, mask, at, bytes, access)) return;
    const bool reads = access != Warp::Access::write, writes = access != Warp::Access::read;
    for (std::uint32_t left = mask; left != 0; left &= left - 1) {
        const int l = std::countr_zero(left);
        const Region r = cluster_.region(at[l], bytes);
        if (r.where == Region::Where::shared) {
            touch_shared(w, ins, l, *cluster_.cta(r.rank), static_cast<std::uint32_t>(r.address), bytes,
                         access, strong);
            continue;
        }
        touch_global({w, ins, 1u << l, writes, bytes}, at[l], bytes, reads);
        if (!strong) continue;
        WarpState& s = state(w);
        acquire_location(s, at[l]);
        if (writes) release_location(s, at[l], now(s, w, ins));
    }
    if (strong && writes) tick(state(w));
}

// Strong accesses (atomics, volatile, relaxed, acquire, release) order warps that meet at one location. That
// is more than PTX promises for some of them, so that no correct kernel is accused.
void Monitor::acquire_location(WarpState& s, const std::byte* at) {
    const auto found = locations_.find(at);
    const Location* const location = found != locations_.end()             ? &found->second
                                     : locations_.size() >= kMostLocations ? &locations_[nullptr]
                                                                           : nullptr;
    if (location == nullptr || location->knowledge == nullptr || s.now.known.knows(location->by)) return;
    acquire(s, *location->knowledge);
}
void Monitor::release_location(WarpState& s, const std::byte* at, Epoch now) {
    if (!locations_.contains(at) && locations_.size() >= kMostLocations) at = nullptr;
    if (s.copy == nullptr) s.copy = std::make_shared<const Knowledge>(s.now);
    locations_[at] = {s.copy, now};
}

}  // namespace emu
