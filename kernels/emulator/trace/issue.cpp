#include "trace/issue.hpp"

#include <charconv>

namespace emu {

Charge charge_of(Class c, const Costs& k) {
    switch (c) {
        case Class::integer:
            return {1, Pipe::integer, k.integer_issue, k.integer_latency};
        case Class::multiply:
            return {1, Pipe::float32, k.multiply_issue, k.alu_latency};
        case Class::wide:
            return {2, Pipe::integer, 2 * k.integer_issue, k.integer_latency + k.integer_issue};
        case Class::float32:
            return {1, Pipe::float32, k.float32_issue, k.alu_latency};
        case Class::half:
            return {1, Pipe::half, k.half_issue, k.half_latency};
        case Class::float64:
            return {1, Pipe::float64, k.float64_issue, k.float64_latency};
        case Class::convert:
            return {1, Pipe::convert, k.convert_issue, k.convert_latency};
        case Class::special:
            return {1, Pipe::special, k.special_issue, k.special_latency};
        case Class::divide:
            return {k.divide_issue, Pipe::integer, k.divide_issue, k.divide_latency};
        case Class::float_divide:
            return {k.float_divide_issue, Pipe::float32, k.float_divide_issue, k.float_divide_latency};
        case Class::clock:
            return {1, Pipe::count, 0, k.clock_latency, k.clock_latency};
        case Class::branch:
            return {1, Pipe::count, 0, 0, k.branch_latency};
        case Class::fence:
            return {1, Pipe::count, 0, 0, k.fence_latency};
        case Class::wide_fence:
            return {1, Pipe::count, 0, 0, k.wide_fence_latency};
        case Class::proxy_fence:
            return {1, Pipe::count, 0, 0, k.proxy_fence_latency};
        case Class::mbarrier_init:
        case Class::mbarrier_arrive:
            return {1, Pipe::count, 0, k.mbarrier_arrive_latency, k.mbarrier_issue};
        case Class::mbarrier_wait:
            return {1, Pipe::count, 0, k.mbarrier_wait_latency, 0};
        case Class::bulk:
            return {1, Pipe::count, 0, 0, k.bulk_issue};
        case Class::bulk_store:
            return {1, Pipe::count, 0, 0, k.store_issue};
        case Class::registers:
            return {1, Pipe::count, 0, 0, k.registers_latency};
        default:
            return {};
    }
}

MemoryTimes memory_times(Class c, const Event* access, double at, Multiprocessor& sm, Server& dram,
                         const Costs& k) {
    if (access == nullptr) return {at, at};
    const double passes = access->owner;
    if ((access->detail & kRemote) != 0) {
        const double start = sm.remote.take(at, passes * 128 / k.remote_bytes);
        return {start, start + k.remote_latency + (passes - 1) * 128 / k.remote_bytes};
    }
    if ((access->detail & kGlobal) == 0) {
        const double start = sm.shared.take(at, passes * 128 / k.shared_bytes);
        const double latency = c == Class::shared_atomic ? k.shared_atomic_latency
                               : c == Class::matrix_load ? k.matrix_latency
                                                         : k.shared_latency;
        return {start, start + latency + (passes - 1) * k.conflict_latency};
    }
    // Global memory. What the SM loaded before is in its first cache; stores and atomics go through to the
    // second.
    const double lines = std::max(1.0, access->y * 1.0);
    const double start = sm.shared.take(
        at, c == Class::global_load ? lines : std::max(lines, passes * 32 / k.global_store_bytes));
    bool hit = c == Class::global_load;
    for (std::uint32_t line = access->x; line != access->x + access->y; ++line)
        hit &= !sm.lines.insert(line).second;
    if (hit) return {start, start + k.l1_latency};
    const double bytes = passes * 32;
    const double arrives = sm.l2.take(start, bytes / k.l2_bytes);
    const double served = dram.take(arrives, bytes / (k.cold != 0 ? k.dram_bytes : k.l2_total));
    const double latency = c == Class::global_atomic ? k.global_atomic_latency : k.l2_latency;
    return {start, served + latency + bytes / k.l2_bytes + (k.cold != 0 ? k.dram_latency - k.l2_latency : 0)};
}

double macs_of(std::string_view opcode) {
    double product = 1;
    const std::size_t at = opcode.find(".m");
    for (std::size_t i = opcode.find_first_of("0123456789", at);
         i != std::string_view::npos && i < opcode.size();) {
        double size = 0;
        const auto [end, error] = std::from_chars(opcode.data() + i, opcode.data() + opcode.size(), size);
        if (error != std::errc{}) return 0;
        product *= size;
        i = static_cast<std::size_t>(end - opcode.data());
        if (i >= opcode.size() || (opcode[i] != 'n' && opcode[i] != 'k')) break;
        ++i;
    }
    const bool narrow =
        opcode.find("e4m3") != std::string_view::npos || opcode.find("e5m2") != std::string_view::npos ||
        opcode.find(".s8") != std::string_view::npos || opcode.find(".u8") != std::string_view::npos;
    return opcode.find("tf32") != std::string_view::npos ? product * 2 : narrow ? product / 2 : product;
}

}  // namespace emu
