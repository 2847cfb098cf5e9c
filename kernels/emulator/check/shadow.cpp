#include "check/shadow.hpp"

namespace emu::check {

std::uint32_t Shadow::new_list() {
    if (!free_lists_.empty()) {
        const std::uint32_t number = free_lists_.back();
        free_lists_.pop_back();
        lists_[number].clear();
        return number;
    }
    lists_.emplace_back();
    return static_cast<std::uint32_t>(lists_.size() - 1);
}

void Shadow::add_reader(Cell& cell, Epoch reader, const Clock& known) {
    const auto replaced = [&](Epoch e) {
        return e.agent() != kInFlight && (e.agent() == reader.agent() || known.knows(e));
    };
    if (cell.read.none() || cell.read.same_moment(reader) ||
        (cell.read.agent() != kManyReaders && replaced(cell.read))) {
        cell.read = reader;
        return;
    }
    if (cell.read.agent() != kManyReaders) {
        const Epoch first = cell.read;
        const std::uint32_t number = new_list();
        lists_[number] = {first, reader};
        cell.read = Epoch::of(kManyReaders, number, 0);
        return;
    }
    auto& list = lists_[cell.read.time()];
    std::erase_if(list, [&](Epoch e) { return e.same_moment(reader) || replaced(e); });
    list.push_back(reader);
}

void Shadow::replace_reader(Cell& cell, Time id, Epoch by) {
    const auto is_it = [=](Epoch e) { return e.agent() == kInFlight && e.time() == id; };
    if (is_it(cell.read)) cell.read = by;
    if (cell.read.agent() != kManyReaders) return;
    auto& list = lists_[cell.read.time()];
    if (std::ranges::none_of(list, is_it)) return;
    std::erase_if(list, [&](Epoch e) { return is_it(e) || e.agent() == by.agent(); });
    list.push_back(by);
}

std::uint32_t Shadow::split(Cell& cell) {
    if (cell.write.agent() == kSplit) return cell.write.time();
    std::uint32_t number = static_cast<std::uint32_t>(parts_.size());
    if (free_parts_.empty())
        parts_.emplace_back();
    else
        number = free_parts_.back(), free_parts_.pop_back();
    for (Cell& part : parts_[number]) {
        part = cell;
        if (cell.read.agent() != kManyReaders) continue;
        const std::uint32_t copy = new_list();
        lists_[copy] = lists_[cell.read.time()];
        part.read = Epoch::of(kManyReaders, copy, 0);
    }
    forget_readers(cell);
    cell.write = Epoch::of(kSplit, number, 0);
    return number;
}

void Shadow::rejoin(Cell& cell) {
    const std::uint32_t number = cell.write.time();
    auto& parts = parts_[number];
    for (const Cell& part : parts)
        if (part.write.bits != parts[0].write.bits || part.read.bits != parts[0].read.bits ||
            part.read.agent() == kManyReaders)
            return;
    cell = parts[0];
    free_parts_.push_back(number);
}

}  // namespace emu::check
