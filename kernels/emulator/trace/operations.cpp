#include "trace/operations.hpp"

#include "trace/issue.hpp"

namespace emu {
namespace {

// When `bytes` have come through this multiprocessor's share of the second cache, and the whole device's.
double served(double at, double bytes, Multiprocessor& sm, Server& device_memory, const Costs& k) {
    const bool cold = k.cold != 0;
    const double here = sm.l2.take(at, bytes / k.l2_bytes);
    const double there = device_memory.take(here, bytes / (cold ? k.dram_bytes : k.l2_total));
    return there + bytes / k.l2_bytes + (cold ? k.dram_latency - k.l2_latency : 0);
}

void copy_engine(const Operation& o, double at, Multiprocessor& sm, Server& device_memory, const Costs& k,
                 OperationTimes& t) {
    const bool store = o.kind == AsyncKind::bulk_store || o.kind == AsyncKind::tensor_store ||
                       o.kind == AsyncKind::bulk_reduce || o.kind == AsyncKind::tensor_reduce;
    const bool tensor = o.kind == AsyncKind::tensor_load || o.kind == AsyncKind::tensor_store ||
                        o.kind == AsyncKind::tensor_reduce;
    const double bytes = o.bytes, extra = tensor ? k.tensor_latency : 0;
    const double busy =
        std::max(bytes / (store ? k.store_bytes : k.bulk_bytes), tensor ? o.rows * k.tensor_row : 0.0);
    t.start = sm.bulk.take(at, busy);
    if (store) {
        t.fetched = t.start + k.store_read_latency + busy + extra;
        t.end = std::max(t.fetched, served(t.start, bytes, sm, device_memory, k)) + k.store_latency;
    } else if (o.from_global) {
        const double there = served(t.start, bytes, sm, device_memory, k);
        t.fetched = t.end = std::max(t.start + busy, there) + k.bulk_latency + extra;
    } else {
        t.start = sm.remote.take(t.start, bytes / k.remote_bytes);
        t.fetched = t.end = t.start + bytes / k.remote_bytes + k.remote_latency;
    }
}

}  // namespace

Group group_of(AsyncKind kind) {
    switch (kind) {
        case AsyncKind::cp_async:
            return Group::copies;
        case AsyncKind::wgmma:
            return Group::wgmma;
        case AsyncKind::cp_async_arrive:
        case AsyncKind::st_async:
        case AsyncKind::red_async:
            return Group::none;
        default:
            return Group::bulk;
    }
}

void time_operation(const Operation& o, std::string_view opcode, double at, Multiprocessor& sm,
                    SubPartition& part, Server& device_memory, const Costs& k, OperationTimes& t) {
    switch (o.kind) {
        case AsyncKind::st_async:
        case AsyncKind::red_async:
            t.start = sm.remote.take(at, o.bytes / k.remote_bytes);
            t.fetched = t.end = t.start + k.remote_arrive_latency;
            break;
        case AsyncKind::cp_async:
            t.start = at;
            t.fetched = t.end = served(at, o.bytes, sm, device_memory, k) + k.copy_latency;
            break;
        case AsyncKind::cp_async_arrive:
            t.start = t.issue;
            t.fetched = t.end = at + k.mbarrier_arrive_latency;
            break;
        case AsyncKind::wgmma: {
            const double duration = macs_of(opcode) / k.wgmma_macs;
            t.start = part.tensor.take(t.issue, duration);  // a chain of multiplies is pipelined
            t.fetched = t.end = t.start + duration + k.wgmma_latency;
            break;
        }
        default:
            copy_engine(o, at, sm, device_memory, k, t);
    }
}

}  // namespace emu
