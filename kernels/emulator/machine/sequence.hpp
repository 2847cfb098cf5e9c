// Launches in stream order. A programmatic launch may start when every CTA of the grid before it has executed
// `griddepcontrol.launch_dependents` or has ended; what it reads before `griddepcontrol.wait` may be stale.
#pragma once

#include <memory>
#include <vector>

#include "machine/machine.hpp"

namespace emu {

class Sequence {
  public:
    // `programmatic`: may run beside the grid added before it.
    void add(std::unique_ptr<Launch> launch, const Kernel& kernel, GlobalMemory memory, bool programmatic);
    // Runs all on one host thread; throws RunError, Interrupted. The policy of each launch says when it
    // starts: eager as soon as it may, lazy when the grid before it has ended, seeded somewhere between.
    std::vector<Statistics> run();
    void stop();

  private:
    struct Entry {
        std::unique_ptr<Launch> launch;
        std::unique_ptr<Grid> grid;
        bool programmatic;
    };
    [[nodiscard]] bool may_start(std::size_t number, std::size_t ended, Random& random) const;
    [[nodiscard]] std::size_t pick(std::size_t ended, std::size_t started, Random& random) const;

    std::vector<Entry> entries_;
};

}  // namespace emu
