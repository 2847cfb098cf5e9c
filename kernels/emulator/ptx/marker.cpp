// Markers: comments that give names to warps and to shared memory (kernels/cuda/names.cuh). They become
// instructions without weight, so that a name holds from where the kernel gives it.
#include "ptx/lower.hpp"

namespace emu {

void select_marker_role(Instruction&);
void select_marker_buffer(Instruction&);

using ast::Statement;

namespace {

struct Marker {
    std::string_view name;
    std::size_t operands;  // each a 32-bit value
    const char* form;
};
constexpr Marker kMarkers[] = {
    {"mla.role", 0, "mla.role \"name\""},
    {"mla.buffer", 2, "mla.buffer \"name\", address, bytes"},
    {"mla.array", 3, "mla.array \"name\", address, bytes of a piece, pieces"},
    {"mla.element", 3, "mla.element \"name\", address, bytes, index"},
};

}  // namespace

void Lowering::marker(const Statement& s) {
    std::string forms;
    const Marker* found = nullptr;
    for (const Marker& m : kMarkers) {
        forms += (forms.empty() ? "" : "; ") + std::string(m.form);
        if (m.name == s.name) found = &m;
    }
    const std::string shown = "The marker '// " + std::string(s.name) + "'";
    if (found == nullptr) invalid(shown + " is unknown; there are " + forms, where(s));
    if (s.operands.size() != found->operands) invalid(shown + " must read '" + found->form + "'", where(s));
    if (s.labels[0].empty()) invalid(shown + " gives an empty name", where(s));
    Draft d;
    d.guard.absent = true;
    std::string why;
    for (const ast::Operand& o : s.operands)
        if (!fit_value(Type::u32, false, false, o, s, d, why)) invalid(shown + ": " + why, where(s));
    const auto kind = static_cast<std::uint64_t>(found - kMarkers);
    d.ins.aux = kind << 32 | kernel_.names.size();
    kernel_.names.emplace_back(s.labels[0]);
    kind == 0 ? select_marker_role(d.ins) : select_marker_buffer(d.ins);
    emit(std::move(d), s);
}

}  // namespace emu
