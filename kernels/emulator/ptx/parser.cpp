// Recursive descent over the tokens: module → functions → statements. Knows PTX's grammar, not its
// instructions.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "ir/errors.hpp"
#include "ptx/ast.hpp"
#include "ptx/cursor.hpp"

namespace emu {
namespace {

using ast::Function;
using ast::Operand;
using ast::Statement;
using ast::Variable;
using Kind = Token::Kind;

class Parser : TokenCursor {
  public:
    explicit Parser(std::string_view text) : TokenCursor(text) {}

    ast::Module run() {
        while (now().kind != Kind::end)
            module_item();
        return std::move(module_);
    }

  private:
    // ---- module level
    // ------------------------------------------------------------------------------------------
    void module_item() {
        if (accept_dot("version")) {
            module_.version = std::string(take().text);
        } else if (accept_dot("target")) {
            module_.target = std::string(word("a target such as sm_90a"));
            while (accept(','))
                take();
        } else if (accept_dot("address_size")) {
            if (integer("64") != 64) fail("an address size of 64");
        } else if (accept_dot("file")) {
            file();
        } else if (accept_dot("section")) {
            section();
        } else if (now().is_dot("loc")) {
            loc();
        } else if (accept_dot("pragma")) {
            while (!accept(';'))
                skip_one("';'");
        } else {
            linkage_item();
        }
    }

    void skip_one(const char* until) {
        if (now().kind == Kind::end) fail(until);
        take();
    }

    void file() {
        const int number = static_cast<int>(small("a file number"));
        if (now().kind != Kind::string) fail("a file name in quotes");
        module_.files[number] = std::string(take().text);
        while (accept(','))
            take();
    }

    void section() {
        while (!now().is('{'))
            skip_one("'{'");
        int depth = 0;
        do {
            if (now().is('{')) ++depth;
            if (now().is('}')) --depth;
            skip_one("'}'");
        } while (depth > 0);
    }

    void linkage_item() {
        bool is_extern = false;
        while (now().is_dot("visible") || now().is_dot("extern") || now().is_dot("weak") ||
               now().is_dot("common"))
            is_extern |= take().text == "extern";
        if (accept_dot("entry")) return function(true);
        if (accept_dot("func")) return function(false);
        if (accept_dot("alias")) return alias();
        declare(module_.variables, is_extern);
    }

    void alias() {
        const std::string_view name = word("a function name");
        expect(',');
        module_.aliases.emplace_back(name, word("a function name"));
        expect(';');
    }

    static bool space_named(std::string_view name, Space& space) {
        constexpr std::pair<std::string_view, Space> names[] = {{"global", Space::global},
                                                                {"shared", Space::shared},
                                                                {"local", Space::local},
                                                                {"param", Space::param},
                                                                {"const", Space::constant}};
        for (const auto& [text, value] : names)
            if (text == name) return space = value, true;
        return false;
    }

    Type type() {
        if (now().kind != Kind::dot_word) fail("a type such as .b32");
        const Type found = type_named(now().text);
        if (found == Type::none) fail("a type such as .b32");
        take();
        return found;
    }

    // `.global .align 4 .b8 name[12] = {…}` without the ';'.
    Variable variable() {
        Variable v;
        v.line = now().line;
        if (now().kind != Kind::dot_word || !space_named(now().text, v.space)) fail("a declaration");
        take();
        for (;;) {
            if (accept_dot("align"))
                v.align = small("an alignment");
            else if (accept_dot("v2"))
                v.vector = 2;
            else if (accept_dot("v4"))
                v.vector = 4;
            else if (accept_dot("ptr"))
                while (now().kind == Kind::dot_word)
                    take().text == "align" ? void(small("an alignment")) : void();
            else if (accept_dot("attribute")) {
                expect('(');
                while (!accept(')'))
                    skip_one("')'");
            } else if (now().kind == Kind::dot_word && v.type == Type::b8 && !typed_)
                v.type = type(), typed_ = true;
            else
                break;
        }
        // `.param .u64 .ptr .global .align 8 name` has the pointer's attributes after the type.
        if (!typed_) fail("a type such as .b32");
        typed_ = false;
        if ((v.align & (v.align - 1)) != 0) fail("an alignment that is a power of two");
        v.name = word("a name");
        while (accept('[')) {
            v.array = true;
            v.count = now().is(']') ? 0 : v.count * small("a number of elements");
            if (v.count > (std::uint64_t{1} << 40)) fail("an array below 2^40 elements");
            expect(']');
        }
        return v;
    }

    void declare(std::vector<Variable>& list, bool is_extern) {
        Variable v = variable();
        for (;;) {
            v.is_extern = is_extern;
            if (accept('=')) initialiser(v);
            list.push_back(v);
            if (!accept(',')) break;
            v.name = word("a name");
            v.init.clear();
            v.count = 1;
        }
        expect(';');
    }

