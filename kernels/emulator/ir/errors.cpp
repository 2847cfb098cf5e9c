#include "ir/errors.hpp"

namespace emu {

namespace {

std::string place(const std::string& file, int line) {
    return file.substr(file.find_last_of('/') + 1) + " line " + std::to_string(line);
}

}  // namespace

std::string describe(const Where& where) {
    std::string text = where.kernel.empty() ? std::string("module") : "kernel " + where.kernel;
    if (!where.source_file.empty()) text += ", " + place(where.source_file, where.source_line);
    if (!where.inner_file.empty()) text += ", in " + place(where.inner_file, where.inner_line);
    if (where.ptx_line > 0) text += " (PTX line " + std::to_string(where.ptx_line) + ")";
    return text;
}

}  // namespace emu
