#include "units/tensor_map.hpp"

#include <cstring>

namespace emu::tensor_map {
namespace {

constexpr char kMagic[] = "MLATMAP1";
constexpr std::size_t kAddress = 8, kRank = 16, kType = 17, kInterleave = 18, kSwizzleMode = 19,
                      kAtomicity = 20, kFill = 21, kMode = 23, kDim = 24, kBox = 44, kStep = 54, kStride = 64,
                      kPatch = 96, kLower = 104, kUpper = 110;

constexpr Element kElements[] = {
    {"uint8", 8, 16, Kind::integer},          {"uint16", 16, 16, Kind::integer},
    {"uint32", 32, 16, Kind::integer},        {"int32", 32, 16, Kind::integer},
    {"uint64", 64, 16, Kind::integer},        {"int64", 64, 16, Kind::integer},
    {"float16", 16, 16, Kind::floating},      {"float32", 32, 16, Kind::floating},
    {"float32_ftz", 32, 16, Kind::floating},  {"float64", 64, 16, Kind::floating},
    {"bfloat16", 16, 16, Kind::floating},     {"tfloat32", 32, 16, Kind::floating},
    {"tfloat32_ftz", 32, 16, Kind::floating}, {"16u4_align8b", 4, 16, Kind::sub_byte},
    {"16u4_align16b", 4, 8, Kind::sub_byte},  {"16u6_align16b", 6, 12, Kind::sub_byte},
};

template <class T>
T load(ConstRecord record, std::size_t offset) {
    T value;
    std::memcpy(&value, record.data() + offset, sizeof value);
    return value;
}
template <class T>
void store(Record record, std::size_t offset, std::uint64_t value) {
    const auto narrow = static_cast<T>(value);
    std::memcpy(record.data() + offset, &narrow, sizeof narrow);
}

std::string out_of(const std::string& field, std::uint64_t value, const std::string& allowed) {
    return field + " is " + std::to_string(value) + ", allowed are " + allowed;
}

std::uint32_t span_of(Swizzle swizzle) {
    return swizzle == Swizzle::none ? 0 : swizzle == Swizzle::b32 ? 32 : swizzle == Swizzle::b64 ? 64 : 128;
}

std::string check_memory(const TensorMap& map) {
    const std::uint64_t multiple = map.element().kind == Kind::sub_byte && map.type != 13 ? 32 : 16;
    if (map.address % multiple != 0)
        return "its global address is no multiple of " + std::to_string(multiple);
    for (std::uint32_t axis = 1; axis < map.rank; ++axis)
        if (map.pitch[axis] % multiple != 0 || map.pitch[axis] >> 40 != 0)
            return out_of("the stride of axis " + std::to_string(axis), map.pitch[axis],
                          "multiples of " + std::to_string(multiple) + " below 2^40");
    return {};
}

std::string check_box(const TensorMap& map) {
    for (std::uint32_t axis = 0; axis < map.rank; ++axis) {
        const std::uint32_t most = map.im2col && axis == 1 ? 1024 : 256;
        if (map.box[axis] < 1 || map.box[axis] > most)
            return out_of("the box's size along axis " + std::to_string(axis), map.box[axis],
                          "1 to " + std::to_string(most));
        if (map.step[axis] < 1 || map.step[axis] > 8)
            return out_of("the element stride of axis " + std::to_string(axis), map.step[axis], "1 to 8");
    }
    if (map.type >= 14 && map.box[0] != 128)
        return out_of("the box's size along axis 0", map.box[0], "128 for this element type");
    if (map.box[0] * map.element().bits % 128 != 0)
        return "a row of its box has " + std::to_string(map.box[0] * map.element().bits) +
               " bits, which is no multiple of 16 bytes";
    if (const std::uint32_t span = span_of(map.swizzle); span != 0 && map.row_bytes() > span)
        return "a row of its box has " + std::to_string(map.row_bytes()) + " bytes, its swizzle allows " +
               std::to_string(span);
    return {};
}

}  // namespace

const Element& TensorMap::element() const {
    return kElements[type];
}
std::uint32_t TensorMap::row_pitch() const {
    return swizzle == Swizzle::none ? row_bytes() : span_of(swizzle);
}

bool is_map(ConstRecord record) {
    return std::memcmp(record.data(), kMagic, 8) == 0;
}
std::uint64_t patch_of(ConstRecord record) {
    return load<std::uint64_t>(record, kPatch);
}

std::string decode(ConstRecord record, TensorMap& map) {
    const auto byte = [&](std::size_t offset) { return load<std::uint8_t>(record, offset); };
    map.address = load<std::uint64_t>(record, kAddress);
    map.patch = patch_of(record);
    if (byte(kRank) > 4) return out_of("its rank minus one", byte(kRank), "0 to 4");
    map.rank = byte(kRank) + 1u;
    if (byte(kType) >= std::size(kElements)) return out_of("its element type", byte(kType), "0 to 15");
    map.type = byte(kType);
    if (byte(kInterleave) != 0) return "it has an interleaved layout, which the emulator does not run";
    const std::uint8_t mode = byte(kSwizzleMode), atomicity = byte(kAtomicity);
    if (mode > 3) return out_of("its swizzle mode", mode, "0 to 3");
    if (atomicity > 3 || (atomicity != 0 && mode != 3))
        return out_of("its swizzle atomicity", atomicity,
                      mode == 3 ? "0 to 3" : "0 without a 128-byte swizzle");
    map.swizzle = static_cast<Swizzle>(mode + atomicity);
    if (byte(kFill) > 1) return out_of("its fill mode", byte(kFill), "0 and 1");
    map.fill_nan = byte(kFill) != 0;
    if (map.fill_nan && map.element().kind != Kind::floating)
        return "it fills with NaN, which element type " + std::string(map.element().name) + " does not have";
    for (std::size_t axis = 0; axis < 5; ++axis) {
        const auto dim = load<std::uint32_t>(record, kDim + 4 * axis);
        map.dim[axis] = dim == 0 ? std::uint64_t{1} << 32 : dim;
        map.box[axis] = load<std::uint16_t>(record, kBox + 2 * axis);
        map.step[axis] = byte(kStep + axis);
        map.pitch[axis] = axis == 0 ? 0 : load<std::uint64_t>(record, kStride + 8 * (axis - 1));
    }
    map.im2col = byte(kMode) != 0;
    if (map.im2col && map.rank < 3) return "it is in im2col mode with fewer than 3 axes";
    for (std::size_t axis = 0; axis < 3; ++axis) {
        map.lower[axis] = load<std::int16_t>(record, kLower + 2 * axis);
        map.upper[axis] = load<std::int16_t>(record, kUpper + 2 * axis);
    }
    if (std::string problem = check_memory(map); !problem.empty()) return problem;
    return check_box(map);
}

void replace(Record record, Field field, std::uint32_t ordinal, std::uint64_t value, std::uint64_t patch) {
    switch (field) {
        case Field::global_address:
            store<std::uint64_t>(record, kAddress, value);
            break;
        case Field::rank:
            store<std::uint8_t>(record, kRank, value);
            break;
        case Field::box_dim:
            store<std::uint16_t>(record, kBox + 2 * ordinal, value);
            break;
        case Field::global_dim:
            store<std::uint32_t>(record, kDim + 4 * ordinal, value);
            break;
        case Field::global_stride:
            store<std::uint64_t>(record, kStride + 8 * ordinal, value);
            break;
        case Field::element_stride:
            store<std::uint8_t>(record, kStep + ordinal, value);
            break;
        case Field::elemtype:
            store<std::uint8_t>(record, kType, value);
            break;
        case Field::interleave_layout:
            store<std::uint8_t>(record, kInterleave, value);
            break;
        case Field::swizzle_mode:
            store<std::uint8_t>(record, kSwizzleMode, value);
            break;
        case Field::swizzle_atomicity:
            store<std::uint8_t>(record, kAtomicity, value);
            break;
        case Field::fill_mode:
            store<std::uint8_t>(record, kFill, value);
            break;
    }
    store<std::uint64_t>(record, kPatch, patch);
}

}  // namespace emu::tensor_map
