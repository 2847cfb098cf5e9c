// The host addresses of a memory operand, lane by lane. The common cases (own shared memory, one buffer) are
// checked for all lanes at once; anything unusual goes through Warp::resolve, which knows every rule and
// reports failures.
#pragma once

#include "check/monitor.hpp"
#include "exec/lanes.hpp"

namespace emu {

struct Pointers {
    std::byte* at[32];
};

inline void resolve_one_by_one(Warp& w, const Instruction& i, const Operand& o, u32 mask, u32 bytes,
                               Warp::Access access, Pointers& p) {
    for (int l = 0; l < 32; ++l)
        if (mask >> l & 1) p.at[l] = w.resolve(i, l, i.space, w.address(o, l), bytes, access);
}

inline void resolve_all(Warp& w, const Instruction& i, const Operand& o, u32 mask, u32 bytes,
                        Warp::Access access, Pointers& p) {
    if (mask != ~0u || w.log() != nullptr) return resolve_one_by_one(w, i, o, mask, bytes, access, p);
    u64 a[32];
    const u64 imm = static_cast<u64>(o.imm);
    if (o.bits == 64) {
        const u64* base = w.in<u64>(o);
        for (int l = 0; l < 32; ++l)
            a[l] = base[l] + imm;
    } else {
        const u32* base = w.in<u32>(o);
        for (int l = 0; l < 32; ++l)
            a[l] = static_cast<u32>(base[l] + static_cast<u32>(imm));
    }
    const u64 unaligned = bytes - 1;
    if (i.space == Space::shared) {
        Cta& cta = w.cta();
        if (bytes > cta.shared_bytes()) return resolve_one_by_one(w, i, o, mask, bytes, access, p);
        const u64 base = static_cast<u64>(cta.rank) << kRankShift, last = cta.shared_bytes() - bytes;
        u64 bad = 0;
        for (int l = 0; l < 32; ++l)
            bad |= static_cast<u64>(a[l] - base > last) | (a[l] & unaligned);
        if (bad == 0) {
            for (int l = 0; l < 32; ++l)
                p.at[l] = cta.shared() + (a[l] - base);
            return;
        }
    } else if (i.space == Space::global || i.space == Space::generic) {
        const Range* hint = w.cta().hints[static_cast<std::size_t>(&i - w.kernel().code.data()) & 15];
        if (hint != nullptr && bytes <= hint->size && (access == Warp::Access::read || hint->writable)) {
            const u64 last = hint->size - bytes;
            u64 bad = 0;
            for (int l = 0; l < 32; ++l)
                bad |= static_cast<u64>(a[l] - hint->begin > last) | (a[l] & unaligned);
            if (bad == 0) {
                for (int l = 0; l < 32; ++l)
                    p.at[l] = reinterpret_cast<std::byte*>(a[l]);
                return;
            }
        }
    } else if (o.bank == 1 && i.space == Space::param) {  // a kernel parameter: the same place for every lane
        std::byte* const place = w.resolve(i, 0, i.space, a[0], bytes, access);
        for (int l = 0; l < 32; ++l)
            p.at[l] = place;
        return;
    }
    resolve_one_by_one(w, i, o, mask, bytes, access, p);
}

// Tells the checks, if there are any, what an instruction does with resolved addresses.
inline void observe(Warp& w, const Instruction& i, u32 mask, std::byte* const* at, u32 bytes,
                    Warp::Access access, bool strong = false) {
    if (Monitor* const m = w.monitor()) m->access(w, i, mask, at, bytes, access, strong);
}

}  // namespace emu
