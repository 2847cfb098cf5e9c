// Liveness over basic blocks, then a linear scan. Lanes of a warp are separate threads with a column of each
// slot of their own, so what is right for one thread is right for diverged lanes too.
#include <algorithm>
#include <map>
#include <queue>

#include "ir/errors.hpp"
#include "ptx/draft.hpp"

namespace emu {
namespace {

constexpr std::size_t kMostLivenessWords = std::size_t{1} << 26;  // 2 GiB in four sets of bits

struct Block {
    std::uint32_t begin, end;
    std::vector<std::uint32_t> successors;
    std::vector<std::uint64_t> use, def, in, out;  // bitsets over the registers that cross blocks
};

class Liveness {
  public:
    Liveness(const std::vector<Draft>& drafts, std::size_t registers,
             const std::vector<std::uint32_t>& labels, const std::vector<std::vector<std::uint32_t>>& tables)
        : drafts_(drafts), first_(registers, kNone), last_(registers, 0) {
        split_blocks(labels, tables);
        find_crossing(registers);
        solve();
        extend();
        reserve();
    }
    static constexpr std::uint32_t kNone = ~0u;
    [[nodiscard]] std::uint32_t first(std::size_t r) const { return first_[r]; }
    [[nodiscard]] std::uint32_t last(std::size_t r) const { return last_[r]; }

  private:
    // Calls use(r) and def(r, kills) for the virtual registers of instruction i, uses first.
    template <class Use, class Def>
    void visit(std::uint32_t i, Use use, Def def) const {
        const Draft& d = drafts_[i];
        const bool guarded = d.guard.bank == kBankVirtual && !d.guard.absent;
        if (guarded) use(d.guard.offset);
        for (std::size_t k = 0; k < d.ops.size(); ++k)
            if (d.ops[k].bank == kBankVirtual && (!d.dest[k] || k < d.both)) use(d.ops[k].offset);
        for (std::size_t k = 0; k < d.ops.size(); ++k)
            if (d.ops[k].bank == kBankVirtual && d.dest[k]) def(d.ops[k].offset, !guarded);
    }

    void split_blocks(const std::vector<std::uint32_t>& labels,
                      const std::vector<std::vector<std::uint32_t>>& tables) {
        const auto count = static_cast<std::uint32_t>(drafts_.size());
        std::vector<bool> leader(count + 1, false);
        leader[0] = true;
        for (const std::uint32_t at : labels)
            leader[at] = true;
        for (std::uint32_t i = 0; i < count; ++i)
            if (drafts_[i].flow != Draft::Flow::none) leader[i + 1] = true;
        std::vector<std::uint32_t> block_of(count + 1);
        for (std::uint32_t i = 0; i < count; ++i) {
            if (leader[i]) blocks_.push_back({i, i, {}, {}, {}, {}, {}});
            block_of[i] = static_cast<std::uint32_t>(blocks_.size() - 1);
            blocks_.back().end = i + 1;
        }
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            Block& block = blocks_[b];
            const Draft& d = drafts_[block.end - 1];
            const auto to = [&](std::uint32_t at) {
                if (at < count) block.successors.push_back(block_of[at]);
            };
            if (d.flow == Draft::Flow::branch) to(labels[d.ins.target]);
            if (d.flow == Draft::Flow::table)
                for (const std::uint32_t label : tables[d.ins.target])
                    to(labels[label]);
            const bool guarded = !d.guard.absent;
            if (d.flow == Draft::Flow::none || guarded) to(block.end);
        }
    }

