#include <pybind11/pybind11.h>

PYBIND11_MODULE(_core, m) { m.doc() = "Native loops of MLAcademy: FP8 codecs and cache pack/unpack."; }
