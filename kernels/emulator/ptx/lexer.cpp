#include "ptx/lexer.hpp"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <string>

#include "ir/errors.hpp"

namespace emu {
namespace {

constexpr std::string_view kMarker = "mla.";

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}
bool is_word(char c) {
    return is_letter(c) || is_digit(c);
}

[[noreturn]] void fail(const std::string& text, int line) {
    throw PtxSyntaxError(text + " at PTX line " + std::to_string(line), {.ptx_line = line});
}

class Lexer {
  public:
    explicit Lexer(std::string_view text) : text_(text) {}

    std::vector<Token> run() {
        std::vector<Token> tokens;
        tokens.reserve(text_.size() / 4);
        for (;;) {
            skip_blanks();
            if (at_ >= text_.size()) break;
            tokens.push_back(next());
        }
        tokens.push_back({Token::Kind::end, "", line_});
        return tokens;
    }

  private:
    [[nodiscard]] char peek(std::size_t ahead = 0) const {
        return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
    }

    void skip_blanks() {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '\n') ++line_;
            if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0') {
                ++at_;
            } else if (c == '/' && peek(1) == '/' && at_marker()) {
                return;
            } else if (c == '/' && peek(1) == '/') {
                while (at_ < text_.size() && text_[at_] != '\n')
                    ++at_;
            } else if (c == '/' && peek(1) == '*') {
                const std::size_t end = text_.find("*/", at_ + 2);
                if (end == std::string_view::npos) fail("A comment is not closed", line_);
                for (; at_ < end; ++at_)
                    line_ += text_[at_] == '\n';
                at_ = end + 2;
            } else {
                return;
            }
        }
    }

    // Where the comment that starts here is a marker, goes to its "mla.".
    bool at_marker() {
        const std::size_t word = text_.find_first_not_of(" \t/", at_);
        if (word == std::string_view::npos || text_.substr(word, kMarker.size()) != kMarker) return false;
        at_ = word;
        return marker_ = true;
    }

    Token take(Token::Kind kind, std::size_t end, std::size_t skip = 0) {
        const Token token{kind, text_.substr(at_ + skip, end - at_ - skip), line_};
        at_ = end;
        return token;
    }

    Token next() {
        const char c = peek();
        std::size_t end = at_ + 1;
        const auto run_on = [&](auto accept) {
            while (end < text_.size() && accept(text_[end]))
                ++end;
        };
        if (c == '"') {
            const std::size_t close = text_.find_first_of("\"\n", end);
            if (close == std::string_view::npos || text_[close] == '\n')
                fail("A string is not closed", line_);
            Token token = take(Token::Kind::string, close, 1);
            ++at_;
            return token;
        }
        if (marker_) {
            marker_ = false;
            end = at_ + kMarker.size();
            run_on(is_word);
            return take(Token::Kind::marker, end);
        }
        if (c == '.' && is_word(peek(1))) {
            for (run_on(is_word); end + 2 < text_.size() && text_[end] == ':' && text_[end + 1] == ':';
                 run_on(is_word))
                end += 2;
            return take(Token::Kind::dot_word, end, 1);
        }
        if (is_letter(c)) {
            run_on(is_word);
            return take(Token::Kind::word, end);
        }
        if (c == '%') {  // %r1, %tid.x
            run_on(is_word);
            if (end + 1 < text_.size() && text_[end] == '.' && is_letter(text_[end + 1]))
                ++end, run_on(is_word);
            return take(Token::Kind::word, end);
        }
        if (is_digit(c)) {
            run_on([&](char d) {
                const bool decimal = !(c == '0' && (text_[at_ + 1] == 'x' || text_[at_ + 1] == 'X'));
                return is_word(d) ||
                       (decimal && d == '.' && !is_letter(end + 1 < text_.size() ? text_[end + 1] : '\0')) ||
                       (decimal && (d == '-' || d == '+') &&
                        (text_[end - 1] == 'e' || text_[end - 1] == 'E') && text_[at_ + 1] != 'f' &&
                        text_[at_ + 1] != 'd' && text_[at_ + 1] != 'F' && text_[at_ + 1] != 'D');
            });
            return take(Token::Kind::number, end);
        }
        constexpr std::string_view punctuation = "{}()[]<>,;:@!|+-~=*";
        if (punctuation.find(c) == std::string_view::npos) {
            fail(std::string("Unexpected character '") +
                     (c >= ' ' && c < 127 ? std::string(1, c)
                                          : "\\x" + std::to_string(static_cast<unsigned char>(c))) +
                     "'",
                 line_);
        }
        return take(Token::Kind::punct, end);
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int line_ = 1;
    bool marker_ = false;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) {
    return Lexer(text).run();
}

Number read_number(const Token& token) {
    std::string_view text = token.text;
    const auto bad = [&] { fail("Cannot read the number '" + std::string(token.text) + "'", token.line); };
    const auto parse = [&](std::string_view digits, int base) {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
        if (error != std::errc{} || end != digits.data() + digits.size()) bad();
        return value;
    };
    const char kind = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : ' ';
    if (kind == 'f' && text.size() == 10) {
        const std::uint64_t bits = parse(text.substr(2), 16);
        return {bits, std::bit_cast<float>(static_cast<std::uint32_t>(bits)), Number::Kind::f32_bits};
    }
    if (kind == 'd' && text.size() == 18) {
        const std::uint64_t bits = parse(text.substr(2), 16);
        return {bits, std::bit_cast<double>(bits), Number::Kind::f64_bits};
    }
    if (kind != 'x' && text.find_first_of(".eE") != std::string_view::npos) {
        const std::string copy(text);
        char* end = nullptr;
        const double value = std::strtod(copy.c_str(), &end);
        if (end != copy.c_str() + copy.size()) bad();
        return {std::bit_cast<std::uint64_t>(value), value, Number::Kind::fraction};
    }
    if (text.ends_with('U') || text.ends_with('u')) text.remove_suffix(1);
    if (kind == 'x') return {parse(text.substr(2), 16)};
    if (kind == 'b') return {parse(text.substr(2), 2)};
    if (text.size() > 1 && text[0] == '0') return {parse(text.substr(1), 8)};
    return {parse(text, 10)};
}

}  // namespace emu
