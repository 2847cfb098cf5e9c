#include "trace/classes.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace emu {
namespace {

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

Class memory_class(std::string_view op, Class shared, Class global) {
    if (has(op, ".shared")) return shared;
    if (has(op, ".local")) return Class::local;
    if (has(op, ".param") || has(op, ".const")) return Class::free;
    return global;
}

Class arithmetic(std::string_view op) {
    if (has(op, ".f64")) return Class::float64;
    if (has(op, "f16")) return Class::half;
    if (has(op, ".f32") || has(op, ".tf32")) return Class::float32;
    if (op.starts_with("mul.wide") || op.starts_with("mad.wide")) return Class::multiply;
    if (has(op, "64")) return Class::wide;
    return Class::integer;
}

// A conversion that only widens or cuts off bits disappears into the next instruction.
bool only_renames(std::string_view op) {
    if (has(op, "f16") || has(op, "f32") || has(op, "f64") || has(op, "e4m3") || has(op, "e5m2") ||
        has(op, ".sat"))
        return false;
    return op.starts_with("cvt.u64") || op.starts_with("cvt.u32.u64") || op.starts_with("cvt.s64.s32") ||
           op.starts_with("cvt.u32.u16") || op.starts_with("cvt.u16.u32") || op.starts_with("cvt.s32.s64") ||
           op.starts_with("cvt.u32.u32");
}

// The first entry whose text starts the opcode decides.
constexpr std::pair<std::string_view, Class> kPrefixes[] = {
    {"mla.", Class::marker},
    {"cvta", Class::free},
    {"isspacep", Class::integer},
    {"mapa", Class::integer},
    {"getctarank", Class::integer},
    {"rcp", Class::special},
    {"rsqrt", Class::special},
    {"sqrt.approx", Class::special},
    {"sqrt", Class::float_divide},
    {"ex2", Class::special},
    {"lg2", Class::special},
    {"sin", Class::special},
    {"cos", Class::special},
    {"tanh", Class::special},
    {"div.approx", Class::special},
    {"div", Class::divide},
    {"rem", Class::divide},
    {"popc", Class::special},
    {"clz", Class::special},
    {"bfind", Class::special},
    {"brev", Class::special},
    {"shfl", Class::shuffle},
    {"vote", Class::shuffle},
    {"match", Class::shuffle},
    {"redux", Class::shuffle},
    {"elect", Class::shuffle},
    {"activemask", Class::shuffle},
    {"bra", Class::branch},
    {"brx", Class::branch},
    {"ret", Class::exit},
    {"exit", Class::exit},
    {"trap", Class::exit},
    {"call", Class::branch},
    {"ldmatrix", Class::matrix_load},
    {"stmatrix", Class::matrix_load},
    {"movmatrix", Class::shuffle},
    {"wgmma.mma_async", Class::wgmma},
    {"wgmma.fence", Class::wgmma_fence},
    {"wgmma.commit", Class::commit},
    {"wgmma.wait", Class::group_wait},
    {"mma", Class::mma},
    {"st.async", Class::remote_store},
    {"red.async", Class::remote_store},
    {"st.bulk", Class::bulk},
    {"cp.async.bulk.commit", Class::commit},
    {"cp.async.bulk.wait", Class::group_wait},
    {"cp.async.bulk.prefetch", Class::bulk},
    {"cp.async.bulk", Class::bulk},
    {"cp.reduce.async.bulk", Class::bulk},
    {"cp.async.commit", Class::commit},
    {"cp.async.wait", Class::group_wait},
    {"cp.async.mbarrier", Class::mbarrier_arrive},
    {"cp.async", Class::copy},
    {"mbarrier.init", Class::mbarrier_init},
    {"mbarrier.inval", Class::mbarrier_init},
    {"mbarrier.test_wait", Class::mbarrier_wait},
    {"mbarrier.try_wait", Class::mbarrier_wait},
    {"mbarrier.pending_count", Class::integer},
    {"mbarrier", Class::mbarrier_arrive},
    {"bar.warp", Class::shuffle},
    {"barrier.cluster.arrive", Class::cluster_arrive},
    {"barrier.cluster.wait", Class::cluster_wait},
    {"barrier.cta.arrive", Class::barrier_arrive},
    {"barrier.arrive", Class::barrier_arrive},
    {"bar.cta.arrive", Class::barrier_arrive},
    {"bar.arrive", Class::barrier_arrive},
    {"bar", Class::barrier},
    {"fence.proxy", Class::proxy_fence},
    {"fence.mbarrier_init", Class::proxy_fence},
    {"fence", Class::fence},
    {"membar", Class::fence},
    {"nanosleep", Class::sleep},
    {"setmaxnreg", Class::registers},
    {"griddepcontrol", Class::branch},
    {"prefetch", Class::global_store},
    {"mul.lo.s64", Class::divide},
    {"mul.lo.u64", Class::divide},
    {"mad.lo.s64", Class::divide},
    {"mad.lo.u64", Class::divide},
};

}  // namespace

