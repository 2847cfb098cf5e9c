// Calls of functions that are not inlined, and memory on a thread's stack. A call takes along any subset of a
// warp's lanes; each lane has its own frame and comes back to where it called.
#include "exec/call.hpp"

#include <algorithm>
#include <cstring>

#include "exec/pointers.hpp"
#include "machine/call_stack.hpp"

namespace emu {
namespace {

constexpr u32 kFrameOverhead = 16;  // so that a function without variables cannot recurse for ever

u32 round_up(u32 value, u32 align) {
    return (value + align - 1) / align * align;
}
std::size_t lane_bytes(const Operand& o) {
    return o.bits <= 32 ? 4 : o.bits == 64 ? 8 : 16;
}
std::byte* lane_part(Warp& w, const Operand& o, int lane) {
    return w.out<std::byte>(o) + lane_bytes(o) * static_cast<std::size_t>(lane);
}

std::string sizes(const std::vector<Place>& places) {
    std::string text;
    for (const Place& p : places)
        text += (text.empty() ? "" : ", ") + std::to_string(p.size);
    return text.empty() ? "no" : text;
}
bool same_sizes(const std::vector<Place>& a, const std::vector<Place>& b) {
    return std::ranges::equal(a, b, {}, &Place::size, &Place::size);
}

u32 find_function(Warp& w, const Instruction& i, const CallSite& site, int lane) {
    const u64 address = w.value(i.op[0], lane);
    const auto& functions = w.kernel().functions;
    const auto found = std::ranges::find(functions, address, &Function::address);
    if (found == functions.end())
        w.trap(i, 1u << lane,
               "Call through a pointer that holds " + std::to_string(address) +
                   ", which is no function of this module",
               address);
    if (!same_sizes(found->params, site.arguments) || !same_sizes(found->returns, site.results))
        w.trap(i, 1u << lane,
               "Call through a pointer to '" + found->name + "', which takes " + sizes(found->params) +
                   " bytes and gives " + sizes(found->returns) + "; the call passes " +
                   sizes(site.arguments) + " and wants " + sizes(site.results),
               address, found->name);
    return static_cast<u32>(found - functions.begin());
}

// What a call copies counts as written.
void copy_observed(Warp& w, const Instruction& i, int lane, std::byte* to, const std::byte* from, u32 bytes) {
    Pointers p;
    p.at[lane] = to;
    observe(w, i, 1u << lane, p.at, bytes, Warp::Access::write);
    std::memcpy(to, from, bytes);
}

// Moves one lane into a new frame.
void push(Warp& w, const Instruction& i, u32 number, int lane) {
    const Kernel& k = w.kernel();
    const Function& f = k.functions[number];
    const CallSite& site = k.call_sites[i.target];
    CallStack& stack = w.stack();
    u32& top = stack.top[static_cast<std::size_t>(lane)];
    auto& frames = stack.frames[static_cast<std::size_t>(lane)];
    u64& frame = w.frame()[lane];

    CallFrame call{number, i.target, w.split().pc + 1, frame, top, {}, {}};
    for (const Operand& o : f.registers) {
        const std::byte* part = lane_part(w, o, lane);
        call.saved.insert(call.saved.end(), part, part + lane_bytes(o));
    }
    for (const u32 p : f.predicates)
        call.saved_flags.push_back((w.predicates()[p] >> lane & 1) != 0);

    const u32 base = round_up(top, f.frame_align);
    const u64 end = base + u64{f.frame_bytes} + kFrameOverhead + call.saved.size();
    if (end > k.local_bytes)
        w.trap(i, 1u << lane,
               "Stack overflow: the call of '" + f.name + "', " + std::to_string(frames.size() + 1) +
                   " calls deep, goes beyond the " + std::to_string(kStackBytes) +
                   " bytes that a thread has for calls",
               0, f.name);
    std::byte* const local = w.local(lane);
    std::memset(local + base, 0xff, f.frame_bytes);
    for (std::size_t a = 0; a < site.arguments.size(); ++a)
        copy_observed(w, i, lane, local + base + f.params[a].offset, local + frame + site.arguments[a].offset,
                      f.params[a].size);
    frames.push_back(std::move(call));
    frame = base;
    top = static_cast<u32>(end);
}

// Moves one lane back; gives where it goes on.
u32 pop(Warp& w, const Instruction& i, int lane) {
    const Kernel& k = w.kernel();
    CallStack& stack = w.stack();
    auto& frames = stack.frames[static_cast<std::size_t>(lane)];
    const CallFrame call = std::move(frames.back());
    frames.pop_back();
    const Function& f = k.functions[call.function];
    const CallSite& site = k.call_sites[call.site];
    u64& frame = w.frame()[lane];
    std::byte* const local = w.local(lane);
    for (std::size_t r = 0; r < site.results.size(); ++r)
        copy_observed(w, i, lane, local + call.caller_frame + site.results[r].offset,
                      local + frame + f.returns[r].offset, f.returns[r].size);
    std::size_t at = 0;
    for (const Operand& o : f.registers) {
        std::memcpy(lane_part(w, o, lane), call.saved.data() + at, lane_bytes(o));
        at += lane_bytes(o);
    }
    for (std::size_t p = 0; p < f.predicates.size(); ++p) {
        u32& flags = w.predicates()[f.predicates[p]];
        flags = (flags & ~(1u << lane)) | static_cast<u32>(call.saved_flags[p]) << lane;
    }
    frame = call.caller_frame;
    stack.top[static_cast<std::size_t>(lane)] = call.caller_top;
    return call.return_pc;
}

Step enter(Warp& w, const Instruction& i, u32 mask) {
    const CallSite& site = w.kernel().call_sites[i.target];
    u32 number[32], pc[32];
    for (int l = 0; l < 32; ++l)
        if (mask >> l & 1)
            number[l] = site.function < 0 ? find_function(w, i, site, l) : static_cast<u32>(site.function);
    for (int l = 0; l < 32; ++l)
        if (mask >> l & 1) push(w, i, number[l], l), pc[l] = w.kernel().functions[number[l]].entry;
    return w.scatter(pc, mask);
}

Step frame_address(Warp& w, const Instruction& i, u32 mask) {
    if (i.op[0].bits == 64)
        each_lane(w.out<u64>(i.op[0]), mask, [&](int l) { return w.address(i.op[1], l); });
    else
        each_lane(w.out<u32>(i.op[0]), mask, [&](int l) { return static_cast<u32>(w.address(i.op[1], l)); });
    return Step::next;
}

template <class T>
Step allocate(Warp& w, const Instruction& i, u32 mask) {
    const u32 align = i.op[2].absent ? 16 : static_cast<u32>(i.op[2].imm);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        u32& top = w.stack().top[static_cast<std::size_t>(l)];
        const u64 start = round_up(top, align), size = w.value(i.op[1], l);
        if (size > w.kernel().local_bytes || start + size > w.kernel().local_bytes)
            w.trap(i, 1u << l,
                   "Stack overflow: '" + w.text(i) + "' of " + std::to_string(size) + " bytes, " +
                       std::to_string(w.kernel().local_bytes - top) + " are left");
        std::memset(w.local(l) + start, 0xff, size);
        top = static_cast<u32>(start + size);
        w.out<T>(i.op[0])[l] = static_cast<T>(start);
    }
    return Step::next;
}
template <class T>
Step save_stack(Warp& w, const Instruction& i, u32 mask) {
    each_lane(w.out<T>(i.op[0]), mask,
              [&](int l) { return static_cast<T>(w.stack().top[static_cast<std::size_t>(l)]); });
    return Step::next;
}
Step restore_stack(Warp& w, const Instruction& i, u32 mask) {
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        u32& top = w.stack().top[static_cast<std::size_t>(l)];
        const u64 wanted = w.value(i.op[0], l);
        if (wanted > top || wanted < w.frame()[l])
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' with " + std::to_string(wanted) +
                       ", which no 'stacksave' of this function gave");
        top = static_cast<u32>(wanted);
    }
    return Step::next;
}

}  // namespace

Step return_from_call(Warp& w, const Instruction& i, u32 mask) {
    u32 pc[32];
    for (int l = 0; l < 32; ++l)
        if (mask >> l & 1) pc[l] = pop(w, i, l);
    return w.scatter(pc, mask);
}

void select_enter(const Choice&, Instruction& i) {
    i.run = enter;
}
void select_frame_address(const Choice&, Instruction& i) {
    i.run = frame_address;
}
void select_alloca(const Choice& c, Instruction& i) {
    const s64 align = i.op[2].absent ? 16 : i.op[2].imm;
    if (align < 1 || align > 4096 || (align & (align - 1)) != 0)
        throw SelectError("the alignment must be a power of two up to 4096", true);
    i.run = c.type(0) == Type::u64 ? allocate<u64> : allocate<u32>;
}
void select_stacksave(const Choice& c, Instruction& i) {
    i.run = c.type(0) == Type::u64 ? save_stack<u64> : save_stack<u32>;
}
void select_stackrestore(const Choice&, Instruction& i) {
    i.run = restore_stack;
}

}  // namespace emu
