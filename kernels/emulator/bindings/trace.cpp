// The event log and its replay as NumPy columns.
#include "bindings/trace.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "trace/replay.hpp"

namespace py = pybind11;

namespace emu {
namespace {

template <class T, class Row, class F>
py::array_t<T> column(const std::vector<Row>& rows, F f) {
    py::array_t<T> out(static_cast<py::ssize_t>(rows.size()));
    T* to = out.mutable_data();
    for (const Row& r : rows)
        *to++ = static_cast<T>(f(r));
    return out;
}

Costs read_costs(const py::dict& given) {
    Costs costs;
    std::size_t known = 0;
#define EMU_READ(name)                                                                   \
    if (!given.contains(#name)) throw py::key_error("the cost model lacks '" #name "'"); \
    costs.name = py::cast<double>(given[#name]);                                         \
    ++known;
    EMU_COSTS(EMU_READ)
#undef EMU_READ
    if (given.size() != known)
        throw py::value_error("the cost model has a constant that the replay does not know");
    return costs;
}

const char* name_of(Event::Kind kind) {
    switch (kind) {
        case Event::Kind::init:
            return "init";
        case Event::Kind::inval:
            return "inval";
        case Event::Kind::arrive:
        case Event::Kind::drop:
            return "arrive";
        case Event::Kind::expect_arrive:
            return "expect_arrive";
        case Event::Kind::expect_tx:
            return "expect_tx";
        case Event::Kind::complete_tx:
            return "complete_tx";
        case Event::Kind::phase:
            return "phase";
        case Event::Kind::wait:
            return "wait";
        default:
            return "pass";
    }
}

const char* name_of(AsyncKind kind) {
    constexpr const char* names[] = {"cp_async",    "cp_async_arrive", "bulk_load",    "bulk_store",
                                     "bulk_reduce", "tensor_load",     "tensor_store", "tensor_reduce",
                                     "st_async",    "red_async",       "wgmma"};
    return names[static_cast<std::size_t>(kind)];
}

py::list words(auto const& rows, auto f) {
    py::list all;
    for (const auto& r : rows)
        all.append(f(r));
    return all;
}

py::dict spans(const Timeline& t) {
    py::dict d;
    d["cta"] = column<std::int32_t>(t.spans, [](const Span& s) { return s.cta; });
    d["warp"] = column<std::int32_t>(t.spans, [](const Span& s) { return s.warp; });
    d["t0"] = column<double>(t.spans, [](const Span& s) { return s.t0; });
    d["t1"] = column<double>(t.spans, [](const Span& s) { return s.t1; });
    d["kind"] = words(t.spans, [](const Span& s) { return py::str(std::string(name_of(s.kind))); });
    d["pc"] = column<std::int32_t>(t.spans, [](const Span& s) { return s.pc; });
    d["instructions"] = column<std::int32_t>(t.spans, [](const Span& s) { return s.instructions; });
    d["object"] = words(t.spans, [](const Span& s) { return py::str(s.object); });
    d["role"] =
        column<std::int32_t>(t.spans, [](const Span& s) { return static_cast<std::int32_t>(s.role); });
    d["order"] = column<std::int32_t>(t.spans, [](const Span& s) { return s.order; });
    return d;
}

py::dict operations(const EventLog& log, const Timeline& t) {
    const auto of = [&](const OperationTimes& o) -> const Operation& {
        return log.clusters.at(o.cluster).operations[o.id - 1];
    };
    const auto stretches = [](const std::vector<Stretch>& all) {
        py::list out;
        for (const Stretch& s : all)
            out.append(py::make_tuple(s.cta,
                                      s.buffer == kGlobalBuffer ? -1 : static_cast<std::int64_t>(s.buffer),
                                      s.first, s.bytes));
        return out;
    };
    py::dict d;
    const auto& rows = t.operations;
    d["cluster"] = column<std::int32_t>(rows, [](const OperationTimes& o) { return o.cluster; });
    d["number"] = column<std::int32_t>(rows, [](const OperationTimes& o) { return o.id; });
    d["kind"] = words(rows, [&](const OperationTimes& o) { return py::str(name_of(of(o).kind)); });
    d["rank"] = column<std::int32_t>(rows, [&](const OperationTimes& o) { return of(o).cta; });
    d["warp"] = column<std::int32_t>(rows, [&](const OperationTimes& o) { return of(o).warp; });
    d["pc"] = column<std::int32_t>(rows, [&](const OperationTimes& o) { return of(o).pc; });
    d["bytes"] = column<std::int64_t>(rows, [&](const OperationTimes& o) { return of(o).bytes; });
    d["t_issue"] = column<double>(rows, [](const OperationTimes& o) { return o.issue; });
    d["t_start"] = column<double>(rows, [](const OperationTimes& o) { return o.start; });
    d["t_read"] = column<double>(rows, [](const OperationTimes& o) { return o.fetched; });
    d["t_end"] = column<double>(rows, [](const OperationTimes& o) { return o.end; });
    d["signal_rank"] = column<std::int32_t>(rows, [&](const OperationTimes& o) {
        return of(o).signal.any() ? static_cast<int>(of(o).signal.rank) : -1;
    });
    d["signal_offset"] =
        column<std::int32_t>(rows, [&](const OperationTimes& o) { return of(o).signal.offset; });
    d["reads"] = words(rows, [&](const OperationTimes& o) { return stretches(of(o).reads); });
    d["writes"] = words(rows, [&](const OperationTimes& o) { return stretches(of(o).writes); });
    return d;
}

py::dict barriers(const Timeline& t) {
    const auto& rows = t.barriers;
    py::dict d;
    d["cta"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.cta; });
    d["offset"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.offset; });
    d["time"] = column<double>(rows, [](const BarrierRow& r) { return r.time; });
    d["event"] = words(rows, [](const BarrierRow& r) { return py::str(name_of(r.event)); });
    d["pending"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.pending; });
    d["expected"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.expected; });
    d["tx"] = column<std::int64_t>(rows, [](const BarrierRow& r) { return r.tx; });
    d["phase"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.phase; });
    d["amount"] =
        column<std::int32_t>(rows, [](const BarrierRow& r) { return static_cast<std::int32_t>(r.amount); });
    d["by_cta"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.by_cta; });
    d["by_warp"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.by_warp; });
    d["by_operation"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.by_operation; });
    d["cluster"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.cluster; });
    d["order"] = column<std::int32_t>(rows, [](const BarrierRow& r) { return r.order; });
    return d;
}

