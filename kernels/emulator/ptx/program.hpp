// A loaded PTX module: parsed, resolved and lowered. Immutable afterwards, except for the bytes of its
// .global variables, which live as long as the program, as they do on a GPU.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ir/instruction.hpp"
#include "ptx/ast.hpp"
#include "ptx/calls.hpp"

namespace emu {

// A .global or .const variable of the module. The storage never moves: its host address is its global
// address.
struct GlobalObject {
    std::string name;
    std::unique_ptr<std::byte[], void (*)(void*)> storage = {nullptr, std::free};
    std::uint64_t address = 0;  // inside storage, aligned as declared
    std::uint64_t size = 0;
    bool constant = false;
};

class Program {
  public:
    // Throws PtxSyntaxError, PtxInvalid or PtxUnsupported.
    explicit Program(const std::string& text);

    [[nodiscard]] const std::vector<Kernel>& kernels() const { return kernels_; }
    [[nodiscard]] const std::vector<GlobalObject>& globals() const { return globals_; }
    [[nodiscard]] const Kernel* find(const std::string& name) const;

  private:
    std::vector<GlobalObject> globals_;
    std::vector<Kernel> kernels_;
};

// Lowers one entry function; `globals` gives the addresses of the module's variables.
[[nodiscard]] Kernel lower(const ast::Module& module, const CallGraph& calls, const ast::Function& entry,
                           const std::vector<GlobalObject>& globals);

}  // namespace emu
