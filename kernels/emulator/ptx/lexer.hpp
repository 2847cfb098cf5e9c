// PTX text to tokens. Comments and white space are gone, except for the start of a marker, `// mla.word`,
// whose line goes on as tokens; `.word` is one token; a number keeps its spelling.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace emu {

struct Token {
    enum class Kind : std::uint8_t { word, dot_word, number, string, punct, marker, end } kind;
    std::string_view text;  // dot_word without its dot, string without its quotes, marker from "mla." on
    int line;

    [[nodiscard]] bool is(char c) const { return kind == Kind::punct && text.size() == 1 && text[0] == c; }
    [[nodiscard]] bool is_dot(std::string_view word) const { return kind == Kind::dot_word && text == word; }
};

// The tokens of `text`, which must outlive them; the last one is `end`. Throws PtxSyntaxError.
[[nodiscard]] std::vector<Token> tokenize(std::string_view text);

// The value of a number token: integers of any base, 0f…/0d… bit patterns, decimal fractions.
struct Number {
    std::uint64_t integer = 0;  // two's complement for integers; bits of the float otherwise
    double real = 0;            // value of a fraction or of a 0f…/0d… pattern
    enum class Kind : std::uint8_t { integer, f32_bits, f64_bits, fraction } kind = Kind::integer;
};
[[nodiscard]] Number read_number(const Token& token);

}  // namespace emu
