// mlacademy._emulator: thin bindings. Names, arguments as tensors and friendly errors live in mlacademy.gpu.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "bindings/numerics.hpp"
#include "bindings/trace.hpp"
#include "ir/errors.hpp"
#include "machine/machine.hpp"
#include "machine/sequence.hpp"
#include "ptx/program.hpp"
#include "trace/log.hpp"

namespace py = pybind11;

namespace {

using namespace emu;

// ---- errors: one Python class each, with the structured fields as attributes
// ----------------------------------------------

py::handle make_error(py::module_& m, const char* name, py::handle base, const char* doc) {
    const std::string full = std::string("mlacademy._emulator.") + name;
    PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), doc, base.ptr(), nullptr);
    m.attr(name) = py::reinterpret_borrow<py::object>(type);
    return type;
}

struct ErrorTypes {
    py::handle syntax, invalid, unsupported, trap, race, uninitialized, proxy, hazard, deadlock, runaway,
        full;
};
ErrorTypes& types() {
    static ErrorTypes instance;
    return instance;
}

py::object with_where(py::handle type, const std::exception& error, const Where& where) {
    py::object value = type(py::str(error.what()));
    value.attr("kernel") = where.kernel;
    value.attr("ptx_line") = where.ptx_line;
    value.attr("source_file") = where.source_file;
    value.attr("source_line") = where.source_line;
    value.attr("inner_file") = where.inner_file;
    value.attr("inner_line") = where.inner_line;
    return value;
}
void raise(py::handle type, const PtxError& error) {
    PyErr_SetObject(type.ptr(), with_where(type, error, error.where).ptr());
}
py::object describe_run(py::handle type, const RunError& error) {
    py::object value = with_where(type, error, error.where);
    value.attr("block") = py::make_tuple(error.cta[0], error.cta[1], error.cta[2]);
    value.attr("warp") = error.warp;
    value.attr("lanes") = error.lanes;
    value.attr("address") = error.address;
    value.attr("object_name") = error.object;
    value.attr("rule") = error.rule;
    value.attr("role") = error.role;
    return value;
}
void raise(py::handle type, const RunError& error) {
    PyErr_SetObject(type.ptr(), describe_run(type, error).ptr());
}
py::handle type_of(const KernelTrap& error) {
    if (error.rule == "race") return types().race;
    if (error.rule == "uninitialized") return types().uninitialized;
    if (error.rule == "proxy") return types().proxy;
    return error.rule.starts_with("wgmma-") ? types().hazard : types().trap;
}
void raise(const KernelTrap& error) {
    py::object value = describe_run(type_of(error), error);
    value.attr("other_warp") = error.other_warp;
    value.attr("other_ptx_line") = error.other.ptx_line;
    value.attr("other_source_file") = error.other.source_file;
    value.attr("other_source_line") = error.other.source_line;
    PyErr_SetObject(type_of(error).ptr(), value.ptr());
}
void raise(py::handle type, const Deadlock& error) {
    py::object value = describe_run(type, error);
    py::list waits;
    for (const Waiting& w : error.waits) {
        py::dict d;
        d["cta"] = w.cta, d["warp"] = w.warp, d["lanes"] = w.lanes, d["kind"] = w.kind;
        d["object"] = w.object, d["offset"] = w.offset, d["parity"] = w.parity, d["phase"] = w.phase;
        d["pending"] = w.pending, d["expected"] = w.expected, d["tx"] = w.tx, d["completed"] = w.completed;
        d["ptx_line"] = w.where.ptx_line, d["source_line"] = w.where.source_line;
        d["source_file"] = w.where.source_file;
        waits.append(d);
    }
    value.attr("waits") = waits;
    PyErr_SetObject(type.ptr(), value.ptr());
}

void translate(std::exception_ptr pointer) {
    try {
        if (pointer) std::rethrow_exception(pointer);
    } catch (const PtxSyntaxError& e) {
        raise(types().syntax, e);
    } catch (const PtxInvalid& e) {
        raise(types().invalid, e);
    } catch (const PtxUnsupported& e) {
        raise(types().unsupported, e);
    } catch (const KernelTrap& e) {
        raise(e);
    } catch (const Deadlock& e) {
        raise(types().deadlock, e);
    } catch (const Runaway& e) {
        raise(types().runaway, e);
    } catch (const TraceFull& e) {
        raise(types().full, e);
    } catch (const LaunchInvalid& e) {
        PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const Interrupted&) {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
    }
}

// ---- kernels as dicts
// -----------------------------------------------------------------------------------------------------------