Class class_of(std::string_view op) {
    if (op.starts_with("mov")) return has(op, "clock") || has(op, "globaltimer") ? Class::clock : Class::free;
    if (op.starts_with("cvt.") && only_renames(op)) return Class::free;
    if (op.starts_with("cvt")) return Class::convert;
    if (op.starts_with("fma")) return arithmetic(op);
    if (op.starts_with("div") && has(op, ".f") && !has(op, "approx")) return Class::float_divide;
    if (has(op, ".async.bulk") && has(op, ".global.shared")) return Class::bulk_store;
    if ((op.starts_with("fence") || op.starts_with("membar")) && !has(op, "proxy") && !has(op, "cta"))
        return op.starts_with("fence.mbarrier_init") ? Class::proxy_fence : Class::wide_fence;
    for (const auto& [prefix, found] : kPrefixes)
        if (op.starts_with(prefix)) return found;
    if (op.starts_with("ld")) return memory_class(op, Class::shared_load, Class::global_load);
    if (op.starts_with("st")) return memory_class(op, Class::shared_store, Class::global_store);
    if (op.starts_with("atom") || op.starts_with("red"))
        return memory_class(op, Class::shared_atomic, Class::global_atomic);
    if ((op.starts_with("mul") || op.starts_with("mad")) && arithmetic(op) == Class::integer)
        return Class::multiply;
    return arithmetic(op);
}

Kind kind_of(Class c) {
    switch (c) {
        case Class::global_load:
        case Class::global_store:
        case Class::global_atomic:
        case Class::local:
            return Kind::memory;
        case Class::shared_load:
        case Class::shared_store:
        case Class::shared_atomic:
        case Class::matrix_load:
            return Kind::shared;
        case Class::mma:
        case Class::wgmma:
        case Class::wgmma_fence:
            return Kind::mma;
        case Class::commit:
        case Class::copy:
        case Class::bulk:
        case Class::bulk_store:
        case Class::remote_store:
            return Kind::async;
        case Class::group_wait:
        case Class::mbarrier_init:
        case Class::mbarrier_arrive:
        case Class::mbarrier_wait:
        case Class::barrier:
        case Class::barrier_arrive:
        case Class::cluster_arrive:
        case Class::cluster_wait:
        case Class::fence:
        case Class::wide_fence:
        case Class::proxy_fence:
            return Kind::sync;
        case Class::branch:
        case Class::exit:
        case Class::sleep:
        case Class::registers:
            return Kind::control;
        default:
            return Kind::alu;
    }
}

std::string_view name_of(Kind k) {
    constexpr std::array<std::string_view, static_cast<std::size_t>(Kind::count)> names = {
        "alu", "memory", "shared", "mma", "sync", "async", "control", "wait"};
    return names[static_cast<std::size_t>(k)];
}

bool touches_memory(Class c) {
    return kind_of(c) == Kind::memory || kind_of(c) == Kind::shared;
}

}  // namespace emu
