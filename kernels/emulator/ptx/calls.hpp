// Who calls whom in a module, and which functions are called rather than inlined: those of a recursion, those
// whose address is taken, those that use `alloca`, and those that inlining would multiply too often.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx/ast.hpp"

namespace emu {

class CallGraph {
  public:
    explicit CallGraph(const ast::Module& module);

    // The function of this name that has a body, `.alias` followed; nullptr where there is none.
    [[nodiscard]] const ast::Function* find(std::string_view name) const;
    [[nodiscard]] bool inlined(const ast::Function& f) const;
    // The value that `mov` gives for the function's name.
    [[nodiscard]] std::uint64_t address(const ast::Function& f) const;
    // The functions that `entry` calls without inlining them, directly or not; a callee before its callers.
    [[nodiscard]] std::vector<const ast::Function*> called_from(const ast::Function& entry) const;

  private:
    struct Node {
        const ast::Function* function;
        std::vector<std::size_t> callees = {};
        std::size_t statements = 0, depth = 1;  // after inlining
        std::size_t call_sites = 0;
        bool indirect = false;  // calls through a register
        bool address_taken = false, out_of_line = false;
    };
    void scan(Node& node);
    void take_addresses(const ast::Operand& operand);
    void decide();
    // Calls `leave(node)` for everything reachable from `from`, callees first, and `back(node)` for the start
    // of a cycle.
    template <class Back, class Leave>
    void walk(std::size_t from, bool through_pointers, std::vector<char>& seen, Back back, Leave leave) const;

    std::unordered_map<std::string_view, std::size_t> index_;
    std::unordered_map<const ast::Function*, std::size_t> number_;
    std::vector<Node> nodes_;
    std::vector<std::size_t> taken_;
};

}  // namespace emu
