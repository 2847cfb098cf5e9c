#include "ptx/calls.hpp"

#include <algorithm>

#include "machine/memory.hpp"

namespace emu {
namespace {

using Kind = ast::Operand::Kind;

// Statements, with everything inlined into them, of a function that is called once and of one called more
// often.
constexpr std::size_t kLargestInlined = 20000, kLargestRepeated = 1000;
constexpr std::size_t kDeepestInlined = 32;

}  // namespace

CallGraph::CallGraph(const ast::Module& module) {
    for (const ast::Function& f : module.functions) {
        if (!f.has_body) continue;
        index_.try_emplace(f.name, nodes_.size());
        number_.emplace(&f, nodes_.size());
        nodes_.push_back({.function = &f});
    }
    for (const auto& [alias, name] : module.aliases)
        if (const auto found = index_.find(name); found != index_.end())
            index_.try_emplace(alias, found->second);
    const bool only_kernels = std::ranges::all_of(nodes_, [](const Node& n) { return n.function->entry; });
    if (only_kernels) return;
    for (Node& node : nodes_)
        scan(node);
    for (const ast::Variable& v : module.variables)
        for (const ast::Operand& item : v.init)
            take_addresses(item);
    for (std::size_t n = 0; n < nodes_.size(); ++n)
        if (nodes_[n].address_taken) taken_.push_back(n);
    decide();
}

void CallGraph::take_addresses(const ast::Operand& operand) {
    if (operand.kind == Kind::name)
        if (const auto found = index_.find(operand.text); found != index_.end())
            nodes_[found->second].address_taken = true;
    for (const ast::Operand& item : operand.items)
        take_addresses(item);
}

void CallGraph::scan(Node& node) {
    for (const ast::Statement& s : node.function->body) {
        if (s.kind != ast::Statement::Kind::instruction) continue;
        ++node.statements;
        node.out_of_line |= s.name == "alloca";
        if (s.name != "call") {
            for (const ast::Operand& o : s.operands)
                take_addresses(o);
            continue;
        }
        const auto target = std::ranges::find(s.operands, Kind::name, &ast::Operand::kind);
        if (target == s.operands.end()) continue;
        if (const auto found = index_.find(target->text); found != index_.end())
            node.callees.push_back(found->second), ++nodes_[found->second].call_sites;
        else
            node.indirect = true;  // or a function without a body, which lowering refuses
    }
}

template <class Back, class Leave>
void CallGraph::walk(std::size_t from, bool through_pointers, std::vector<char>& seen, Back back,
                     Leave leave) const {
    constexpr char open = 1, closed = 2;
    struct Step {
        std::size_t node, next = 0;
    };
    std::vector<Step> path;  // not recursive: a chain of calls may be as long as the file
    if (seen[from] == 0) path.push_back({from}), seen[from] = open;
    while (!path.empty()) {
        Step& step = path.back();
        const Node& node = nodes_[step.node];
        const std::size_t direct = node.callees.size();
        if (step.next == direct + (through_pointers && node.indirect ? taken_.size() : 0)) {
            const std::size_t done = step.node;
            path.pop_back();
            seen[done] = closed;
            leave(done);
            continue;
        }
        const std::size_t callee = step.next < direct ? node.callees[step.next] : taken_[step.next - direct];
        ++step.next;
        if (seen[callee] == open) back(callee);
        if (seen[callee] == 0) path.push_back({callee}), seen[callee] = open;
    }
}

void CallGraph::decide() {
    std::vector<char> seen(nodes_.size(), 0);
    for (std::size_t n = 0; n < nodes_.size(); ++n)
        walk(
            n, false, seen, [&](std::size_t start) { nodes_[start].out_of_line = true; },
            [&](std::size_t done) {
                Node& node = nodes_[done];
                for (const std::size_t c : node.callees) {
                    if (nodes_[c].out_of_line) continue;
                    node.statements += nodes_[c].statements;
                    node.depth = std::max(node.depth, nodes_[c].depth + 1);
                }
                node.out_of_line |=
                    node.statements > (node.call_sites > 1 ? kLargestRepeated : kLargestInlined) ||
                    node.depth > kDeepestInlined;
            });
}

const ast::Function* CallGraph::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : nodes_[found->second].function;
}

bool CallGraph::inlined(const ast::Function& f) const {
    return !nodes_[number_.at(&f)].out_of_line;
}

std::uint64_t CallGraph::address(const ast::Function& f) const {
    return kCodeWindow + 16 * (number_.at(&f) + 1);
}

std::vector<const ast::Function*> CallGraph::called_from(const ast::Function& entry) const {
    std::vector<const ast::Function*> called;
    std::vector<char> seen(nodes_.size(), 0);
    bool indirect = false;
    const auto nothing = [](std::size_t) {};
    walk(number_.at(&entry), true, seen, nothing, [&](std::size_t n) { indirect |= nodes_[n].indirect; });
    std::ranges::fill(seen, 0);
    walk(number_.at(&entry), true, seen, nothing, [&](std::size_t n) {
        const Node& node = nodes_[n];
        if (node.function->entry) return;
        if (node.out_of_line || (indirect && node.address_taken)) called.push_back(node.function);
    });
    return called;
}

}  // namespace emu
