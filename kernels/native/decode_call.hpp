// The host's part of a decode call that is like the one before: fresh outputs, addresses into the parameter
// block, launches. `mlacademy.ops.cuda` does the same in Python and says what each step is for; this one
// spares the interpreter, which costs more than the driver.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <vector>

namespace mlacademy {

// A tensor to be made: what torch's allocation is called with.
struct Form {
    pybind11::object shape, strides, dtype;
};

class DecodeCall {
  public:
    static constexpr std::size_t kWords = 32;       // of the parameter block, 8 bytes each
    static constexpr std::size_t kConfigWords = 7;  // of the driver's launch config, 56 bytes
    static constexpr std::size_t kStreamWord = 4;   // of the config
    static constexpr std::size_t kInputs = 8;       // tensors of a call, the last kOptional of them or None
    static constexpr std::size_t kOptional = 5;
    using LaunchKernel = int (*)(void* config, void* function, void** params, void** extra);

    struct Launch {
        std::array<std::uint64_t, kConfigWords> config;
        std::uint64_t function;
    };
    // What a call must have been called for, beside tensors of the same forms.
    struct CalledFor {
        pybind11::object layout, lists, checked;
        std::array<bool, kInputs> given;  // which inputs are tensors
        double max_scale;
    };
    // Which word of the block each address goes to, and where things lie in the metadata and in the scratch
    // memory, in bytes.
    struct Places {
        std::array<std::size_t, kInputs> inputs;
        std::size_t records, num_splits, planned_lengths, out, lse, out_partial, lse_partial, verdict;
    };
    struct Offsets {
        std::uint64_t num_splits, planned_lengths, lse_partial, verdict;
    };
    // Torch's functions, and ours.
    struct Functions {
        pybind11::object fits, modes, transform, checked, data_ptr, empty, allocate, release, current_stream,
            current_device, refused;
    };

    CalledFor called_for;
    Functions functions;
    Places places;
    Offsets offsets;
    bool compares;  // lengths with those of the metadata
    Form out, lse;
    pybind11::object index, scratch_bytes;  // the GPU's number; 0 bytes: no partial results
    std::array<std::uint64_t, kWords> block;
    std::size_t scale_word;  // of 4 bytes
    std::vector<Launch> launches;
    LaunchKernel launch_kernel;

    // The function (q, kv_cache, indices, topk_length, extra_kv_cache, extra_indices, extra_topk_length,
    // attn_sink, buffer, layout, scale, lists) -> (out, lse), or None where the call is not like the one
    // before. It owns the call.
    static pybind11::object function(DecodeCall&& call);

    // New references; null with Python's error set.
    PyObject* run(PyObject* const* arguments) const;

  private:
    bool fits(PyObject* const* arguments) const;
};

}  // namespace mlacademy
