// An mbarrier where it lies: the CTA that owns it, and the 64 bits in that CTA's shared memory.
#pragma once

#include "exec/lanes.hpp"
#include "trace/event.hpp"
#include "units/mbarrier.hpp"

namespace emu {

class MbarrierRef {
  public:
    MbarrierRef(Cta& cta, u32 offset) : cta_(&cta), offset_(offset) {}
    // The barrier that a lane's operand names; traps where there is none, or it has not been initialised.
    static MbarrierRef named(Warp& w, const Instruction& i, int lane, Space space, const Operand& o);

    [[nodiscard]] u64 word() const;
    [[nodiscard]] Cta& cta() const { return *cta_; }
    [[nodiscard]] u32 offset() const { return offset_; }
    [[nodiscard]] MbarrierInfo& info() const { return cta_->mbarriers[offset_]; }
    void expect_tx(s32 bytes);
    void complete_tx(s32 bytes);
    void arrive(u32 count);
    void drop(u32 count);         // for good: later phases expect fewer
    void add_pending(u32 count);  // cp.async.mbarrier.arrive without .noinc

  private:
    template <class F>
    void change(Event::Kind kind, u32 amount, F f);  // kind: what the event log calls it
    Cta* cta_;
    u32 offset_;
};

}  // namespace emu