py::dict describe_kernel(const Kernel& k) {
    py::list params;
    for (const Param& p : k.params) {
        py::dict d;
        d["name"] = p.name, d["offset"] = p.offset, d["size"] = p.size, d["align"] = p.align;
        d["type"] = p.blob ? std::string("blob") : std::string(name_of(p.type));
        params.append(d);
    }
    py::dict d;
    d["name"] = k.name, d["params"] = params, d["param_bytes"] = k.param_bytes;
    d["maxntid"] = k.maxntid, d["reqntid"] = k.reqntid, d["reqnctapercluster"] = k.reqnctapercluster;
    d["minnctapersm"] = k.minnctapersm, d["maxclusterrank"] = k.maxclusterrank;
    d["static_shared_bytes"] = k.static_shared_bytes, d["dynamic_shared_align"] = k.dynamic_shared_align;
    d["uses_dynamic_shared"] = k.uses_dynamic_shared, d["local_bytes"] = k.local_bytes;
    d["instructions"] = k.code.size(), d["register_bytes"] = k.register_bytes;
    return d;
}

// ---- launch
// ---------------------------------------------------------------------------------------------------------------------

using Triple = std::array<std::uint32_t, 3>;
// address, bytes, name, writable; for a tensor whose shape is known also its shape and the bytes of an
// element; and the address of its map of written bytes, or 0.
Range read_buffer(const py::tuple& t) {
    Range r{py::cast<std::uint64_t>(t[0]), py::cast<std::uint64_t>(t[1]), py::cast<std::string>(t[2]),
            py::cast<bool>(t[3])};
    if (t.size() == 4) return r;
    r.shape = py::cast<std::vector<std::uint64_t>>(t[4]);
    r.item_bytes = py::cast<std::uint32_t>(t[5]);
    r.written = reinterpret_cast<std::uint8_t*>(py::cast<std::uintptr_t>(t[6]));
    return r;
}

std::string show(const Triple& t) {
    return "(" + std::to_string(t[0]) + ", " + std::to_string(t[1]) + ", " + std::to_string(t[2]) + ")";
}

constexpr std::uint64_t kMostLocalBytes = std::uint64_t{1} << 31;

void check(const Kernel& kernel, const Launch& launch) {
    const auto bad = [](const std::string& text) { throw LaunchInvalid(text); };
    const auto volume = [](const Triple& t) { return std::uint64_t{t[0]} * t[1] * t[2]; };
    for (const auto& [name, value] : {std::pair{"grid", launch.grid}, std::pair{"block", launch.block},
                                      std::pair{"cluster", launch.cluster}})
        if (value[0] == 0 || value[1] == 0 || value[2] == 0)
            bad(std::string(name) + ": every size must be at least 1, got " + show(value));
    if (launch.grid[0] > 0x7fffffff || launch.grid[1] > 65535 || launch.grid[2] > 65535)
        bad("grid: at most (2147483647, 65535, 65535), got " + show(launch.grid));
    if (volume(launch.grid) > 0x7fffffff)
        bad("grid: at most 2147483647 blocks in all, got " + show(launch.grid));
    if (launch.block[2] > 64 || launch.block[0] > 1024 || launch.block[1] > 1024 ||
        volume(launch.block) > 1024)
        bad("block: at most 1024 threads and (1024, 1024, 64), got " + show(launch.block));
    if (launch.cluster[0] > 16 || launch.cluster[1] > 16 || launch.cluster[2] > 16 ||
        volume(launch.cluster) > 16)
        bad("cluster: at most 16 blocks, got " + show(launch.cluster));
    for (std::size_t i = 0; i < 3; ++i)
        if (launch.grid[i] % launch.cluster[i] != 0)
            bad("grid: " + show(launch.grid) + " is no multiple of the cluster " + show(launch.cluster));
    const Triple& most = kernel.reqntid[0] != 0 ? kernel.reqntid : kernel.maxntid;
    if (kernel.reqntid[0] != 0 && launch.block != kernel.reqntid)
        bad("block: the kernel requires " + show(kernel.reqntid) + ", got " + show(launch.block));
    if (most[0] != 0 && volume(launch.block) > volume(most))
        bad("block: the kernel allows at most " + std::to_string(volume(most)) + " threads, got " +
            show(launch.block));
    if (kernel.reqnctapercluster[0] != 0 && launch.cluster != kernel.reqnctapercluster)
        bad("cluster: the kernel requires " + show(kernel.reqnctapercluster) + ", got " +
            show(launch.cluster));
    const std::uint64_t align = kernel.dynamic_shared_align;
    const std::uint64_t shared = (kernel.static_shared_bytes + align - 1) / align * align + launch.smem_bytes;
    if (shared > kMaxSharedBytes)
        bad("smem_bytes: a block may have " + std::to_string(kMaxSharedBytes) +
            " bytes of shared memory, static and dynamic together; got " + std::to_string(shared));
    const std::uint64_t local =
        kernel.local_bytes * ((volume(launch.block) + 31) / 32 * 32) * volume(launch.cluster);
    if (local > kMostLocalBytes)
        bad("block: " + std::to_string(kernel.local_bytes) + " bytes of local memory a thread make " +
            std::to_string(local) + " bytes a cluster, more than the " + std::to_string(kMostLocalBytes) +
            " that the emulator gives");
    if (launch.params.size() != kernel.param_bytes)
        bad("params: the kernel takes " + std::to_string(kernel.param_bytes) + " bytes, got " +
            std::to_string(launch.params.size()));
}