py::dict accesses(const Timeline& t) {
    const auto& rows = t.accesses;
    py::dict d;
    d["cta"] = column<std::int32_t>(rows, [](const AccessRow& r) { return r.cta; });
    d["buffer"] = column<std::int32_t>(rows, [](const AccessRow& r) { return r.buffer; });
    d["t0"] = column<double>(rows, [](const AccessRow& r) { return r.t0; });
    d["t1"] = column<double>(rows, [](const AccessRow& r) { return r.t1; });
    d["write"] = column<bool>(rows, [](const AccessRow& r) { return r.write; });
    d["by_cta"] = column<std::int32_t>(rows, [](const AccessRow& r) { return r.by_cta; });
    d["by_warp"] = column<std::int32_t>(rows, [](const AccessRow& r) { return r.by_warp; });
    d["by_operation"] = column<std::int32_t>(rows, [](const AccessRow& r) { return r.by_operation; });
    return d;
}

py::dict replayed(const EventLog& log, const py::dict& costs, std::uint32_t resident) {
    const Costs k = read_costs(costs);
    Timeline t;
    {
        const py::gil_scoped_release unlocked;
        t = replay(log, k, resident);
    }
    py::dict d;
    d["cycles"] = t.cycles;
    d["spans"] = spans(t);
    d["operations"] = operations(log, t);
    d["barriers"] = barriers(t);
    d["accesses"] = accesses(t);
    py::dict ctas;
    ctas["cluster"] = column<std::int32_t>(t.ctas, [](const CtaRow& c) { return c.cluster; });
    ctas["rank"] = column<std::int32_t>(t.ctas, [](const CtaRow& c) { return c.rank; });
    ctas["sm"] = column<std::int32_t>(t.ctas, [](const CtaRow& c) { return c.sm; });
    ctas["block"] =
        words(t.ctas, [](const CtaRow& c) { return py::make_tuple(c.block[0], c.block[1], c.block[2]); });
    ctas["t0"] = column<double>(t.ctas, [](const CtaRow& c) { return c.t0; });
    ctas["t1"] = column<double>(t.ctas, [](const CtaRow& c) { return c.t1; });
    d["ctas"] = ctas;
    return d;
}

py::list code(const EventLog& log) {
    return words(log.code, [](const EventLog::Line& l) {
        return py::make_tuple(l.text, l.ptx_line, l.source_file, l.source_line,
                              std::string(name_of(kind_of(l.kind))));
    });
}

py::list buffers(const EventLog& log) {
    py::list all;
    for (const auto& [number, c] : log.clusters)
        for (std::size_t i = 0; i < c.buffers.size(); ++i)
            all.append(py::make_tuple(number, i, c.buffers[i].cta, c.buffers[i].name, c.buffers[i].offset,
                                      c.buffers[i].bytes));
    return all;
}

// What the log itself counts, to be compared with the run.
py::dict totals(const EventLog& log) {
    std::uint64_t events = 0, lane_instructions = 0, instructions = 0;
    for (const auto& [number, c] : log.clusters) {
        events += c.events.size();
        for (const Event& e : c.events)
            if (e.kind == Event::Kind::run) {
                lane_instructions += e.object;
                for (std::uint32_t pc = e.pc; pc < e.x; ++pc)
                    instructions += log.code[pc].kind != Class::marker;
            }
    }
    py::dict d;
    d["events"] = events, d["instructions"] = instructions, d["lane_instructions"] = lane_instructions;
    return d;
}

}  // namespace

void add_trace(py::module_& m) {
    py::class_<EventLog, std::shared_ptr<EventLog>>(m, "EventLog",
                                                    "What happened in one launch, kept up to a limit.")
        .def(py::init<std::uint64_t>(), py::arg("limit"))
        .def("replay", &replayed, py::arg("costs"), py::arg("resident"))
        .def_property_readonly("code", &code)
        .def_property_readonly("buffers", &buffers)
        .def_property_readonly("totals", &totals)
        .def_readonly("files", &EventLog::files)
        .def_readonly("names", &EventLog::names)
        .def_readonly("kernel", &EventLog::kernel_name)
        .def_readonly("threads", &EventLog::threads)
        .def_readonly("shared_bytes", &EventLog::shared_bytes);
    py::list costs;
#define EMU_NAME(name) costs.append(#name);
    EMU_COSTS(EMU_NAME)
#undef EMU_NAME
    m.attr("COSTS") = py::tuple(costs);
}

}  // namespace emu
