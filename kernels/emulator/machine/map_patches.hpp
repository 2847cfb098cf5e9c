// Changes that the device makes to tensor maps, and whether the copy engine may rely on them. A map carries
// the number of its last change; the number is "open" until a CTA's release fence, and a CTA may use a
// changed map after its acquire fence has seen these bytes.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

#include "units/tensor_map.hpp"

namespace emu {

class Cta;

// Of a grid: changes made and not yet released.
class MapPatches {
  public:
    [[nodiscard]] std::uint64_t make(const Cta* by) {
        const std::lock_guard lock(mutex_);
        open_[++last_] = by;
        return last_;
    }
    void release(const Cta* by) {
        const std::lock_guard lock(mutex_);
        std::erase_if(open_, [by](const auto& entry) { return entry.second == by; });
    }
    [[nodiscard]] bool released(std::uint64_t patch) {
        const std::lock_guard lock(mutex_);
        return !open_.contains(patch);
    }

  private:
    std::mutex mutex_;
    std::uint64_t last_ = 0;
    std::map<std::uint64_t, const Cta*> open_;
};

// Of a CTA: maps as its acquire fences saw them.
class AcquiredMaps {
  public:
    void acquire(std::uint64_t address, tensor_map::ConstRecord record) {
        std::memcpy(seen_[address].data(), record.data(), record.size());
    }
    [[nodiscard]] bool holds(std::uint64_t address, tensor_map::ConstRecord record) const {
        const auto found = seen_.find(address);
        return found != seen_.end() && std::memcmp(found->second.data(), record.data(), record.size()) == 0;
    }

  private:
    std::map<std::uint64_t, std::array<std::byte, tensor_map::kBytes>> seen_;
};

}  // namespace emu
