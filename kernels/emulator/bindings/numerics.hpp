// mlacademy._emulator.numerics: the tensor core and one-lane arithmetic on arrays, for tests and experiments.
#pragma once

#include <pybind11/pybind11.h>

namespace emu {

void add_numerics(pybind11::module_& parent);

}  // namespace emu
