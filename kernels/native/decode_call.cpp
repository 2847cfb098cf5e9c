#include "decode_call.hpp"

#include <cstring>
#include <memory>

namespace py = pybind11;

namespace mlacademy {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr Py_ssize_t kTensors = 4, kArguments = 5;
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

std::uint64_t address(PyObject* tensor) {
    static PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
    PyObject* const result = PyObject_CallMethodNoArgs(tensor, data_ptr);
    if (result == nullptr) throw py::error_already_set();
    return number(py::reinterpret_steal<py::object>(result));
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
    if (count != kArguments || !PyFloat_Check(arguments[kTensors])) {
        PyErr_SetString(PyExc_TypeError, "a decode call takes q, kv_cache, indices, buffer and a float");
        return nullptr;
    }
    return static_cast<const DecodeCall*>(PyCapsule_GetPointer(self, nullptr))->run(arguments);
}

PyMethodDef method = {"decode_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry)),
                      METH_FASTCALL, nullptr};

}  // namespace

PyObject* DecodeCall::run(PyObject* const* arguments) const try {
    PyObject* const number_of_gpu = index.ptr();
    const py::object current = call(functions.current_device, nullptr, 0);
    if (PyObject_RichCompareBool(current.ptr(), number_of_gpu, Py_EQ) != 1) Py_RETURN_NONE;
    if (call(functions.fits, arguments, kTensors).ptr() != Py_True) Py_RETURN_NONE;

    std::array<std::uint64_t, kWords> words = block;
    words[places.q] = address(arguments[0]);
    words[places.kv] = address(arguments[1]);
    if ((words[places.q] | words[places.kv]) % kAlignment != 0) Py_RETURN_NONE;
    words[places.indices] = address(arguments[2]);
    words[places.records] = address(arguments[3]);
    words[places.num_splits] = words[places.records] + num_splits_at;
    const py::object new_out = make(functions.empty, out), new_lse = make(functions.empty, lse);
    words[places.out] = address(new_out.ptr());
    words[places.lse] = address(new_lse.ptr());
    const py::object stream = call(functions.current_stream, &number_of_gpu, 1);
    const Scratch scratch(*this, stream.ptr());
    words[places.out_partial] = scratch.address();
    words[places.lse_partial] = scratch.address() + lse_partial_at;
    const float scale = static_cast<float>(PyFloat_AS_DOUBLE(arguments[kTensors]) * kLog2E);
    std::memcpy(reinterpret_cast<char*>(words.data()) + 4 * scale_word, &scale, sizeof scale);

    void* params[] = {words.data()};
    const std::uint64_t stream_handle = number(stream);
    for (std::size_t i = 0; i < launches.size(); ++i) {
        auto config = launches[i].config;
        config[kStreamWord] = stream_handle;
        int status;
        {
            const py::gil_scoped_release unlocked;  // the driver waits where its queue is full
            status =
                launch_kernel(config.data(), reinterpret_cast<void*>(launches[i].function), params, nullptr);
        }
        if (status != 0) functions.refused(i, status);
    }
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