void switch_on(Checks& checks, const std::string& name) {
    const std::pair<const char*, bool*> known[] = {{"init", &checks.init},
                                                   {"race", &checks.race},
                                                   {"proxy", &checks.proxy},
                                                   {"barrier", &checks.barrier}};
    for (const auto& [key, flag] : known)
        if (name == key || name == "all") *flag = true;
    const bool always = name == "bounds" || name == "registers";
    if (name != "all" && !always &&
        std::ranges::none_of(known, [&](const auto& k) { return name == k.first; }))
        throw LaunchInvalid(
            "check: 'init', 'race', 'proxy', 'barrier' or 'all' ('bounds' and 'registers' always "
            "hold), got '" +
            name + "'");
}

Options read_options(const py::dict& given) {
    Options o;
    for (const auto& [key, value] : given) {
        const auto name = py::cast<std::string>(key);
        if (name == "seed")
            o.seed = py::cast<std::uint64_t>(value);
        else if (name == "step_budget")
            o.step_budget = py::cast<std::uint64_t>(value);
        else if (name == "threads")
            o.threads = py::cast<unsigned>(value);
        else if (name == "order") {
            const auto text = py::cast<std::string>(value);
            if (text != "eager" && text != "lazy" && text != "seeded")
                throw LaunchInvalid("order: 'eager', 'lazy' or 'seeded', got '" + text + "'");
            o.policy = text == "eager" ? Policy::eager : text == "lazy" ? Policy::lazy : Policy::seeded;
        } else if (name == "check") {
            for (const auto& each : py::cast<std::vector<std::string>>(value))
                switch_on(o.checks, each);
        } else {
            throw LaunchInvalid("options: unknown option '" + name +
                                "'; there are check, seed, order, step_budget, threads");
        }
    }
    if (o.threads == 0 || o.threads > 256)
        throw LaunchInvalid("threads: 1 to 256, got " + std::to_string(o.threads));
    return o;
}

// Runs a grid or a sequence on a thread of its own, so that this one can look for Ctrl-C.
template <class Work>
auto run(Work& work) {
    std::mutex mutex;
    std::condition_variable finished;
    bool done = false;
    decltype(work.run()) result;
    std::exception_ptr error;
    std::thread worker([&] {
        try {
            result = work.run();
        } catch (...) {
            error = std::current_exception();
        }
        const std::lock_guard lock(mutex);
        done = true;
        finished.notify_one();
    });
    bool interrupted = false;
    {
        std::unique_lock lock(mutex);
        while (!finished.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; })) {
            lock.unlock();
            {
                const py::gil_scoped_acquire gil;
                if (!interrupted && PyErr_CheckSignals() != 0) interrupted = true, work.stop();
            }
            lock.lock();
        }
    }
    worker.join();
    if (interrupted) {
        const py::gil_scoped_acquire gil;
        throw py::error_already_set();
    }
    if (error) std::rethrow_exception(error);
    return result;
}

// One launch as Python gives it, checked.
struct Prepared {
    std::unique_ptr<Launch> launch;
    const Kernel* kernel;
    GlobalMemory memory;
};

Prepared prepare(const Program& program, const std::string& name, Triple grid, Triple block, Triple cluster,
                 std::uint32_t smem_bytes, const py::bytes& params, const std::vector<py::tuple>& buffers,
                 const py::dict& options, EventLog* log) {
    const Kernel* kernel = program.find(name);
    if (kernel == nullptr) throw LaunchInvalid("kernel: the program has no kernel '" + name + "'");
    auto launch =
        std::make_unique<Launch>(Launch{grid, block, cluster, smem_bytes, {}, read_options(options), log});
    const std::string_view bytes = params;
    for (const char c : bytes)
        launch->params.push_back(static_cast<std::byte>(c));
    check(*kernel, *launch);
    GlobalMemory memory;
    for (const py::tuple& buffer : buffers)
        memory.add(read_buffer(buffer));
    for (const GlobalObject& g : program.globals())
        memory.add({g.address, g.size, g.name, !g.constant});
    memory.seal();
    return {std::move(launch), kernel, std::move(memory)};
}

