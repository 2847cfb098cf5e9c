#include "ptx/program.hpp"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ir/errors.hpp"

namespace emu {
namespace {

constexpr std::uint64_t kMostGlobalBytes = std::uint64_t{1} << 31;

// Writes one initialiser element of `type`; the value of a symbol is its address.
void put(std::byte* to, const ast::Operand& item, Type type, const std::vector<GlobalObject>& globals,
         const CallGraph& calls) {
    std::uint64_t bits = item.number.integer;
    if (item.kind == ast::Operand::Kind::name) {
        const GlobalObject* found = nullptr;
        for (const GlobalObject& g : globals)
            if (g.name == item.text) found = &g;
        const ast::Function* const function = calls.find(item.text);
        if (found == nullptr && function == nullptr)
            throw PtxUnsupported(
                "The initialiser names '" + std::string(item.text) + "', which is no earlier variable",
                {.ptx_line = item.line});
        bits = (found != nullptr ? found->address : calls.address(*function)) + item.number.integer;
    } else if (item.number.kind == Number::Kind::fraction && type == Type::f32) {
        bits = std::bit_cast<std::uint32_t>(static_cast<float>(item.number.real));
    }
    std::memcpy(to, &bits, static_cast<std::size_t>(bits_of(type)) / 8);
}

GlobalObject make_global(const ast::Variable& v, const std::vector<GlobalObject>& earlier,
                         const CallGraph& calls) {
    std::uint64_t total = v.bytes();
    for (const GlobalObject& other : earlier)
        total += other.size;
    if (v.bytes() > kMostGlobalBytes || total > kMostGlobalBytes)
        throw PtxUnsupported("Variables beyond 2 GiB in all ('" + std::string(v.name) + "')",
                             {.ptx_line = v.line});
    GlobalObject g{.name = std::string(v.name), .size = v.bytes(), .constant = v.space == Space::constant};
    const std::uint64_t align = std::max<std::uint64_t>(v.alignment(), 16);
    g.storage.reset(static_cast<std::byte*>(std::calloc(g.size + align, 1)));  // pages come when touched
    if (g.storage == nullptr) throw std::bad_alloc();
    g.address = (reinterpret_cast<std::uint64_t>(g.storage.get()) + align - 1) & ~(align - 1);
    const std::size_t element = static_cast<std::size_t>(bits_of(v.type)) / 8;
    std::uint64_t at = 0;
    for (const ast::Operand& item : v.init) {
        if (at + element > g.size)
            throw PtxInvalid("Variable '" + g.name + "' has more initial values than elements",
                             {.ptx_line = v.line});
        put(reinterpret_cast<std::byte*>(g.address) + at, item, v.type, earlier, calls);
        at += element;
    }
    return g;
}

}  // namespace

Program::Program(const std::string& text) {
    const ast::Module module = parse(text);
    const CallGraph calls(module);
    for (const ast::Variable& v : module.variables) {
        if (v.space != Space::global && v.space != Space::constant) continue;
        if (v.is_extern)
            throw PtxUnsupported("Variable '" + std::string(v.name) + "' is defined in another module",
                                 {.ptx_line = v.line});
        globals_.push_back(make_global(v, globals_, calls));
    }
    for (const ast::Function& f : module.functions)
        if (f.entry && f.has_body) kernels_.push_back(lower(module, calls, f, globals_));
}

const Kernel* Program::find(const std::string& name) const {
    for (const Kernel& k : kernels_)
        if (k.name == name) return &k;
    return nullptr;
}

}  // namespace emu
