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
    using LaunchKernel = int (*)(void* config, void* function, void** params, void** extra);

    struct Launch {
        std::array<std::uint64_t, kConfigWords> config;
        std::uint64_t function;
    };
    // Which word of the block each address goes to.
    struct Places {
        std::size_t q, kv, indices, records, num_splits, out, lse, out_partial, lse_partial;
    };
    // Torch's functions, and ours for a launch that the driver refuses.
    struct Functions {
        pybind11::object fits, empty, allocate, release, current_stream, current_device, refused;
    };

    Functions functions;
    Places places;
    Form out, lse;
    pybind11::object index, scratch_bytes;  // the GPU's number; 0 bytes: no partial results
    std::array<std::uint64_t, kWords> block;
    std::size_t scale_word;                       // of 4 bytes
    std::uint64_t num_splits_at, lse_partial_at;  // from the start of the metadata, of the scratch memory
    std::vector<Launch> launches;
    LaunchKernel launch_kernel;

    // The function (q, kv_cache, indices, buffer, scale) -> (out, lse), or None where the call is not like
    // the one before. It owns the call.
    static pybind11::object function(DecodeCall&& call);

    // New references; null with Python's error set.
    PyObject* run(PyObject* const* arguments) const;
};

}  // namespace mlacademy
