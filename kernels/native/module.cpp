// mlacademy._core: thin bindings. Names, checks and friendly errors live in mlacademy.fp8, mlacademy.cache
// and mlacademy.ops.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache.hpp"
#include "codec.hpp"
#include "decode_call.hpp"

namespace py = pybind11;
using mlacademy::Bf16;
using mlacademy::Field;
using mlacademy::PageMap;
using mlacademy::Pages;

namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
std::span<const T> view(const Array<T>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
}

// Apply `loop(input, output)` to an array and return an array of the same shape, with the GIL released.
template <typename Out, typename In, typename Loop>
Array<Out> map_array(const Array<In>& input, Loop loop) {
    Array<Out> output(std::vector<py::ssize_t>(input.shape(), input.shape() + input.ndim()));
    const std::span<Out> target(output.mutable_data(), static_cast<std::size_t>(output.size()));
    const py::gil_scoped_release unlocked;
    loop(view(input), target);
    return output;
}

// The bytes of all pages: a 2-D array whose rows may be further apart than they are long. `first_slot` is the
// smallest slot allowed. The checks here are the last guard of memory; the friendly ones are in Python.
Pages pages_of(py::array_t<std::uint8_t>& pages, const PageMap& map, std::span<const std::int64_t> slots,
               std::int64_t first_slot) {
    if (pages.ndim() != 2 || pages.strides(1) != 1)
        throw std::invalid_argument("pages must be 2-D, rows contiguous");
    if (pages.shape(1) != map.page_bytes())
        throw std::invalid_argument("pages must be as long as the map says");
    const std::int64_t capacity = pages.shape(0) * map.page;
    for (const std::int64_t slot : slots) {
        if (slot < first_slot || slot >= capacity)
            throw std::invalid_argument("a slot lies outside the pages");
    }
    return {pages.mutable_data(), pages.strides(0)};
}

template <typename Value, typename Stored>
bool append(py::array_t<std::uint8_t> pages, const PageMap& map, const Array<std::int64_t>& slots,
            const Array<Stored>& nope, const Array<Stored>& rope) {
    static_assert(sizeof(Value) == sizeof(Stored));
    if (nope.size() != slots.size() * map.nope.width || rope.size() != slots.size() * map.d_rope()) {
        throw std::invalid_argument("nope and rope must hold one row for each slot");
    }
    const Pages target = pages_of(pages, map, view(slots), 0);
    const auto* nope_data = reinterpret_cast<const Value*>(nope.data());
    const auto* rope_data = reinterpret_cast<const Value*>(rope.data());
    const py::gil_scoped_release unlocked;
    return mlacademy::append(target, map, view(slots), nope_data, rope_data);
}

void gather(py::array_t<std::uint8_t> pages, const PageMap& map, const Array<std::int64_t>& slots,
            Array<float> rows) {
    if (rows.size() != slots.size() * (map.nope.width + map.d_rope())) {
        throw std::invalid_argument("rows must hold one row for each slot");
    }
    const Pages source = pages_of(pages, map, view(slots), -1);
    float* target = rows.mutable_data();
    const py::gil_scoped_release unlocked;
    mlacademy::gather(source, map, view(slots), target);
}

PageMap make_page_map(std::ptrdiff_t page, std::ptrdiff_t tile, bool e8m0_scales, int min_power,
                      std::array<std::ptrdiff_t, 3> nope, std::array<std::ptrdiff_t, 3> scale,
                      std::array<std::ptrdiff_t, 3> rope, std::array<std::ptrdiff_t, 3> pad) {
    const auto field = [](const std::array<std::ptrdiff_t, 3>& f) { return Field{f[0], f[1], f[2]}; };
    return {page, tile, e8m0_scales, min_power, field(nope), field(scale), field(rope), field(pad)};
}

using mlacademy::DecodeCall;
using mlacademy::Form;

template <std::size_t N>
std::array<std::uint64_t, N> words_of(const std::string& bytes, const char* name) {
    std::array<std::uint64_t, N> words;
    if (bytes.size() != sizeof words)
        throw std::invalid_argument(std::string(name) + " must be " + std::to_string(sizeof words) +
                                    " bytes, got " + std::to_string(bytes.size()));
    std::memcpy(words.data(), bytes.data(), sizeof words);
    return words;
}

