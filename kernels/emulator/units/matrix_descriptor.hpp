// Where wgmma finds a matrix in shared memory: the 64-bit descriptor, and the address of every 16 bytes.
#pragma once

#include <cstdint>
#include <span>

namespace emu {

// All in bytes. The start and the offsets have 18 bits, of which the low four are zero.
struct MatrixDescriptor {
    std::uint32_t start, leading, stride;
    std::uint32_t base;   // where the swizzle pattern starts, in rows of 128 bytes
    std::uint32_t span;   // of a swizzled row: 128, 64 or 32; 0 without swizzle
    std::uint64_t stray;  // bits that must be zero

    [[nodiscard]] static MatrixDescriptor decode(std::uint64_t bits);
};

constexpr std::uint32_t kMatrixAddressMask = 0x3ffff;  // addresses wrap at 256 KiB

// A piece is 16 bytes that lie together. A slice of K has 32 bytes for every type, so that a line (a row of A
// or a column of B) has two pieces:
//   K-major   piece 2 · line + half
//   MN-major  piece k · lines / 8 + line / 8, eight lines of one k; elements of 16 bits
// Fills in the address of each piece of `lines` lines from `first` on; both are multiples of 8.
void piece_addresses(const MatrixDescriptor& d, bool k_major, std::uint32_t first, std::uint32_t lines,
                     std::span<std::uint32_t> addresses);

}  // namespace emu
