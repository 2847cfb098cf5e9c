// EventLog for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace emu {

void add_trace(pybind11::module_& m);

}  // namespace emu
