#include "decode_call.hpp"

#include <cstring>
#include <memory>

namespace py = pybind11;

namespace mlacademy {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr std::size_t kBuffer = DecodeCall::kInputs;  // places of the other arguments
constexpr std::size_t kLayout = kBuffer + 1, kScale = kBuffer + 2, kLists = kBuffer + 3;
constexpr Py_ssize_t kArguments = kBuffer + 4;
constexpr std::size_t kQ = 0, kKv = 1, kExtraKv = 4;  // inputs whose rows are read 16 bytes at a time
constexpr std::uint64_t kAlignment = 16;

py::object call(const py::object& function, PyObject* const* arguments, std::size_t count) {
    PyObject* const result = PyObject_Vectorcall(function.ptr(), arguments, count, nullptr);
    if (result == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(result);
}

std::uint64_t number(const py::object& value) {
    const unsigned long long result = PyLong_AsUnsignedLongLong(value.ptr());
    if (result == static_cast<unsigned long long>(-1) && PyErr_Occurred()) throw py::error_already_set();
    return result;
}

bool equal(PyObject* one, PyObject* other) {
    const int result = PyObject_RichCompareBool(one, other, Py_EQ);
    if (result < 0) throw py::error_already_set();
    return result == 1;
}

py::object make(const py::object& empty, const Form& form) {
    PyObject* const arguments[] = {form.shape.ptr(), form.strides.ptr(), form.dtype.ptr()};
    return call(empty, arguments, 3);
}

// Memory that later work of the same stream may have, once what uses it is launched.
class Scratch {
  public:
    Scratch(const DecodeCall& call_, PyObject* stream) : release_(call_.functions.release) {
        PyObject* const arguments[] = {call_.scratch_bytes.ptr(), stream};
        if (PyObject_IsTrue(arguments[0]) == 1) place_ = call(call_.functions.allocate, arguments, 2);
    }
    ~Scratch() {
        if (!place_) return;
        PyObject *type, *value, *trace;  // an error on its way outlives this
        PyErr_Fetch(&type, &value, &trace);
        PyObject* const argument = place_.ptr();
        Py_XDECREF(PyObject_Vectorcall(release_.ptr(), &argument, 1, nullptr));
        PyErr_Clear();
        PyErr_Restore(type, value, trace);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    std::uint64_t address() const { return place_ ? number(place_) : 0; }

  private:
    const py::object& release_;
    py::object place_;
};

PyObject* entry(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != kArguments) {
        PyErr_Format(PyExc_TypeError, "a decode call takes %zd arguments, got %zd", kArguments, count);
        return nullptr;
    }
    return static_cast<const DecodeCall*>(PyCapsule_GetPointer(self, nullptr))->run(arguments);
}

PyMethodDef method = {"decode_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry)),
                      METH_FASTCALL, nullptr};

}  // namespace

bool DecodeCall::fits(PyObject* const* arguments) const {
    if (!PyFloat_CheckExact(arguments[kScale])) return false;
    const double scale = PyFloat_AS_DOUBLE(arguments[kScale]);
    if (!(scale > 0.0 && scale <= called_for.max_scale)) return false;
    PyObject* tensors[kInputs + 1];
    std::size_t count = 0;
    for (std::size_t i = 0; i < kInputs; ++i) {
        if ((arguments[i] != Py_None) != called_for.given[i]) return false;
        if (called_for.given[i]) tensors[count++] = arguments[i];
    }
    tensors[count++] = arguments[kBuffer];
    if (!equal(arguments[kLayout], called_for.layout.ptr())) return false;
    if (!equal(arguments[kLists], called_for.lists.ptr())) return false;
    if (call(functions.checked, nullptr, 0).ptr() != called_for.checked.ptr()) return false;
    if (PyObject_IsTrue(call(functions.modes, nullptr, 0).ptr()) != 0) return false;
    if (!call(functions.transform, nullptr, 0).is_none()) return false;
    if (!equal(call(functions.current_device, nullptr, 0).ptr(), index.ptr())) return false;
    return call(functions.fits, tensors, count).ptr() == Py_True;
}

PyObject* DecodeCall::run(PyObject* const* arguments) const try {
    if (!fits(arguments)) Py_RETURN_NONE;
    const auto address = [&](PyObject* tensor) { return number(call(functions.data_ptr, &tensor, 1)); };

    std::array<std::uint64_t, kWords> words = block;
    for (std::size_t i = 0; i < kInputs; ++i)
        if (called_for.given[i]) words[places.inputs[i]] = address(arguments[i]);
    for (const std::size_t input : {kQ, kKv, kExtraKv})
        if (words[places.inputs[input]] % kAlignment != 0) Py_RETURN_NONE;
    const std::uint64_t metadata = address(arguments[kBuffer]);
    words[places.records] = metadata;
    words[places.num_splits] = metadata + offsets.num_splits;
    const py::object new_out = make(functions.empty, out), new_lse = make(functions.empty, lse);
    words[places.out] = address(new_out.ptr());
    words[places.lse] = address(new_lse.ptr());
    PyObject* const number_of_gpu = index.ptr();
    const py::object stream = call(functions.current_stream, &number_of_gpu, 1);
    const Scratch scratch(*this, stream.ptr());
    words[places.out_partial] = scratch.address();
    words[places.lse_partial] = scratch.address() + offsets.lse_partial;
    if (compares) {
        words[places.planned_lengths] = metadata + offsets.planned_lengths;
        words[places.verdict] = scratch.address() + offsets.verdict;
    }
    const float scale = static_cast<float>(PyFloat_AS_DOUBLE(arguments[kScale]) * kLog2E);
    std::memcpy(reinterpret_cast<char*>(words.data()) + 4 * scale_word, &scale, sizeof scale);

    void* params[] = {words.data()};
    const std::uint64_t stream_handle = number(stream);
    std::size_t launched = 0;
    int status = 0;
    {
        const py::gil_scoped_release unlocked;  // the driver waits where its queue is full
        for (; launched < launches.size() && status == 0; ++launched) {
            auto config = launches[launched].config;
            config[kStreamWord] = stream_handle;
            void* const function = reinterpret_cast<void*>(launches[launched].function);
            status = launch_kernel(config.data(), function, params, nullptr);
        }
    }
    if (status != 0) functions.refused(launched - 1, status);
    return PyTuple_Pack(2, new_out.ptr(), new_lse.ptr());
} catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
}

py::object DecodeCall::function(DecodeCall&& call) {
    auto owned = std::make_unique<DecodeCall>(std::move(call));
    PyObject* const capsule = PyCapsule_New(owned.get(), nullptr, [](PyObject* self) {
        delete static_cast<DecodeCall*>(PyCapsule_GetPointer(self, nullptr));
    });
    if (capsule == nullptr) throw py::error_already_set();
    owned.release();
    const py::object self = py::reinterpret_steal<py::object>(capsule);
    PyObject* const function = PyCFunction_New(&method, self.ptr());
    if (function == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(function);
}

}  // namespace mlacademy
