// The compact form that the interpreter runs: one Instruction a PTX statement, registers already numbered.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/types.hpp"

namespace emu {

class Warp;
struct Instruction;

// What the interpreter does after a handler.
enum class Step : std::uint8_t {
    next,   // go on with the following instruction
    jump,   // the handler has set the splits' program counters itself
    park,   // not done: run the same instruction again once the split's wait is over
    yield,  // done, and let other warps run now
};
using Handler = Step (*)(Warp&, const Instruction&, std::uint32_t mask);

struct Operand {
    std::uint32_t offset = 0;  // bytes from the start of its bank; for a predicate its number
    std::uint8_t bank = 0;     // 0 the warp's registers, 1 the kernel's constants
    std::uint8_t bits = 0;     // width of the register as declared; 1 for a predicate
    bool negated = false;      // !p
    bool absent = false;       // an optional operand that was left out
    std::int64_t imm = 0;      // address: displacement; immediate: its value
};

constexpr std::int32_t kNoGuard = -1;

struct Instruction {
    Handler run = nullptr;
    const Operand* op = nullptr;    // every operand of the signature in PTX order, vectors flattened
    std::uint16_t count = 0;        // operands behind `op`
    std::uint16_t written = 0;      // the first so many of them are destinations
    std::uint8_t vector = 1;        // length given by .v2, .x4 …
    Space space = Space::generic;   // of a memory operand
    std::int32_t guard = kNoGuard;  // predicate number
    bool guard_negated = false;
    std::uint32_t target = 0;  // branch target, or the number of a branch table
    std::uint64_t aux = 0;     // the handler's own: flags and small immediates
    std::int32_t ptx_line = 0;
    std::int32_t source_file = 0;  // number in Kernel::files, 0 = unknown
    std::int32_t source_line = 0;
    std::int32_t inner_file = 0, inner_line = 0;  // of code inlined from another file: where it stands
    std::int32_t text = -1;                       // number in Kernel::texts: the opcode as written
    std::int32_t watch = -1;                      // number in Kernel::watches
};

struct Param {
    std::string name;
    std::uint32_t offset = 0, size = 0, align = 1;
    Type type = Type::none;  // b8 for a blob
    bool blob = false;
};

// Values that are fixed while a warp lives (special registers, addresses of shared variables) have register
// slots, filled when the warp starts.
struct WarpConstant {
    enum class Kind : std::uint8_t { special, shared_address, frame } kind;
    std::uint32_t number;  // special register, or offset in shared memory; a frame starts at 0
    std::uint32_t slot;    // byte offset in the register file
    std::uint8_t bits;
};

// An instruction other than wgmma that touches registers of a wgmma: what it does, and which of its operands
// those are, a bit each.
struct Watch {
    Handler run;
    std::uint64_t reads, writes;
    bool move;  // copies a register of a wgmma
};

struct SharedObject {
    std::string name;
    std::uint32_t offset, size;
};

struct Place {
    std::uint32_t offset, size;  // bytes, in a frame
};
// A device function that is called. Its frame in local memory holds its parameters, results and variables.
struct Function {
    std::string name;
    std::uint64_t address = 0;  // what a pointer to it holds
    std::uint32_t entry = 0, frame_bytes = 0, frame_align = 16;
    std::vector<Place> params, returns;
    // What its body writes. The caller may hold values there, so a call saves the lanes that it takes along.
    std::vector<Operand> registers;
    std::vector<std::uint32_t> predicates;
};
struct CallSite {
    std::int32_t function = -1;             // number in Kernel::functions; -1: the operand says which
    std::vector<Place> arguments, results;  // in the caller's frame
};
constexpr std::uint32_t kStackBytes = 65536;  // a thread's local memory for the frames of called functions

struct Kernel {
    std::string name;
    std::vector<Instruction> code;
    std::vector<std::unique_ptr<Operand[]>> operand_store;
    std::vector<std::vector<std::uint32_t>> branch_tables;
    std::vector<Function> functions;
    std::vector<CallSite> call_sites;
    std::vector<std::byte> constants;  // 32 equal lanes each
    std::vector<WarpConstant> warp_constants;
    std::vector<Param> params;
    std::vector<std::string> texts, files, names;  // names: of roles and buffers, given by markers
    std::vector<SharedObject> shared_objects;
    std::vector<Watch> watches;
    std::uint32_t param_bytes = 0, register_bytes = 0, predicates = 0;
    std::uint32_t entry = 0;        // where warps start
    std::uint32_t frame_bytes = 0;  // the kernel's own frame, at the start of local memory
    std::uint32_t frame_slot = 0;   // where each lane's current frame starts, in the register file
    std::uint32_t local_bytes = 0;  // of a thread in all
    std::uint32_t static_shared_bytes = 0, dynamic_shared_align = 1;
    std::array<std::uint32_t, 3> maxntid{}, reqntid{}, reqnctapercluster{};
    std::uint32_t minnctapersm = 0, maxclusterrank = 0, maxnreg = 0;
    bool uses_dynamic_shared = false;
};

// What `ret` does, in its `aux`: ends the thread, goes behind an inlined body, or goes back to the caller.
enum class Return : std::uint8_t { exit, jump, pop };

// Set in `aux` of bar.warp.sync: lanes may meet at different instructions.
constexpr std::uint64_t kMeetsElsewhere = std::uint64_t{1} << 63;

// Register slots every kernel has: a sink for `_`, and predicates that are always false and always true.
constexpr std::uint32_t kSinkBytes = 512;
constexpr std::uint32_t kPredFalse = 0, kPredTrue = 1, kPredSink = 2, kFirstPred = 3;

}  // namespace emu