    // Only registers read in a block before that block writes them need a place in the bitsets.
    void find_crossing(std::size_t registers) {
        std::vector<std::uint32_t> written_in(registers, kNone);
        number_.assign(registers, kNone);
        std::uint32_t crossing = 0;
        for (std::uint32_t b = 0; b < blocks_.size(); ++b)
            for (std::uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i)
                visit(
                    i,
                    [&](std::uint32_t r) {
                        if (written_in[r] != b && number_[r] == kNone) number_[r] = crossing++;
                    },
                    [&](std::uint32_t r, bool kills) {
                        if (kills) written_in[r] = b;
                    });
        words_ = (crossing + 63) / 64;
        if (words_ * blocks_.size() > kMostLivenessWords)
            throw PtxUnsupported("A function with " + std::to_string(blocks_.size()) +
                                     " branches and labels and " + std::to_string(crossing) +
                                     " registers alive across them is too large",
                                 {});
        for (Block& block : blocks_) {
            block.use.assign(words_, 0), block.def = block.in = block.out = block.use;
            for (std::uint32_t i = block.begin; i < block.end; ++i)
                visit(
                    i,
                    [&](std::uint32_t r) {
                        if (number_[r] != kNone && !test(block.def, number_[r])) set(block.use, number_[r]);
                    },
                    [&](std::uint32_t r, bool kills) {
                        if (kills && number_[r] != kNone) set(block.def, number_[r]);
                    });
        }
    }

    static bool test(const std::vector<std::uint64_t>& bits, std::uint32_t i) {
        return bits[i / 64] >> (i % 64) & 1;
    }
    static void set(std::vector<std::uint64_t>& bits, std::uint32_t i) {
        bits[i / 64] |= std::uint64_t{1} << (i % 64);
    }

    void solve() {
        for (bool changed = true; changed;) {
            changed = false;
            for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
                for (const std::uint32_t s : block->successors)
                    for (std::size_t w = 0; w < words_; ++w)
                        block->out[w] |= blocks_[s].in[w];
                for (std::size_t w = 0; w < words_; ++w) {
                    const std::uint64_t in = block->use[w] | (block->out[w] & ~block->def[w]);
                    changed |= in != block->in[w];
                    block->in[w] = in;
                }
            }
        }
    }

    void touch(std::uint32_t r, std::uint32_t at) {
        first_[r] = std::min(first_[r], at);
        last_[r] = std::max(last_[r], at);
    }

    void extend() {
        std::vector<std::uint32_t> register_of(words_ * 64, kNone);
        for (std::uint32_t r = 0; r < number_.size(); ++r)
            if (number_[r] != kNone) register_of[number_[r]] = r;
        for (const Block& block : blocks_) {
            for (std::uint32_t i = block.begin; i < block.end; ++i)
                visit(i, [&](std::uint32_t r) { touch(r, i); }, [&](std::uint32_t r, bool) { touch(r, i); });
            for (std::size_t w = 0; w < words_; ++w)
                for (std::uint64_t in = block.in[w], both = in | block.out[w]; both != 0; both &= both - 1) {
                    const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(both));
                    const std::uint32_t r = register_of[w * 64 + bit];
                    if (in >> bit & 1) touch(r, block.begin);
                    if (block.out[w] >> bit & 1) touch(r, block.end);
                }
        }
    }

    // Registers of a multiply, and copies of its accumulators, are in use until it has been waited for: on
    // every way from there up to a wait for all groups.
    void reserve() {
        std::vector<std::uint32_t> block_of(drafts_.size());
        for (std::uint32_t b = 0; b < blocks_.size(); ++b)
            std::fill(block_of.begin() + blocks_[b].begin, block_of.begin() + blocks_[b].end, b);
        std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> beyond;  // of a block's end
        for (std::uint32_t i = 0; i < drafts_.size(); ++i) {
            const Draft& d = drafts_[i];
            const std::uint32_t held = d.part == Draft::Part::move ? 1 : d.held;
            if (held == 0) continue;
            const std::uint32_t block = block_of[i], wait = find_wait(i, blocks_[block].end);
            std::pair<std::uint32_t, std::uint32_t> range{i, wait};
            if (wait == blocks_[block].end) {
                const auto [at, fresh] = beyond.try_emplace(block);
                if (fresh) at->second = in_flight_beyond(block);
                range = {std::min(i, at->second.first), std::max(wait, at->second.second)};
            }
            for (std::uint32_t k = 0; k < held; ++k)
                if (d.ops[k].bank == kBankVirtual)
                    touch(d.ops[k].offset, range.first), touch(d.ops[k].offset, range.second);
        }
    }

    [[nodiscard]] std::uint32_t find_wait(std::uint32_t from, std::uint32_t end) const {
        while (from < end && drafts_[from].part != Draft::Part::wait_for_all)
            ++from;
        return from;
    }

    // First and last instruction that may run between the end of a block and the next wait for all.
    [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> in_flight_beyond(std::uint32_t block) const {
        std::pair<std::uint32_t, std::uint32_t> range{blocks_[block].end, blocks_[block].end};
        std::vector<bool> seen(blocks_.size(), false);
        std::vector<std::uint32_t> todo = blocks_[block].successors;
        while (!todo.empty()) {
            const std::uint32_t b = todo.back();
            todo.pop_back();
            if (seen[b]) continue;
            seen[b] = true;
            const std::uint32_t wait = find_wait(blocks_[b].begin, blocks_[b].end);
            range = {std::min(range.first, blocks_[b].begin), std::max(range.second, wait)};
            if (wait == blocks_[b].end)
                todo.insert(todo.end(), blocks_[b].successors.begin(), blocks_[b].successors.end());
        }
        return range;
    }

    const std::vector<Draft>& drafts_;
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> first_, last_, number_;
    std::size_t words_ = 0;
};