    void initialiser(Variable& v) {
        const int depth_limit = 16;
        int depth = 0;
        do {
            if (accept('{')) {
                if (++depth > depth_limit) fail("less nesting");
            } else if (accept('}')) {
                --depth;
            } else if (!accept(',')) {
                v.init.push_back(operand());
                if (now().is('('))
                    throw PtxUnsupported(
                        "An initialiser with '" + std::string(v.init.back().text) + "(…)' is not supported",
                        {.ptx_line = now().line});
                if (accept('+')) v.init.back().number = read_number(take());
            }
            if (now().kind == Kind::end) fail("'}'");
        } while (depth > 0);
        if (v.array && v.count == 0) v.count = v.init.size();
    }

    // ---- functions
    // ---------------------------------------------------------------------------------------------
    void function(bool entry) {
        Function f;
        f.entry = entry;
        f.line = now().line;
        if (accept('(')) parameters(f.returns);
        f.name = word("a function name");
        function_ = f.name;
        if (accept('(')) parameters(f.params);
        f.scopes.emplace_back();
        while (now().kind == Kind::dot_word)
            directive(f);
        if (accept('{')) {
            f.has_body = true;
            body(f);
        } else {
            expect(';');
        }
        module_.functions.push_back(std::move(f));
        function_ = {};
    }

    void parameters(std::vector<Variable>& list) {
        while (!accept(')')) {
            if (accept_dot("reg")) {
                Variable v{.space = Space::param, .in_register = true, .line = now().line};
                v.type = type();
                v.name = word("a register name");
                list.push_back(v);
            } else {
                list.push_back(variable());
            }
            if (!now().is(')')) expect(',');
        }
    }

    void directive(Function& f) {
        const std::string_view name = take().text;
        std::array<std::uint32_t, 3> values{1, 1, 1};
        if (name == "noreturn" || name == "explicitcluster" || name == "blocksareclusters")
            return void(f.directives[name] = values);
        if (name == "pragma") {
            while (!accept(';'))
                skip_one("';'");
            return;
        }
        std::size_t count = 0;
        do {
            const std::uint32_t value = small("a number");
            if (count < 3) values[count++] = value;
        } while (accept(','));
        f.directives[name] = values;
    }

    void body(Function& f) {
        std::vector<std::size_t> open{0};
        loc_ = {};
        callers_.clear();
        for (;;) {
            const Token& t = now();
            if (accept('{')) {
                if (open.size() > 64) fail("less nesting");
                open.push_back(f.scopes.size());
                f.scopes.emplace_back();
                f.body.push_back({.kind = Statement::Kind::open, .line = t.line});
            } else if (accept('}')) {
                open.pop_back();
                if (open.empty()) return;
                f.body.push_back({.kind = Statement::Kind::close, .line = t.line});
            } else if (t.kind == Kind::marker) {
                f.body.push_back(marker());
            } else if (t.kind == Kind::dot_word) {
                body_directive(f.scopes[open.back()]);
            } else if (t.kind == Kind::word && now(1).is(':')) {
                label(f);
            } else if (!accept(';')) {
                f.body.push_back(instruction());
            }
        }
    }

    void loc() {
        take();
        const auto place = [this] {
            const auto file = static_cast<int>(small("a file number"));
            const auto line = static_cast<int>(small("a line number"));
            return std::array{file, line, static_cast<int>(small("a column"))};
        };
        const std::array<int, 3> here = place();
        std::array<int, 3> caller{};
        while (accept(',')) {  // function_name X, inlined_at f l c
            if (now().text == "inlined_at") {
                take();
                caller = place();
                continue;
            }
            word("an attribute of .loc");
            while (now().kind == Kind::number || now().is('+') ||
                   (now().kind == Kind::word && !now(1).is(':') && before().text == "function_name"))
                take();
        }
        if (here[1] == 0) return;  // code that belongs to no line
        callers_[here] = caller;
        std::vector<std::array<int, 3>> frames{here};
        while (callers_[frames.back()][1] != 0 && frames.size() < 64)
            frames.push_back(callers_[frames.back()]);
        const auto own = std::ranges::find(frames, frames.back()[0], [](const auto& f) { return f[0]; });
        loc_ = {(*own)[0], (*own)[1]};
        if (own != frames.begin()) loc_.inner_file = here[0], loc_.inner_line = here[1];
    }

    void body_directive(Function::Scope& scope) {
        if (now().is_dot("loc")) return loc();
        if (accept_dot("pragma")) {
            while (!accept(';'))
                skip_one("';'");
        } else if (accept_dot("reg")) {
            std::uint32_t vector = 1;
            if (accept_dot("v2")) vector = 2;
            if (accept_dot("v4")) vector = 4;
            if (vector != 1)
                throw PtxUnsupported("Vector registers are not supported",
                                     {.kernel = std::string(function_), .ptx_line = now().line});
            const Type t = type();
            do {
                ast::Registers r{t, word("a register name")};
                if (accept('<')) {
                    r.count = small("a number of registers");
                    if (r.count > (1u << 20)) fail("at most 2^20 registers");
                    expect('>');
                }
                scope.registers.push_back(r);
            } while (accept(','));
            expect(';');
        } else {
            const bool is_extern = accept_dot("extern");
            declare(scope.variables, is_extern);
        }
    }

