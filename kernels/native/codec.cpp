#include "codec.hpp"

#include <cstddef>

#include "dispatch.hpp"
#include "e4m3.hpp"

namespace mlacademy {
namespace {

MLACADEMY_VECTOR
void decode_loop(const std::uint8_t* codes, float* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = e4m3::decode(codes[i]);
    }
}

MLACADEMY_VECTOR
void encode_loop(const float* values, std::uint8_t* codes, std::size_t count, std::uint32_t overflow) {
    for (std::size_t i = 0; i < count; ++i) {
        codes[i] = e4m3::encode(values[i], overflow);
    }
}

}  // namespace

void decode_e4m3(std::span<const std::uint8_t> codes, std::span<float> values) {
    decode_loop(codes.data(), values.data(), codes.size());
}

void encode_e4m3(std::span<const float> values, std::span<std::uint8_t> codes, bool saturate) {
    encode_loop(values.data(), codes.data(), values.size(), saturate ? e4m3::kMax : e4m3::kNaN);
}

void decode_e8m0(std::span<const std::uint8_t> codes, std::span<float> values) {
    for (std::size_t i = 0; i < codes.size(); ++i) {
        values[i] = e8m0::decode(codes[i]);
    }
}

void encode_e8m0(std::span<const float> values, std::span<std::uint8_t> codes, e8m0::Rounding rounding) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        codes[i] = e8m0::encode(values[i], rounding);
    }
}

}  // namespace mlacademy
