#include "ir/errors.hpp"

namespace emu {

std::string describe(const Where& where) {
    std::string text = where.kernel.empty() ? std::string("module") : "kernel " + where.kernel;
    if (!where.source_file.empty()) {
        const auto slash = where.source_file.find_last_of('/');
        text += ", " + where.source_file.substr(slash == std::string::npos ? 0 : slash + 1) + " line " +
                std::to_string(where.source_line);
    }
    if (where.ptx_line > 0) text += " (PTX line " + std::to_string(where.ptx_line) + ")";
    return text;
}

}  // namespace emu