    void label(Function& f) {
        const Token& name = take();
        take();  // ':'
        if (accept_dot("callprototype")) {
            auto signature = std::make_shared<ast::Signature>();
            if (accept('(')) parameters(signature->returns);
            word("'_'");
            if (accept('(')) parameters(signature->params);
            while (!accept(';'))  // .noreturn, .abi_preserve
                skip_one("';'");
            f.body.push_back({.kind = Statement::Kind::table,
                              .line = name.line,
                              .name = name.text,
                              .prototype = std::move(signature)});
        } else if (accept_dot("branchtargets") || accept_dot("calltargets")) {
            Statement table{.kind = Statement::Kind::table, .line = name.line, .name = name.text};
            do
                table.labels.push_back(word("a label"));
            while (accept(','));
            expect(';');
            f.body.push_back(std::move(table));
        } else {
            f.body.push_back({.kind = Statement::Kind::label, .line = name.line, .name = name.text});
        }
    }

    // ---- instructions
    // --------------------------------------------------------------------------------------------
    Statement instruction() {
        Statement s{.kind = Statement::Kind::instruction, .line = now().line, .loc = loc_};
        if (accept('@')) {
            s.guard_negated = accept('!');
            s.guard = word("a predicate");
        }
        s.line = now().line;
        s.name = word("an instruction");
        while (now().kind == Kind::dot_word)
            s.mods.push_back(take().text);
        if (!now().is(';')) {
            do
                s.operands.push_back(operand());
            while (accept(','));
        }
        expect(';');
        return s;
    }

    // `// mla.buffer "full", %r5, 8`: a comment to others, to us a statement that ends with its line.
    Statement marker() {
        Statement s{.kind = Statement::Kind::marker, .line = now().line, .loc = loc_, .name = take().text};
        if (now().kind != Kind::string || now().line != s.line) fail_marker(s, "a name in quotes");
        s.labels.push_back(take().text);
        while (now().is(',') && now().line == s.line) {
            take();
            if (now().line != s.line) fail_marker(s, "a register or a number after ','");
            s.operands.push_back(operand());
        }
        if (now().line == s.line) fail_marker(s, "the end of the line");
        return s;
    }

    [[noreturn]] void fail_marker(const Statement& s, const char* expected) const {
        const bool ended = now().line != s.line;
        const std::string found =
            ended ? "the line ends" : "'" + std::string(now().text.substr(0, 60)) + "' stands there";
        throw PtxSyntaxError("The marker '// " + std::string(s.name) + "' needs " + expected + ", but " +
                                 found + " at PTX line " + std::to_string(s.line),
                             {.kernel = std::string(function_), .ptx_line = s.line});
    }

    Operand list(Operand::Kind kind, char close) {
        Operand o{.kind = kind, .line = now().line};
        if (++depth_ > 16) fail("less nesting");
        if (!accept(close)) {
            do
                o.items.push_back(operand());
            while (accept(','));
            expect(close);
        }
        --depth_;
        return o;
    }

    Number number(bool negative) {
        Number n = read_number(take());
        if (!negative) return n;
        n.real = -n.real;
        if (n.kind == Number::Kind::integer)
            n.integer = ~n.integer + 1;
        else if (n.kind == Number::Kind::f32_bits)
            n.integer ^= 0x80000000u;
        else
            n.integer ^= std::uint64_t{1} << 63;
        return n;
    }

    Operand operand() {
        if (accept('{')) return list(Operand::Kind::vector, '}');
        if (accept('(')) return list(Operand::Kind::list, ')');
        if (accept('[')) return address();
        Operand o{.line = now().line};
        const bool negative = accept('-');
        if (now().kind == Kind::number) {
            o.kind = Operand::Kind::number;
            o.number = number(negative);
            return o;
        }
        if (negative) fail("a number");
        if (now().kind == Kind::string) return o.text = take().text, o;
        if (accept('~')) {
            o.kind = Operand::Kind::number;
            o.number = number(false);
            o.number.integer = ~o.number.integer;
            return o;
        }
        o.negated = accept('!');
        o.text = word("an operand");
        if (o.text == "_") o.kind = Operand::Kind::sink;
        if (accept('|')) o.second = word("a predicate");
        if (now().is('+') && now(1).kind == Kind::number)
            take(), o.number = number(false);  // symbol+4 in mov
        return o;
    }

    Operand address() {
        Operand o{.kind = Operand::Kind::address, .line = now().line};
        if (now().kind == Kind::word) o.text = take().text;
        bool negative = false, more = o.text.empty();
        for (; now().is('+') || now().is('-'); more = true)
            negative = take().is('-') != negative;
        if (more) {
            if (now().kind != Kind::number) fail("a displacement");
            o.number = number(negative);
        }
        if (accept(',')) o.items.push_back(operand());  // [map, {coordinates}]
        expect(']');
        return o;
    }

    ast::Module module_;
    ast::Loc loc_;
    std::map<std::array<int, 3>, std::array<int, 3>> callers_;  // file, line, column, of inlined code
    bool typed_ = false;
    int depth_ = 0;
};

}  // namespace

ast::Module parse(std::string_view text) {
    return Parser(text).run();
}

}  // namespace emu
