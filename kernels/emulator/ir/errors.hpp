// Three phases, three kinds of error, and two reports of their own. Every one carries where it happened; the
// first line of `what()` is one plain sentence.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace emu {

struct Where {
    std::string kernel = {};
    int ptx_line = 0;
    std::string source_file = {};  // from .loc, empty where the PTX has none
    int source_line = 0;
    std::string inner_file = {};  // of inlined code: where it stands, while source_line called it
    int inner_line = 0;
};

// "kernel saxpy, saxpy.cu line 7 (PTX line 31)"
[[nodiscard]] std::string describe(const Where& where);

class PtxError : public std::runtime_error {
  public:
    PtxError(const std::string& text, Where where) : std::runtime_error(text), where(std::move(where)) {}
    Where where;
};
class PtxSyntaxError : public PtxError {  // the text is not PTX
    using PtxError::PtxError;
};
class PtxInvalid : public PtxError {  // it is PTX, but breaks a rule of the instruction
    using PtxError::PtxError;
};
class PtxUnsupported : public PtxError {  // it may be legal; this emulator does not run it
    using PtxError::PtxError;
};

class RunError : public std::runtime_error {
  public:
    RunError(const std::string& text, Where where) : std::runtime_error(text), where(std::move(where)) {}
    Where where;
    std::uint32_t cta[3] = {0, 0, 0};
    std::string rule;  // which rule was broken, a word that graders match: bounds, race, deadlock …
    int warp = -1;
    std::string role;  // what the kernel calls the warp
    std::uint32_t lanes = 0;
    std::uint64_t address = 0;
    std::string object;  // the buffer, variable or barrier concerned
};
// The guest did something that is never right, although a GPU may let it pass.
class KernelTrap : public RunError {
  public:
    using RunError::RunError;
    int other_warp = -1;  // of a race: the access that came before
    Where other;
};
// Some lanes of a warp that cannot go on. For an mbarrier also its state: the phase's parity, arrivals
// pending of those expected, bytes announced that have not landed (negative: landed unannounced), phases
// completed.
struct Waiting {
    std::uint32_t cta, warp, lanes;
    // mbarrier, barrier, cluster, warp, copies, multiplies (of wgmma), registers (setmaxnreg)
    std::string kind;
    std::string object;
    std::uint32_t offset = 0, parity = 0, phase = 0, pending = 0, expected = 0;
    std::int64_t tx = 0;
    std::uint64_t completed = 0;
    Where where;
};
class Deadlock : public RunError {  // nothing can run any more
  public:
    using RunError::RunError;
    std::vector<Waiting> waits;
};
class Runaway : public RunError {  // the step budget is used up
    using RunError::RunError;
};
class TraceFull : public RunError {  // more events than the trace may keep
    using RunError::RunError;
};
class LaunchInvalid : public std::invalid_argument {  // the caller's launch arguments
    using std::invalid_argument::invalid_argument;
};
class Interrupted : public std::exception {};  // Ctrl-C

}  // namespace emu