py::object decode_call(const std::tuple<py::str, py::object, py::bool_, std::array<bool, 8>>& called_for,
                       double max_scale, const std::array<py::object, 11>& functions,
                       std::uint64_t launch_kernel,
                       const std::vector<std::pair<py::bytes, std::uint64_t>>& launches,
                       const py::bytes& block, const std::array<std::size_t, 8>& inputs,
                       const std::array<std::size_t, 8>& places, const std::array<std::uint64_t, 4>& offsets,
                       std::size_t scale_word, bool compares, const py::int_& index,
                       const py::int_& scratch_bytes, const std::array<py::object, 3>& out,
                       const std::array<py::object, 3>& lse) {
    for (const auto* words : {&inputs, &places})
        for (const std::size_t word : *words)
            if (word >= DecodeCall::kWords) throw std::invalid_argument("places must be words of the block");
    if (scale_word >= 2 * DecodeCall::kWords) throw std::invalid_argument("scale_word must be in the block");
    DecodeCall call{};
    const auto& [layout, lists, checked, given] = called_for;
    call.called_for = {layout, lists, checked, given, max_scale};
    const auto& [fits, modes, transform, is_checked, data_ptr, empty, allocate, release, stream, device,
                 refused] = functions;
    call.functions = {fits,     modes,   transform, is_checked, data_ptr, empty,
                      allocate, release, stream,    device,     refused};
    const auto& [records, num_splits, planned, out_at, lse_at, out_partial, lse_partial, verdict] = places;
    call.places = {inputs, records, num_splits, planned, out_at, lse_at, out_partial, lse_partial, verdict};
    call.offsets = {offsets[0], offsets[1], offsets[2], offsets[3]};
    call.compares = compares;
    call.out = Form{out[0], out[1], out[2]};
    call.lse = Form{lse[0], lse[1], lse[2]};
    call.index = index;
    call.scratch_bytes = scratch_bytes;
    call.block = words_of<DecodeCall::kWords>(block, "block");
    call.scale_word = scale_word;
    for (const auto& [config, function] : launches)
        call.launches.push_back({words_of<DecodeCall::kConfigWords>(config, "config"), function});
    call.launch_kernel = reinterpret_cast<DecodeCall::LaunchKernel>(launch_kernel);
    return DecodeCall::function(std::move(call));
}

}  // namespace

PYBIND11_MODULE(_core, m) {
    m.doc() = "Native loops of MLAcademy: FP8 codecs and cache pack/unpack.";

    m.def(
        "decode_e4m3",
        [](const Array<std::uint8_t>& codes) { return map_array<float>(codes, mlacademy::decode_e4m3); },
        py::arg("codes"));
    m.def(
        "encode_e4m3",
        [](const Array<float>& values, bool saturate) {
            return map_array<std::uint8_t>(
                values, [=](auto in, auto out) { mlacademy::encode_e4m3(in, out, saturate); });
        },
        py::arg("values"), py::arg("saturate"));
    m.def(
        "decode_e8m0",
        [](const Array<std::uint8_t>& codes) { return map_array<float>(codes, mlacademy::decode_e8m0); },
        py::arg("codes"));
    m.def(
        "encode_e8m0",
        [](const Array<float>& values, const std::string& rounding) {
            using mlacademy::e8m0::Rounding;
            const Rounding mode = rounding == "up"     ? Rounding::kUp
                                  : rounding == "down" ? Rounding::kDown
                                                       : Rounding::kNearest;
            return map_array<std::uint8_t>(values,
                                           [=](auto in, auto out) { mlacademy::encode_e8m0(in, out, mode); });
        },
        py::arg("values"), py::arg("rounding"));

    m.def("decode_call", &decode_call, py::kw_only(), py::arg("called_for"), py::arg("max_scale"),
          py::arg("functions"), py::arg("launch_kernel"), py::arg("launches"), py::arg("block"),
          py::arg("inputs"), py::arg("places"), py::arg("offsets"), py::arg("scale_word"),
          py::arg("compares"), py::arg("index"), py::arg("scratch_bytes"), py::arg("out"), py::arg("lse"));

    py::class_<PageMap>(m, "PageMap")
        .def(py::init(&make_page_map), py::kw_only(), py::arg("page"), py::arg("tile"),
             py::arg("e8m0_scales"), py::arg("min_power"), py::arg("nope"), py::arg("scale"), py::arg("rope"),
             py::arg("pad"));
    // noconvert: a silent copy of the pages would swallow what is written.
    m.def("append_float32", &append<float, float>, py::arg("pages").noconvert(), py::arg("map"),
          py::arg("slots"), py::arg("nope").noconvert(), py::arg("rope").noconvert());
    m.def("append_bf16", &append<Bf16, std::uint16_t>, py::arg("pages").noconvert(), py::arg("map"),
          py::arg("slots"), py::arg("nope").noconvert(), py::arg("rope").noconvert());
    m.def("gather", &gather, py::arg("pages").noconvert(), py::arg("map"), py::arg("slots"),
          py::arg("rows").noconvert());
}
