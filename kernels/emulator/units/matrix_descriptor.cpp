#include "units/matrix_descriptor.hpp"

namespace emu {

MatrixDescriptor MatrixDescriptor::decode(std::uint64_t bits) {
    const auto field = [&](int from) { return static_cast<std::uint32_t>(bits >> from & 0x3fff) << 4; };
    constexpr std::uint32_t kSpans[] = {0, 128, 64, 32};
    constexpr std::uint64_t kFields = 0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 7ull << 49 | 3ull << 62;
    return {.start = field(0),
            .leading = field(16),
            .stride = field(32),
            .base = static_cast<std::uint32_t>(bits >> 49 & 7),
            .span = kSpans[bits >> 62],
            .stray = bits & ~kFields};
}

void piece_addresses(const MatrixDescriptor& d, bool k_major, std::uint32_t first, std::uint32_t lines,
                     std::span<std::uint32_t> addresses) {
    // Bits 4 to 6 of the address are permuted by the bits from 7 on: as many as the span has pieces.
    const std::uint32_t permuted = d.span == 0 ? 0 : d.span / 16 - 1;
    std::size_t piece = 0;
    const auto put = [&](std::uint32_t offset) {
        const std::uint32_t at = (d.start + offset) & kMatrixAddressMask;
        addresses[piece++] = at ^ ((((at >> 7) - d.base) & permuted) << 4);
    };
    if (k_major) {
        const std::uint32_t row = d.span == 0 ? 16 : d.span, half = d.span == 0 ? d.leading : 16;
        for (std::uint32_t line = first; line < first + lines; ++line)
            for (std::uint32_t h = 0; h < 2; ++h)
                put(line % 8 * row + line / 8 * d.stride + h * half);
        return;
    }
    for (std::uint32_t k = 0; k < 16; ++k)
        for (std::uint32_t line = first; line < first + lines; line += 8) {
            if (d.span == 0) {
                put(line / 8 * d.stride + k % 8 * 16 + k / 8 * d.leading);
            } else {
                const std::uint32_t wide = d.span / 2;  // lines in a row
                put(line % wide * 2 + line / wide * d.leading + k % 8 * d.span + k / 8 * d.stride);
            }
        }
}

}  // namespace emu
