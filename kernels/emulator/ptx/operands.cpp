// Statements to instructions: find the form, fit every operand into its signature, let the form's handler be
// selected.
#include <algorithm>
#include <bit>
#include <cstring>

#include "exec/select.hpp"
#include "ir/errors.hpp"
#include "machine/special.hpp"
#include "ptx/lower.hpp"
#include "ptx/program.hpp"

namespace emu {

using ast::Statement;
using Kind = ast::Operand::Kind;

namespace {

Operand sink(Type type) {
    return type == Type::pred
               ? Operand{.offset = kPredSink, .bits = 1}
               : Operand{.offset = 0, .bits = static_cast<std::uint8_t>(std::max(bits_of(type), 32))};
}

// A literal as bits of `type`; false where the language has no such literal.
bool literal_bits(const Number& n, Type type, std::uint64_t& bits) {
    using NK = Number::Kind;
    const bool real = n.kind != NK::integer;
    switch (type) {
        case Type::f32:
            bits =
                n.kind == NK::f32_bits ? n.integer : std::bit_cast<std::uint32_t>(static_cast<float>(n.real));
            return real;
        case Type::f64:
            bits = std::bit_cast<std::uint64_t>(n.real);
            return real;
        case Type::b32:
        case Type::b64:
            bits = n.integer;
            if (n.kind == NK::fraction || (real && (n.kind == NK::f64_bits) != (type == Type::b64)))
                bits = type == Type::b32 ? std::bit_cast<std::uint32_t>(static_cast<float>(n.real))
                                         : std::bit_cast<std::uint64_t>(n.real);
            return true;
        default:
            bits = n.integer;
            return !real;
    }
}

}  // namespace

std::string Lowering::spelled(const Statement& s) {
    std::string text(s.name);
    for (const std::string_view mod : s.mods)
        text += '.', text += mod;
    return text;
}

void Lowering::emit(Draft d, const Statement& s) {
    d.ins.ptx_line = s.line;
    d.ins.source_file = s.loc.file;
    d.ins.source_line = s.loc.line;
    d.ins.inner_file = s.loc.inner_file;
    d.ins.inner_line = s.loc.inner_line;
    const auto [at, fresh] =
        text_index_.try_emplace(spelled(s), static_cast<std::int32_t>(kernel_.texts.size()));
    if (fresh) kernel_.texts.push_back(at->first);
    d.ins.text = at->second;
    drafts_.push_back(std::move(d));
}

void Lowering::emit_return(Return how, int line) {
    Draft d{.guard = {.absent = true}, .flow = Draft::Flow::stop};
    d.ins.aux = static_cast<std::uint64_t>(how);
    select_ret(Choice{}, d.ins);
    emit(std::move(d), Statement{.kind = Statement::Kind::instruction, .line = line, .name = "ret"});
}

void Lowering::set_guard(Draft& d, const Statement& s) {
    d.guard.absent = s.guard.empty();
    if (d.guard.absent) return;
    const auto found = find_register(s.guard);
    if (!found || registers_[*found].bits != 1)
        invalid("The guard '" + std::string(s.guard) + "' is no predicate register", where(s));
    d.guard = {.offset = *found, .bank = kBankVirtual, .bits = 1};
    d.ins.guard_negated = s.guard_negated;
}

Operand Lowering::constant(std::uint64_t value, int bits) {
    if (bits == 1) return {.offset = value != 0 ? kPredTrue : kPredFalse, .bits = 1};
    if (bits < 64) value &= (std::uint64_t{1} << std::max(bits, 8)) - 1;
    const int stored = bits <= 32 ? 32 : bits;
    const auto [at, fresh] =
        constants_.try_emplace({stored, value}, static_cast<std::uint32_t>(kernel_.constants.size()));
    if (fresh) {
        const std::size_t bytes = static_cast<std::size_t>(stored) / 8, start = kernel_.constants.size();
        kernel_.constants.resize(start + bytes * 32);  // the upper half of a 128-bit constant stays zero
        for (std::size_t lane = 0; lane < 32; ++lane)
            std::memcpy(&kernel_.constants[start + lane * bytes], &value, std::min<std::size_t>(bytes, 8));
    }
    return {.offset = at->second, .bank = kBankConstants, .bits = static_cast<std::uint8_t>(stored)};
}

Operand Lowering::warp_constant(WarpConstant::Kind kind, std::uint32_t number, std::uint8_t bits,
                                bool dynamic) {
    const auto [at, fresh] =
        warp_constant_index_.try_emplace({static_cast<int>(kind), number, bits, dynamic},
                                         static_cast<std::uint32_t>(kernel_.warp_constants.size()));
    if (fresh) {
        if (dynamic) dynamic_constants_.push_back(kernel_.warp_constants.size());
        kernel_.warp_constants.push_back({kind, number, 0, bits});
    }
    return {.offset = at->second, .bank = kBankWarpConstant, .bits = bits};
}

// Where a variable lies, as a value; its space is known from the instruction that uses it.
Operand Lowering::address_of(const Symbol& symbol, std::int64_t displacement, int bits, const Statement& s) {
    if (symbol.kind == Symbol::Kind::local && called_) {
        const auto result = static_cast<std::uint32_t>(registers_.size());
        registers_.push_back({static_cast<std::uint8_t>(bits)});
        const Operand to{.offset = result, .bank = kBankVirtual, .bits = static_cast<std::uint8_t>(bits)};
        Draft d{.ops = {to, in_frame(symbol)}, .dest = {true, false}, .guard = {.absent = true}};
        d.ops[1].imm += displacement;
        d.ins.op = d.ops.data();
        select_frame_address(Choice{}, d.ins);
        emit(std::move(d), s);
        return to;
    }
    const std::uint64_t value = symbol.value + static_cast<std::uint64_t>(displacement);
    if (symbol.kind == Symbol::Kind::shared || symbol.kind == Symbol::Kind::dynamic_shared)
        return warp_constant(WarpConstant::Kind::shared_address, static_cast<std::uint32_t>(value),
                             static_cast<std::uint8_t>(bits), symbol.kind == Symbol::Kind::dynamic_shared);
    return constant(value, bits);
}

// The address of a local variable: its frame's start and a displacement.
Operand Lowering::in_frame(const Symbol& symbol) {
    Operand o = called_ ? warp_constant(WarpConstant::Kind::frame, 0, 64) : constant(0, 64);
    o.imm = static_cast<std::int64_t>(symbol.value);
    return o;
}

bool Lowering::fit_value(Type type, bool dest, bool wide, const ast::Operand& o, const Statement& s, Draft& d,
                         std::string& why) {
    const auto add = [&](Operand operand) {
        d.ops.push_back(operand);
        d.dest.push_back(dest);
        return true;
    };
    if (o.kind == Kind::sink) {
        if (!dest) return why = "'_' can only be a destination", false;
        return add(sink(type));
    }
    if (o.kind == Kind::number) {
        std::uint64_t bits = 0;
        if (dest) return why = "a number cannot be a destination", false;
        if (!literal_bits(o.number, type, bits))
            return why = "the number does not suit type ." + std::string(name_of(type)), false;
        return add(constant(bits, bits_of(type)));
    }
    if (o.kind != Kind::name) return why = "a register or a number is needed", false;
    if (const auto found = find_register(o.text)) {
        const int bits = registers_[*found].bits, need = bits_of(type);
        const bool fits = need == 1 || bits == 1 ? bits == need
                          : wide                 ? bits >= need
                                                 : bits == std::max(need, 16);
        if (!fits)
            return why = "register '" + std::string(o.text) + "' has " + std::to_string(bits) +
                         " bits, type ." + std::string(name_of(type)) + " needs " + std::to_string(need),
                   false;
        if (o.negated && (dest || bits != 1))
            return why = "'!' can only stand before a predicate that is read", false;
        return add({.offset = *found,
                    .bank = kBankVirtual,
                    .bits = static_cast<std::uint8_t>(bits),
                    .negated = o.negated});
    }
    if (dest) return why = "'" + std::string(o.text) + "' is no register", false;
    if (const auto special = find_special(o.text)) {
        if (bits_of(type) < special->bits && !wide)
            return why = "'" + std::string(o.text) + "' has " + std::to_string(special->bits) + " bits",
                   false;
        if (special->changes) {
            changing_special_ = special->number;
            return add({.offset = 0, .bits = static_cast<std::uint8_t>(std::max(bits_of(type), 32))});
        }
        return add(warp_constant(WarpConstant::Kind::special, special->number,
                                 bits_of(type) == 64 ? std::uint8_t{64} : std::uint8_t{32}));
    }
    if (const auto symbol = find_symbol(o.text)) {
        if (bits_of(type) < 32) return why = "an address needs 32 or 64 bits", false;
        return add(address_of(*symbol, static_cast<std::int64_t>(o.number.integer), bits_of(type), s));
    }
    return why = "'" + std::string(o.text) + "' is not declared", false;
}

bool Lowering::fit_address(const ast::Operand& o, const Statement& s, Draft& d, std::string& why) {
    if (o.kind != Kind::address) return why = "an address in [ ] is needed", false;
    if (!o.items.empty()) return why = "coordinates do not belong here", false;
    const auto displacement = static_cast<std::int64_t>(o.number.integer);
    Operand base;
    if (o.text.empty()) {
        base = constant(0, 64);
    } else if (const auto found = find_register(o.text)) {
        const std::uint8_t bits = registers_[*found].bits;
        if (bits != 32 && bits != 64)
            return why = "the address register '" + std::string(o.text) + "' has " + std::to_string(bits) +
                         " bits",
                   false;
        base = {.offset = *found, .bank = kBankVirtual, .bits = bits};
    } else if (const auto symbol = find_symbol(o.text)) {
        base = symbol->kind == Symbol::Kind::local ? in_frame(*symbol) : address_of(*symbol, 0, 64, s);
        // Call-scope parameters and the parameters of inlined functions lie in the thread's local memory.
        if (d.ins.space == Space::param && symbol->kind == Symbol::Kind::local) d.ins.space = Space::local;
    } else {
        return why = "'" + std::string(o.text) + "' is not declared", false;
    }
    base.imm += displacement;
    d.ops.push_back(base);
    d.dest.push_back(false);
    return true;
}

// [map, {c0, c1, …}]: the map's address and its coordinates, as operands one after the other.
bool Lowering::fit_tensor(int coordinates, const ast::Operand& o, const Statement& s, Draft& d,
                          std::string& why) {
    if (o.kind != Kind::address || o.items.size() != 1 || o.items[0].kind != Kind::vector ||
        o.items[0].items.size() != static_cast<std::size_t>(coordinates))
        return why = "a tensor map with " + std::to_string(coordinates) +
                     " coordinates, [map, {c0, …}], is needed",
               false;
    ast::Operand map = o;
    map.items.clear();
    if (!fit_address(map, s, d, why)) return false;
    for (const ast::Operand& c : o.items[0].items)
        if (!fit_value(Type::b32, false, false, c, s, d, why)) return false;
    return true;
}

bool Lowering::fit(const OperandSpec& spec, const Choice& choice, const ast::Operand& o, const Statement& s,
                   Draft& d, std::string& why) {
    if (spec.ref == TypeRef::address) return fit_address(o, s, d, why);
    if (spec.ref == TypeRef::tensor) return fit_tensor(coordinates(choice), o, s, d, why);
    if (spec.ref == TypeRef::immediate) {
        if (o.kind != Kind::number || o.number.kind != Number::Kind::integer)
            return why = "an integer constant is needed", false;
        d.ops.push_back({.bits = 64, .imm = static_cast<std::int64_t>(o.number.integer)});
        d.dest.push_back(false);
        return true;
    }
    const Type type = spec.type(choice);
    const int length = spec.count == kByModifier ? vector_length(choice)
                       : spec.count == kByShape  ? accumulator_registers(choice)
                       : spec.count == kBySpace  ? coordinates(choice) - 2
                                                 : spec.count;
    if (length == 1 && o.kind != Kind::vector) {
        if (!fit_value(type, spec.dest, spec.wide, o, s, d, why)) return false;
    } else {
        if (o.kind != Kind::vector || static_cast<int>(o.items.size()) != length)
            return why = "a vector of " + std::to_string(length) + " is needed", false;
        for (const ast::Operand& item : o.items)
            if (!fit_value(type, spec.dest, spec.wide, item, s, d, why)) return false;
    }
    if (spec.second) {
        if (o.second.empty()) {
            d.ops.push_back(sink(Type::pred));
            d.ops.back().absent = true;
            d.dest.push_back(false);
        } else {
            const ast::Operand second{
                .kind = o.second == "_" ? Kind::sink : Kind::name, .text = o.second, .line = o.line};
            if (!fit_value(Type::pred, true, false, second, s, d, why)) return false;
        }
    } else if (!o.second.empty()) {
        return why = "'|' does not belong here", false;
    }
    return true;
}

// What liveness and checks must know of wgmma and of copies.
void Lowering::note_part(Draft& d, const Choice& choice) {
    if (choice.opcode == "mov" && d.ops.size() == 2 && d.ops[0].bits == 32 && d.ops[0].bank == kBankVirtual &&
        d.ops[1].bank == kBankVirtual)
        d.part = Draft::Part::move;
    if (choice.opcode != "wgmma") return;
    if (choice.has(Mod::wait_group) && d.ops[0].imm == 0) d.part = Draft::Part::wait_for_all;
    if (!choice.has(Mod::mma_async)) return;
    d.part = Draft::Part::multiply;
    d.both = static_cast<std::uint32_t>(accumulator_registers(choice));
    d.held = d.both + (d.ops[d.both].bits == 32 ? 4 : 0);
}

bool Lowering::try_form(const Form& form, const Statement& s, const Choice& choice, std::string& why) {
    Draft d;
    changing_special_.reset();
    d.ins.vector = static_cast<std::uint8_t>(vector_length(choice));
    d.ins.space = space_of(choice);
    std::size_t next = 0;
    for (const OperandSpec& spec : form.operands) {
        const std::size_t kept = d.ops.size();
        if (next < s.operands.size() && fit(spec, choice, s.operands[next], s, d, why)) {
            ++next;
            continue;
        }
        if (!spec.optional) {
            if (next >= s.operands.size())
                why = "an operand is missing";
            else
                why = "operand " + std::to_string(next + 1) + ": " + why;
            return false;
        }
        d.ops.resize(kept);
        d.dest.resize(kept);
        d.ops.push_back(sink(spec.type(choice)));
        d.ops.back().absent = true;
        d.dest.push_back(false);
    }
    if (next < s.operands.size())
        return why = next == form.operands.size() ? "too many operands"
                                                  : "operand " + std::to_string(next + 1) + ": " + why,
               false;
    set_guard(d, s);
    if (changing_special_ && !form.pack)
        unsupported("'" + spelled(s) + "' reads a special register that changes; only mov may", where(s));
    try {
        d.ins.op = d.ops.data();
        d.ins.count = static_cast<std::uint16_t>(d.ops.size());
        if (changing_special_)
            d.ins.aux = *changing_special_, select_mov_special(choice, d.ins);
        else
            form.select(choice, d.ins);
    } catch (const SelectError& error) {
        if (error.illegal) invalid("'" + spelled(s) + "': " + error.what(), where(s));
        unsupported("'" + spelled(s) + "': " + error.what(), where(s));
    }
    uses_stack_ |= s.name == "alloca" || s.name == "stacksave" || s.name == "stackrestore";
    if (s.name == "exit" || s.name == "trap") d.flow = Draft::Flow::stop;
    note_part(d, choice);
    emit(std::move(d), s);
    return true;
}

// mov.b64 {lo,hi}, d and its inverse: the vector side has elements of an equal share of the bits.
bool Lowering::pack_operands(const Form& form, const Statement& s, const Choice& choice, std::string& why) {
    if (s.operands.size() != 2) return false;
    const bool unpack = s.operands[0].kind == Kind::vector, pack = s.operands[1].kind == Kind::vector;
    if (unpack == pack) return false;
    const auto& items = s.operands[pack ? 1 : 0].items;
    const int total = bits_of(choice.type(0));
    const int each = items.empty() ? 0 : total / static_cast<int>(items.size());
    if ((items.size() != 2 && items.size() != 4) || each < 8)
        return why = "a vector of 2 or 4 is needed", false;
    const Type part = each == 8 ? Type::b8 : each == 16 ? Type::b16 : each == 32 ? Type::b32 : Type::b64;
    Draft d;
    d.ins.vector = static_cast<std::uint8_t>(items.size());
    d.ins.aux = pack ? 1 : 2;
    if (pack && !fit_value(choice.type(0), true, false, s.operands[0], s, d, why)) return false;
    for (const ast::Operand& item : items)
        if (!fit_value(part, unpack, false, item, s, d, why)) return false;
    if (unpack && !fit_value(choice.type(0), false, false, s.operands[1], s, d, why)) return false;
    set_guard(d, s);
    d.ins.op = d.ops.data();
    form.select(choice, d.ins);
    emit(std::move(d), s);
    return true;
}

void Lowering::instruction(const Statement& s) {
    const std::span<const Form> forms = forms_of(s.name);
    if (forms.empty()) unsupported("Unknown instruction '" + spelled(s) + "'", where(s));
    bool spelling_known = false;
    std::string why;
    for (const Form& form : forms) {
        Choice choice;
        if (!match(form, s.mods, choice)) continue;
        if (form.select == nullptr) unsupported("'" + spelled(s) + "' is not supported yet", where(s));
        spelling_known = true;
        if (form.custom) return s.name == "call" ? call(s, form, choice) : branch(s, form, choice);
        if (form.pack && pack_operands(form, s, choice, why)) return;
        if (try_form(form, s, choice, why)) return;
    }
    if (spelling_known) invalid("'" + spelled(s) + "': " + why, where(s));
    unsupported("Unknown form '" + spelled(s) + "' of instruction '" + std::string(s.name) + "'", where(s));
}

}  // namespace emu
