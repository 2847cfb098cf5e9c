// Loops over arrays of codes and values.
#pragma once

#include <cstdint>
#include <span>

#include "e8m0.hpp"

namespace mlacademy {

// Each pair of spans has one length.
void decode_e4m3(std::span<const std::uint8_t> codes, std::span<float> values);
void encode_e4m3(std::span<const float> values, std::span<std::uint8_t> codes, bool saturate);
void decode_e8m0(std::span<const std::uint8_t> codes, std::span<float> values);
void encode_e8m0(std::span<const float> values, std::span<std::uint8_t> codes, e8m0::Rounding rounding);

}  // namespace mlacademy
