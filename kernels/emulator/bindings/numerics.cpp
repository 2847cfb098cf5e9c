#include "bindings/numerics.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/scalar_ops.hpp"
#include "units/tensor_core.hpp"

namespace py = pybind11;

namespace emu {
namespace {

using Codes = py::array_t<std::uint32_t, py::array::c_style | py::array::forcecast>;
using Words = py::array_t<std::uint64_t, py::array::c_style | py::array::forcecast>;

template <typename Value, std::size_t N>
Value named(const std::string& name, const std::pair<const char*, Value> (&names)[N], const char* what) {
    std::string all;
    for (const auto& [known, value] : names) {
        if (name == known) return value;
        all += (all.empty() ? "" : ", ") + std::string(known);
    }
    throw py::value_error(std::string(what) + " is '" + name + "'; known are " + all);
}

Element element(const std::string& name, const char* what) {
    static constexpr std::pair<const char*, Element> kNames[] = {
        {"f16", Element::f16},   {"bf16", Element::bf16}, {"tf32", Element::tf32}, {"e4m3", Element::e4m3},
        {"e5m2", Element::e5m2}, {"s8", Element::s8},     {"u8", Element::u8}};
    return named(name, kNames, what);
}

Accumulator accumulator(const std::string& name) {
    static constexpr std::pair<const char*, Accumulator> kNames[] = {
        {"f32", Accumulator::f32}, {"f16", Accumulator::f16}, {"s32", Accumulator::s32}};
    return named(name, kNames, "d");
}

Factor factor(const std::string& type, const Codes& codes, bool negate, const char* what) {
    if (codes.ndim() != 2) throw py::value_error(std::string(what) + " must have two axes: lines and depth");
    const auto lines = static_cast<int>(codes.shape(0)), depth = static_cast<int>(codes.shape(1));
    Factor out(element(type, what), lines, depth);
    out.load(codes.data(), depth, 1, negate);
    return out;
}

py::array_t<std::uint32_t> multiply(const std::string& d, const std::string& a_type,
                                    const std::string& b_type, const Codes& a, const Codes& b,
                                    const std::optional<Codes>& c, bool plain, bool satfinite,
                                    std::pair<bool, bool> negate, std::optional<std::pair<int, int>> rule) {
    const Factor left = factor(a_type, a, negate.first, "a"), right = factor(b_type, b, negate.second, "b");
    if (c && (c->ndim() != 2 || c->shape(0) != a.shape(0) || c->shape(1) != b.shape(0)))
        throw py::value_error("c must have the lines of a by the lines of b");
    py::array_t<std::uint32_t> out({a.shape(0), b.shape(0)});
    const std::uint32_t* addend = c ? c->data() : nullptr;
    if (rule)
        fused_multiply_add(left, right, addend, out.mutable_data(), accumulator(d),
                           {rule->first, rule->second});
    else
        multiply_add(left, right, addend, out.mutable_data(),
                     {accumulator(d), plain ? Arithmetic::plain : Arithmetic::silicon, satfinite});
    return out;
}

Words scalar(const std::string& opcode, const Words& a, const std::optional<Words>& b,
             const std::optional<Words>& c) {
    for (const ScalarOp& op : scalar_ops()) {
        if (opcode != op.opcode) continue;
        const int needed = 1 + (op.operand_bits[1] != 0) + (op.operand_bits[2] != 0);
        if (needed != 1 + b.has_value() + c.has_value() || (b && b->size() != a.size()) ||
            (c && c->size() != a.size()))
            throw py::value_error(opcode + " takes " + std::to_string(needed) + " operands of one size");
        const std::uint64_t mask = op.result_bits == 64 ? ~0ULL : (1ULL << op.result_bits) - 1;
        Words out(a.size());
        for (py::ssize_t i = 0; i < a.size(); ++i)
            out.mutable_data()[i] = mask & op.run(a.data()[i], b ? b->data()[i] : 0, c ? c->data()[i] : 0);
        return out;
    }
    throw py::value_error("no opcode '" + opcode + "' among numerics.opcodes()");
}

py::dict opcodes() {
    py::dict out;
    for (const ScalarOp& op : scalar_ops()) {
        py::list operands;
        for (const int bits : op.operand_bits)
            if (bits != 0) operands.append(bits);
        out[op.opcode] = py::make_tuple(op.result_bits, py::tuple(operands));
    }
    return out;
}

}  // namespace

void add_numerics(py::module_& parent) {
    py::module_ m = parent.def_submodule("numerics", "The emulator's arithmetic on arrays of codes.");
    m.def("opcodes", &opcodes, "Opcode -> (bits of the result, bits of each operand).");
    m.def("scalar", &scalar, py::arg("opcode"), py::arg("a"), py::arg("b") = py::none(),
          py::arg("c") = py::none(), "Element by element, the result as bits: uint64 of the operands' size.");
    m.def("multiply_add", &multiply, py::arg("d"), py::arg("a_type"), py::arg("b_type"), py::arg("a"),
          py::arg("b"), py::arg("c") = py::none(), py::kw_only(), py::arg("plain") = false,
          py::arg("satfinite") = false, py::arg("negate") = std::pair{false, false},
          py::arg("rule") = py::none(),
          "One tensor-core instruction: codes a [m, k], b [n, k], c [m, n] or None -> uint32 [m, n].");
}

}  // namespace emu