// Hands out slots of one size; a slot comes back when the last reader has read.
class SlotPool {
  public:
    explicit SlotPool(std::uint32_t bytes) : bytes_(bytes) {}

    std::uint32_t take(std::uint32_t first, std::uint32_t last, std::uint32_t& top) {
        // A destination may take the slot of a source that dies in the same instruction: handlers work lane
        // by lane, but some read other lanes (shfl) or write several registers before all are read, so the
        // source must be gone.
        while (!busy_.empty() && busy_.top().first < first)
            free_.push_back(busy_.top().second), busy_.pop();
        std::uint32_t slot;
        if (free_.empty())
            slot = top, top += bytes_;
        else
            slot = free_.back(), free_.pop_back();
        busy_.push({last, slot});
        return slot;
    }

  private:
    using Entry = std::pair<std::uint32_t, std::uint32_t>;
    std::uint32_t bytes_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> busy_;
    std::vector<std::uint32_t> free_;
};

}  // namespace

void number_registers(Kernel& kernel, std::vector<Draft>& drafts,
                      const std::vector<VirtualRegister>& registers, const std::vector<std::uint32_t>& labels,
                      const std::vector<std::vector<std::uint32_t>>& tables) {
    const Liveness live(drafts, registers.size(), labels, tables);
    std::uint32_t top = kSinkBytes, predicates = kFirstPred;
    for (WarpConstant& c : kernel.warp_constants)
        c.slot = top, top += c.bits == 64 ? 256 : 128;

    std::vector<std::uint32_t> order, slot(registers.size(), 0);
    for (std::uint32_t r = 0; r < registers.size(); ++r)
        if (live.first(r) != Liveness::kNone) order.push_back(r);
    std::ranges::sort(order, {}, [&](std::uint32_t r) { return live.first(r); });
    SlotPool narrow(128), wide(256), quad(512), preds(1);
    for (const std::uint32_t r : order) {
        const int bits = registers[r].bits;
        SlotPool& pool = bits == 1 ? preds : bits <= 32 ? narrow : bits == 64 ? wide : quad;
        slot[r] = pool.take(live.first(r), live.last(r), bits == 1 ? predicates : top);
    }
    kernel.register_bytes = top;
    kernel.predicates = predicates;

    for (Draft& d : drafts) {
        for (Operand& o : d.ops) {
            if (o.bank == kBankVirtual) o.offset = slot[o.offset], o.bank = kBankRegisters;
            if (o.bank == kBankWarpConstant)
                o.offset = kernel.warp_constants[o.offset].slot, o.bank = kBankRegisters;
        }
        if (!d.guard.absent) d.ins.guard = static_cast<std::int32_t>(slot[d.guard.offset]);
    }
}

}  // namespace emu
