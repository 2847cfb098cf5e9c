// What is known of every byte of one CTA's shared memory: the last write and the reads since. Four bytes
// share a cell until an access touches only some of them; then they are apart until one write covers all
// four.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "check/epoch.hpp"

namespace emu::check {

struct Cell {
    // `write`: none, an agent, kInFlight (time is the operation's number), kBarrier (a live mbarrier lies
    // here) or kSplit. `read`: none, one epoch, kInFlight, or kManyReaders (time is the number of a list).
    Epoch write, read;
};

static_assert(std::is_trivially_copyable_v<Cell>, "may live in memory from calloc");

class Shadow {
  public:
    explicit Shadow(std::uint32_t bytes)
        : cells_(static_cast<Cell*>(std::calloc((bytes + 3) / 4 + 1, sizeof(Cell)))) {
        if (cells_ == nullptr) throw std::bad_alloc();
    }

    // f(cell, offset) for the cells that cover the bytes, until it returns false; then so does this.
    template <class F>
    bool each(std::uint32_t offset, std::uint32_t bytes, F f) {
        const std::uint32_t end = offset + bytes;
        while (offset < end) {
            Cell& cell = cells_[offset / 4];
            const bool whole = offset % 4 == 0 && end - offset >= 4;
            if (whole && cell.write.agent() != kSplit) {
                if (!f(cell, offset)) return false;
                offset += 4;
                continue;
            }
            const std::uint32_t stop = std::min(end, offset / 4 * 4 + 4);
            const std::uint32_t number = split(cell);
            for (; offset < stop; ++offset)
                if (!f(parts_[number][offset % 4], offset)) return false;
            if (whole) rejoin(cell);
        }
        return true;
    }

    template <class F>
    void each_reader(const Cell& cell, F f) const {
        if (cell.read.agent() != kManyReaders) {
            if (!cell.read.none()) f(cell.read);
            return;
        }
        for (const Epoch e : lists_[cell.read.time()])
            f(e);
    }
    void add_reader(Cell& cell, Epoch reader, const Clock& known);
    // Puts `by` in the place of the reader that is operation `id` in flight.
    void replace_reader(Cell& cell, Time id, Epoch by);
    void set_writer(Cell& cell, Epoch writer) {
        forget_readers(cell);
        cell.write = writer;
    }

  private:
    std::uint32_t split(Cell& cell);
    void rejoin(Cell& cell);  // where its parts agree
    void forget_readers(Cell& cell) {
        if (cell.read.agent() == kManyReaders) free_lists_.push_back(cell.read.time());
        cell.read = {};
    }
    std::uint32_t new_list();

    struct Free {
        void operator()(Cell* cells) const { std::free(cells); }
    };
    // All zero is a valid cell, and pages that no kernel touches are never made.
    std::unique_ptr<Cell[], Free> cells_;
    std::vector<std::array<Cell, 4>> parts_;
    std::vector<std::uint32_t> free_parts_;
    std::vector<std::vector<Epoch>> lists_;
    std::vector<std::uint32_t> free_lists_;
};

}  // namespace emu::check
