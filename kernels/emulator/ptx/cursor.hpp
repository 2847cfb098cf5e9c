// A place in the tokens, and the small steps every grammar rule is made of. Each failure is a PtxSyntaxError
// that says what was expected and what stands there instead.
#pragma once

#include <algorithm>
#include <string>

#include "ir/errors.hpp"
#include "ptx/lexer.hpp"

namespace emu {

class TokenCursor {
  protected:
    using Kind = Token::Kind;
    explicit TokenCursor(std::string_view text) : tokens_(tokenize(text)) {}

    [[nodiscard]] const Token& now(std::size_t ahead = 0) const {
        return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
    }
    const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
    bool accept(char c) { return now().is(c) ? (take(), true) : false; }
    bool accept_dot(std::string_view word) { return now().is_dot(word) ? (take(), true) : false; }

    [[noreturn]] void fail(const std::string& expected) const {
        const Token& t = now();
        const std::string found =
            t.kind == Kind::end ? "the end of the text" : "'" + std::string(t.text.substr(0, 60)) + "'";
        throw PtxSyntaxError(
            "Expected " + expected + ", found " + found + " at PTX line " + std::to_string(t.line),
            {.kernel = std::string(function_), .ptx_line = t.line});
    }
    void expect(char c) {
        if (!accept(c)) fail(std::string("'") + c + "'");
    }
    std::string_view word(const char* what) {
        if (now().kind != Kind::word) fail(what);
        return take().text;
    }
    std::uint64_t integer(const char* what) {
        if (now().kind != Kind::number) fail(what);
        const Number number = read_number(take());
        if (number.kind != Number::Kind::integer) fail(what);
        return number.integer;
    }
    std::uint32_t small(const char* what) {
        const std::uint64_t value = integer(what);
        if (value > 0x7fffffff) fail(std::string(what) + " below 2^31");
        return static_cast<std::uint32_t>(value);
    }
    [[nodiscard]] const Token& before() const { return tokens_[at_ == 0 ? 0 : at_ - 1]; }

    std::string_view function_;  // the one being read, for messages

  private:
    std::vector<Token> tokens_;
    std::size_t at_ = 0;
};

}  // namespace emu
