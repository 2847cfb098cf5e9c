#include "cache.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "dispatch.hpp"
#include "e4m3.hpp"
#include "e8m0.hpp"

namespace mlacademy {
namespace {

// The magnitudes of non-negative floats order like their bits, NaN above infinity: one integer maximum finds
// amax and every non-finite value.
MLACADEMY_VECTOR
std::uint32_t max_magnitude(const float* x, std::ptrdiff_t count) {
    std::uint32_t largest = 0;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
        largest = std::max(largest, magnitude_bits(x[i]));
    }
    return largest;
}

MLACADEMY_VECTOR
std::uint32_t max_magnitude(const Bf16* x, std::ptrdiff_t count) {
    std::uint16_t largest = 0;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
        largest = std::max(largest, static_cast<std::uint16_t>(x[i].bits & 0x7FFF));
    }
    return std::uint32_t{largest} << 16;
}

MLACADEMY_VECTOR
void encode_tile(const float* x, float reciprocal, std::uint8_t* codes, std::ptrdiff_t count) {
    for (std::ptrdiff_t i = 0; i < count; ++i) {
        codes[i] = e4m3::encode(x[i] * reciprocal, e4m3::kMax);
    }
}

MLACADEMY_VECTOR
void encode_tile(const Bf16* x, float reciprocal, std::uint8_t* codes, std::ptrdiff_t count) {
    for (std::ptrdiff_t i = 0; i < count; ++i) {
        codes[i] = e4m3::encode(to_float(x[i]) * reciprocal, e4m3::kMax);
    }
}

MLACADEMY_VECTOR
void decode_tile(const std::uint8_t* codes, float scale, float* x, std::ptrdiff_t count) {
    for (std::ptrdiff_t i = 0; i < count; ++i) {
        x[i] = e4m3::decode(codes[i]) * scale;
    }
}

template <typename Value>
bool all_finite_in_bf16(const Value* x, std::ptrdiff_t count) {
    return std::all_of(x, x + count, [](Value value) {
        if constexpr (std::is_same_v<Value, float>) {
            if (magnitude_bits(value) >= kFloatInfinity) return false;
        }
        return is_finite(to_bf16(value));
    });
}

// The page and offset that a slot names, and the address of one of its fields.
struct Place {
    std::uint8_t* page;
    std::ptrdiff_t offset;

    Place(Pages pages, const PageMap& map, std::int64_t slot)
        : page(pages.data + slot / map.page * pages.stride), offset(slot % map.page) {}

    [[nodiscard]] std::uint8_t* operator[](const Field& field) const {
        return page + field.base + offset * field.step;
    }
};

}  // namespace

template <typename Value>
bool append(Pages pages, const PageMap& map, std::span<const std::int64_t> slots, const Value* nope,
            const Value* rope) {
    const auto n = static_cast<std::ptrdiff_t>(slots.size());
    const std::ptrdiff_t tiles = map.num_tiles();
    if (!all_finite_in_bf16(rope, n * map.d_rope())) return false;
    std::vector<std::int8_t> powers(static_cast<std::size_t>(n * tiles));
    for (std::ptrdiff_t t = 0; t < n * tiles; ++t) {
        const std::uint32_t amax = max_magnitude(nope + t * map.tile, map.tile);
        if (amax >= kFloatInfinity) return false;
        powers[static_cast<std::size_t>(t)] = static_cast<std::int8_t>(e8m0::tile_power(amax, map.min_power));
    }
    for (std::ptrdiff_t token = 0; token < n; ++token) {
        const Place place(pages, map, slots[static_cast<std::size_t>(token)]);
        for (std::ptrdiff_t t = 0; t < tiles; ++t) {
            const int power = powers[static_cast<std::size_t>(token * tiles + t)];
            const float scale = e8m0::power_of_two(power);
            encode_tile(nope + (token * tiles + t) * map.tile, e8m0::power_of_two(-power),
                        place[map.nope] + t * map.tile, map.tile);
            if (map.e8m0_scales) {
                place[map.scale][t] = static_cast<std::uint8_t>(power + e8m0::kBias);
            } else {
                std::memcpy(place[map.scale] + t * 4, &scale, 4);
            }
        }
        for (std::ptrdiff_t i = 0; i < map.d_rope(); ++i) {
            const Bf16 value = to_bf16(rope[token * map.d_rope() + i]);
            std::memcpy(place[map.rope] + 2 * i, &value, 2);
        }
        std::memset(place[map.pad], 0, static_cast<std::size_t>(map.pad.width));
    }
    return true;
}

template bool append(Pages, const PageMap&, std::span<const std::int64_t>, const float*, const float*);
template bool append(Pages, const PageMap&, std::span<const std::int64_t>, const Bf16*, const Bf16*);

void gather(Pages pages, const PageMap& map, std::span<const std::int64_t> slots, float* rows) {
    const std::ptrdiff_t d_qk = map.nope.width + map.d_rope();
    for (const std::int64_t slot : slots) {
        if (slot < 0) {
            std::fill_n(rows, d_qk, 0.0F);
        } else {
            const Place place(pages, map, slot);
            for (std::ptrdiff_t t = 0; t < map.num_tiles(); ++t) {
                float scale;
                if (map.e8m0_scales) {
                    scale = e8m0::decode(place[map.scale][t]);
                } else {
                    std::memcpy(&scale, place[map.scale] + t * 4, 4);
                }
                decode_tile(place[map.nope] + t * map.tile, scale, rows + t * map.tile, map.tile);
            }
            for (std::ptrdiff_t i = 0; i < map.d_rope(); ++i) {
                Bf16 value;
                std::memcpy(&value, place[map.rope] + 2 * i, 2);
                rows[map.nope.width + i] = to_float(value);
            }
        }
        rows += d_qk;
    }
}

}  // namespace mlacademy
