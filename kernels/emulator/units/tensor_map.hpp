// The emulator's tensor map: the 128-byte record that src/mlacademy/gpu/map_record.py documents, decoded and
// checked. Pure: no machine state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace emu::tensor_map {

constexpr std::uint32_t kBytes = 128;
constexpr std::uint16_t kNan =
    0x7ff7;  // what the fill mode "NaN" repeats outside of the tensor, for any type
using Record = std::span<std::byte, kBytes>;
using ConstRecord = std::span<const std::byte, kBytes>;

enum class Kind : std::uint8_t { integer, floating, sub_byte };
enum class Swizzle : std::uint8_t { none, b32, b64, b128, b128_atom32, b128_atom32_flip8, b128_atom64 };

// Codes as in tensormap.replace. In shared memory an element type's values come in units of 16 bytes, of
// which `unit_data` hold data: all of them, except for the 4- and 6-bit types that are aligned to 16 bytes.
struct Element {
    std::string_view name;
    std::uint32_t bits;
    std::uint32_t unit_data;
    Kind kind;
};

struct TensorMap {
    std::uint64_t address = 0;
    std::uint32_t rank = 1;
    std::uint32_t type = 0;  // code of the element type
    Swizzle swizzle = Swizzle::none;
    bool fill_nan = false;
    std::array<std::uint64_t, 5> dim{};    // elements, innermost first
    std::array<std::uint32_t, 5> box{};    // elements
    std::array<std::uint32_t, 5> step{};   // every step-th element of the box is copied
    std::array<std::uint64_t, 5> pitch{};  // bytes between neighbours of an axis; [0] is not used
    // In im2col mode, box holds the channels of a pixel and the pixels; these bound the axes of space.
    bool im2col = false;
    std::array<std::int32_t, 3> lower{}, upper{};
    std::uint64_t patch = 0;  // number of the last tensormap.replace; 0: as the host made it

    [[nodiscard]] const Element& element() const;
    [[nodiscard]] bool rounds_to_tf32() const { return type == 11 || type == 12; }
    [[nodiscard]] std::uint32_t row_bytes() const {  // of a row of the box in shared memory
        return box[0] * element().bits * 2 / element().unit_data;
    }
    // From row to row in shared memory: a swizzle gives each row a whole span, however short the row is.
    [[nodiscard]] std::uint32_t row_pitch() const;
};

// Fills `map`; gives a sentence about what is wrong with the record, or nothing.
[[nodiscard]] std::string decode(ConstRecord record, TensorMap& map);

// What tensormap.replace changes. `ordinal` is the axis, for the fields that have one.
enum class Field : std::uint8_t {
    global_address,
    rank,
    box_dim,
    global_dim,
    global_stride,
    element_stride,
    elemtype,
    interleave_layout,
    swizzle_mode,
    swizzle_atomicity,
    fill_mode,
};
void replace(Record record, Field field, std::uint32_t ordinal, std::uint64_t value, std::uint64_t patch);
[[nodiscard]] bool is_map(ConstRecord record);  // by its magic
[[nodiscard]] std::uint64_t patch_of(ConstRecord record);

}  // namespace emu::tensor_map
