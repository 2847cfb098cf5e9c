// What the loader needs of exec/: selectors it calls by name, and how a selector refuses.
#pragma once

#include <stdexcept>
#include <string>

#include "ptx/forms.hpp"

namespace emu {

// Thrown by a selector: the modifiers match the form, yet this combination breaks a rule (`illegal`) or does
// not run.
struct SelectError : std::runtime_error {
    SelectError(const std::string& text, bool illegal) : std::runtime_error(text), illegal(illegal) {}
    bool illegal;
};

void select_ret(const Choice&, Instruction&);
void select_call(const Choice&, Instruction&);
void select_enter(const Choice&, Instruction&);
void select_frame_address(const Choice&, Instruction&);
void select_bra(const Choice&, Instruction&);
void select_mov_special(const Choice&, Instruction&);
[[nodiscard]] Space space_of(const Choice& choice);

}  // namespace emu
