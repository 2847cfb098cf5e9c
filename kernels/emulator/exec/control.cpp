// Branches, exits, traps, and printf.
#include <cstdio>
#include <cstring>

#include "exec/call.hpp"
#include "exec/pointers.hpp"
#include "exec/setmaxnreg.hpp"

namespace emu {
namespace {

Step bra(Warp& w, const Instruction& i, u32 mask) {
    return w.branch(i.target, mask);
}
Step brx(Warp& w, const Instruction& i, u32 mask) {
    const auto& table = w.kernel().branch_tables[i.target];
    const u32* index = w.in<u32>(i.op[0]);
    u32 pc[32];
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        if (index[l] >= table.size())
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' with index " + std::to_string(index[l]) + " into a table of " +
                       std::to_string(table.size()) + " labels");
        pc[l] = table[index[l]];
    }
    return w.scatter(pc, mask);
}
Step leave(Warp& w, const Instruction& i, u32 mask) {
    if (mask == w.alive()) check_budgets(w, i);
    return w.exit(mask);
}
Step trap(Warp& w, const Instruction& i, u32 mask) {
    w.trap(i, mask, "The kernel executed '" + w.text(i) + "'");
}
// Ends the turn, so that a dependent grid may start between this instruction and the next.
Step launch_dependents(Warp& w, const Instruction&, u32) {
    w.cta().let_dependents_start();
    return Step::yield;
}
Step grid_wait(Warp& w, const Instruction&, u32) {
    w.split().resumed = false;
    if (!w.cta().cluster().grid().may_go_on()) return w.park({.kind = Wait::Kind::grid});
    return Step::next;
}
Step nanosleep(Warp&, const Instruction&, u32) {
    return Step::yield;
}

// Reads a zero-terminated string of the guest, with bounds checks byte by byte.
std::string guest_string(Warp& w, const Instruction& i, int lane, u64 address) {
    std::string text;
    for (; text.size() < 65536; ++address) {
        const auto c = static_cast<char>(*w.resolve(i, lane, Space::generic, address, 1, Warp::Access::read));
        if (c == '\0') break;
        text += c;
    }
    return text;
}

// One printf of one lane. The values lie in a buffer, each aligned to its size (4 or 8 bytes).
std::string format(Warp& w, const Instruction& i, int lane, const std::string& format_text, u64 values) {
    std::string out;
    u64 at = 0;
    const auto next = [&](u32 size) {
        at = (at + size - 1) / size * size;
        u64 v = 0;
        std::memcpy(&v, w.resolve(i, lane, Space::generic, values + at, size, Warp::Access::read), size);
        at += size;
        return v;
    };
    for (std::size_t c = 0; c < format_text.size(); ++c) {
        if (format_text[c] != '%') {
            out += format_text[c];
            continue;
        }
        if (c + 1 < format_text.size() && format_text[c + 1] == '%') {
            out += '%', ++c;
            continue;
        }
        std::string spec = "%";
        bool wide = false;
        for (++c; c < format_text.size() && std::strchr("-+ #0123456789.*lhzjt", format_text[c]) != nullptr;
             ++c) {
            const char f = format_text[c];
            if (f == '*')
                spec += std::to_string(static_cast<s32>(next(4)));
            else if (std::strchr("lhzjt", f) == nullptr && spec.size() < 24)
                spec += f;
            else
                wide |= f == 'l' || f == 'z' || f == 'j' || f == 't';
        }
        const char kind = c < format_text.size() ? format_text[c] : '\0';
        char text[512];
        if (std::strchr("di", kind) != nullptr && kind != '\0') {
            const u64 v = next(wide ? 8 : 4);
            std::snprintf(text, sizeof text, (spec + "lld").c_str(),
                          wide ? static_cast<long long>(v) : static_cast<long long>(static_cast<s32>(v)));
        } else if (std::strchr("uxXoc", kind) != nullptr && kind != '\0') {
            const u64 v = next(wide ? 8 : 4);
            if (kind == 'c')
                std::snprintf(text, sizeof text, (spec + 'c').c_str(), static_cast<int>(v));
            else
                std::snprintf(text, sizeof text, (spec + "ll" + kind).c_str(),
                              static_cast<unsigned long long>(v));
        } else if (kind == 'p') {
            std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(next(8)));
        } else if (std::strchr("fFeEgGaA", kind) != nullptr && kind != '\0') {
            std::snprintf(text, sizeof text, (spec + kind).c_str(), std::bit_cast<double>(next(8)));
        } else if (kind == 's') {
            const std::string s = guest_string(w, i, lane, next(8));
            if (spec == "%") {
                out += s;
                continue;
            }
            std::snprintf(text, sizeof text, (spec + 's').c_str(), s.c_str());
        } else {
            std::snprintf(text, sizeof text, "%%%c", kind == '\0' ? ' ' : kind);
        }
        out += text;
    }
    return out;
}

u64 argument(Warp& w, const Instruction& i, int lane, int number) {
    u64 v;
    std::memcpy(&v, w.resolve(i, lane, Space::local, w.address(i.op[number], lane), 8, Warp::Access::read),
                8);
    return v;
}

Step print(Warp& w, const Instruction& i, u32 mask) {
    std::string out;
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        out += format(w, i, l, guest_string(w, i, l, argument(w, i, l, 0)), argument(w, i, l, 1));
        if (i.count <= 2) continue;
        Pointers result;
        result.at[l] = w.resolve(i, l, Space::local, w.address(i.op[2], l), 4, Warp::Access::write);
        observe(w, i, 1u << l, result.at, 4, Warp::Access::write);
        std::memset(result.at[l], 0, 4);
    }
    w.cta().cluster().grid().print(out);
    return Step::next;
}
Step assert_failed(Warp& w, const Instruction& i, u32 mask) {
    const int lane = std::countr_zero(mask);
    u32 line = 0;
    if (i.count > 2)
        std::memcpy(&line, w.resolve(i, lane, Space::local, w.address(i.op[2], lane), 4, Warp::Access::read),
                    4);
    const std::string text = guest_string(w, i, lane, argument(w, i, lane, 0));
    w.trap(i, mask,
           "Assertion failed: " + text + (line > 0 ? ", line " + std::to_string(line) : std::string()));
}

}  // namespace

void select_bra(const Choice&, Instruction& i) {
    i.run = bra;
}
void select_brx(const Choice&, Instruction& i) {
    i.run = brx;
}
void select_exit(const Choice&, Instruction& i) {
    i.run = leave;
}
void select_ret(const Choice&, Instruction& i) {
    const auto how = static_cast<Return>(i.aux);
    i.run = how == Return::exit ? leave : how == Return::jump ? bra : return_from_call;
}
void select_trap(const Choice&, Instruction& i) {
    i.run = trap;
}
void select_griddepcontrol(const Choice& c, Instruction& i) {
    i.run = c.has(Mod::wait) ? grid_wait : launch_dependents;
}
void select_nanosleep(const Choice&, Instruction& i) {
    i.run = nanosleep;
}
void select_call(const Choice&, Instruction& i) {
    i.run = i.aux == 0 ? print : assert_failed;
}

}  // namespace emu
