// What the event log keeps of a run: small records in the order in which they happened in a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "units/async_queue.hpp"

namespace emu {

constexpr std::uint16_t kNoWarp = 0xffff;  // an asynchronous operation did it
constexpr std::uint32_t kNever = ~0u;      // no phase: the barrier was fresh

struct Event {
    enum class Kind : std::uint8_t {
        run,     // instructions pc … x-1 in a straight line; y: lanes; object: lane-instructions
        access,  // of memory by the instruction at pc, which follows in a run: see AccessBits
        wait,    // the instruction at pc stands still. detail: Waited; object and y as for `pass`
        pass,    // a wait is over. object: what was waited for; y: phase, generation, or groups left open
        init,    // of the mbarrier at `object` in CTA `owner`; x: arrivals of a phase
        inval,   // of the same
        arrive,  // x arrivals for phase y
        drop,    // x arrivals for phase y and for all later ones
        expect_arrive,  // x more arrivals expected in phase y
        expect_tx,      // x bytes expected in phase y
        complete_tx,    // x bytes have come in phase y
        phase,          // phase y is over
        bar_arrive,     // x threads at named barrier `object`, generation y
        bar_phase,      // generation y is over
        cluster_come,   // x threads at the cluster's barrier, generation y
        cluster_phase,  // generation y is over
        commit,         // of a group. detail: Group
        issue,          // of asynchronous operation `object`
        fetched,        // its sources have been read
        landed,         // it is done; events of no warp that follow are its signal
        role,           // object: name
        exit,           // of the warp
    } kind;
    std::uint8_t detail = 0;
    std::uint16_t cta = 0, warp = kNoWarp, owner = 0;
    std::uint32_t pc = 0, object = 0, x = 0, y = 0;
};
static_assert(sizeof(Event) == 24, "the log is the largest thing in memory while a kernel is traced");

enum class Waited : std::uint8_t { mbarrier, barrier, cluster, copies, bulk, bulk_reads, wgmma, lanes };
enum class Group : std::uint8_t { copies, bulk, wgmma, none };

// Event::detail of an access: space, and whether it reads, writes or both. `owner` counts the 128-byte passes
// over shared memory's banks, or the 32-byte sectors of global memory.
//   shared  cta and object: buffer; x, y: first and last byte relative to the CTA's shared memory
//   global  object: number of the first 128-byte line (low 32 bits); x: lines
enum AccessBits : std::uint8_t { kReads = 1, kWrites = 2, kGlobal = 4, kRemote = 8 };

struct Stretch {  // of a named buffer, or of global memory
    std::uint16_t cta = 0;
    std::uint32_t buffer = 0, first = 0, bytes = 0;  // buffer: kGlobalBuffer for global memory
};
constexpr std::uint32_t kGlobalBuffer = ~0u;

struct Operation {
    AsyncKind kind;
    std::uint16_t cta = 0, warp = 0;
    std::uint32_t pc = 0, lanes = 0, bytes = 0, rows = 0;  // rows: contiguous stretches in global memory
    bool from_global = false, remote = false;
    Signal signal;
    std::vector<std::uint32_t> after;
    std::vector<Stretch> reads, writes;
};

struct Buffer {
    std::uint16_t cta;
    std::uint32_t offset, bytes;
    std::string name;
};

}  // namespace emu