py::dict report(const Statistics& s) {
    py::dict d;
    d["instructions"] = s.instructions, d["lane_instructions"] = s.lane_instructions,
    d["clusters"] = s.clusters;
    d["output"] = py::str(py::bytes(s.output).attr("decode")("utf-8", "replace"));
    return d;
}

py::dict launch(const Program& program, const std::string& name, Triple grid, Triple block, Triple cluster,
                std::uint32_t smem_bytes, const py::bytes& params, const std::vector<py::tuple>& buffers,
                const py::dict& options, const std::shared_ptr<EventLog>& log) {
    Prepared p =
        prepare(program, name, grid, block, cluster, smem_bytes, params, buffers, options, log.get());
    Statistics s;
    {
        const py::gil_scoped_release unlocked;
        Grid machine(*p.kernel, *p.launch, std::move(p.memory));
        s = run(machine);
    }
    return report(s);
}

// Several launches in stream order: tuples of launch's arguments and whether the launch is programmatic.
py::list launch_sequence(const std::vector<py::tuple>& launches) {
    Sequence sequence;
    for (const py::tuple& t : launches) {
        Prepared p = prepare(t[0].cast<const Program&>(), t[1].cast<std::string>(), t[2].cast<Triple>(),
                             t[3].cast<Triple>(), t[4].cast<Triple>(), t[5].cast<std::uint32_t>(),
                             t[6].cast<py::bytes>(), t[7].cast<std::vector<py::tuple>>(),
                             t[8].cast<py::dict>(), nullptr);
        sequence.add(std::move(p.launch), *p.kernel, std::move(p.memory), t[9].cast<bool>());
    }
    std::vector<Statistics> all;
    {
        const py::gil_scoped_release unlocked;
        all = run(sequence);
    }
    py::list reports;
    for (const Statistics& s : all)
        reports.append(report(s));
    return reports;
}

}  // namespace

PYBIND11_MODULE(_emulator, m) {
    m.doc() = "Runs compiled PTX on the CPU.";
    ErrorTypes& t = types();
    const py::handle ptx = make_error(m, "PtxError", PyExc_ValueError, "The PTX text cannot be loaded.");
    t.syntax = make_error(m, "PtxSyntaxError", ptx, "The text is not PTX.");
    t.invalid = make_error(m, "PtxInvalid", ptx, "An instruction breaks a rule of PTX.");
    t.unsupported =
        make_error(m, "PtxUnsupported", ptx, "An instruction or feature that the emulator does not run.");
    const py::handle running = make_error(m, "RunError", PyExc_RuntimeError, "A kernel failed while it ran.");
    t.trap = make_error(m, "KernelTrap", running, "The kernel did something that is never allowed.");
    t.race = make_error(m, "Race", t.trap, "Two accesses to one place that nothing puts in an order.");
    t.uninitialized =
        make_error(m, "Uninitialized", t.trap, "Memory was read before anything was written there.");
    t.proxy =
        make_error(m, "ProxyError", t.trap, "The async proxy read what threads wrote without a proxy fence.");
    t.hazard = make_error(m, "HazardError", t.trap, "Registers of a wgmma in flight were touched.");
    t.deadlock = make_error(m, "Deadlock", running, "Nothing could run any more.");
    t.runaway = make_error(m, "Runaway", running, "The step budget was used up.");
    t.full = make_error(m, "TraceFull", running, "More happened than the trace may keep.");
    py::register_exception_translator(translate);

    py::class_<Program>(m, "Program", "A loaded PTX module.")
        .def(py::init<const std::string&>(), py::arg("ptx"), py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("kernels",
                               [](const Program& p) {
                                   py::list all;
                                   for (const Kernel& k : p.kernels())
                                       all.append(describe_kernel(k));
                                   return all;
                               })
        .def_property_readonly("variables", [](const Program& p) {
            py::list all;
            for (const GlobalObject& g : p.globals())
                all.append(py::make_tuple(g.name, g.address, g.size, !g.constant));
            return all;
        });
    m.def("launch", &launch, py::arg("program"), py::arg("kernel"), py::arg("grid"), py::arg("block"),
          py::arg("cluster"), py::arg("smem_bytes"), py::arg("params"), py::arg("buffers"),
          py::arg("options"), py::arg("log") = nullptr);
    m.def("launch_sequence", &launch_sequence, py::arg("launches"));
    add_trace(m);
    add_numerics(m);
}
