#include "machine/special.hpp"

#include <array>
#include <chrono>
#include <string>

#include "machine/machine.hpp"

namespace emu {
namespace {

using Value = std::uint64_t (*)(const Warp&, int lane);
struct Row {
    std::string_view name;
    std::uint8_t bits;
    bool changes;
    Value value;
};

const Launch& launch(const Warp& w) {
    return w.cta().cluster().grid().launch;
}

template <int Axis>
std::uint64_t tid(const Warp& w, int lane) {
    return w.thread(lane)[Axis];
}
template <int Axis>
std::uint64_t ntid(const Warp& w, int) {
    return launch(w).block[Axis];
}
template <int Axis>
std::uint64_t ctaid(const Warp& w, int) {
    return w.cta().id[Axis];
}
template <int Axis>
std::uint64_t nctaid(const Warp& w, int) {
    return launch(w).grid[Axis];
}
template <int Axis>
std::uint64_t clusterid(const Warp& w, int) {
    return w.cta().id[Axis] / launch(w).cluster[Axis];
}
template <int Axis>
std::uint64_t nclusterid(const Warp& w, int) {
    return launch(w).grid[Axis] / launch(w).cluster[Axis];
}
template <int Axis>
std::uint64_t cluster_ctaid(const Warp& w, int) {
    return w.cta().id[Axis] % launch(w).cluster[Axis];
}
template <int Axis>
std::uint64_t cluster_nctaid(const Warp& w, int) {
    return launch(w).cluster[Axis];
}

std::uint64_t nanoseconds(const Warp&, int) {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}
std::uint64_t zero(const Warp&, int) {
    return 0;
}

constexpr Row kRows[] = {
    {"%tid.x", 32, false, tid<0>},
    {"%tid.y", 32, false, tid<1>},
    {"%tid.z", 32, false, tid<2>},
    {"%ntid.x", 32, false, ntid<0>},
    {"%ntid.y", 32, false, ntid<1>},
    {"%ntid.z", 32, false, ntid<2>},
    {"%ctaid.x", 32, false, ctaid<0>},
    {"%ctaid.y", 32, false, ctaid<1>},
    {"%ctaid.z", 32, false, ctaid<2>},
    {"%nctaid.x", 32, false, nctaid<0>},
    {"%nctaid.y", 32, false, nctaid<1>},
    {"%nctaid.z", 32, false, nctaid<2>},
    {"%clusterid.x", 32, false, clusterid<0>},
    {"%clusterid.y", 32, false, clusterid<1>},
    {"%clusterid.z", 32, false, clusterid<2>},
    {"%nclusterid.x", 32, false, nclusterid<0>},
    {"%nclusterid.y", 32, false, nclusterid<1>},
    {"%nclusterid.z", 32, false, nclusterid<2>},
    {"%cluster_ctaid.x", 32, false, cluster_ctaid<0>},
    {"%cluster_ctaid.y", 32, false, cluster_ctaid<1>},
    {"%cluster_ctaid.z", 32, false, cluster_ctaid<2>},
    {"%cluster_nctaid.x", 32, false, cluster_nctaid<0>},
    {"%cluster_nctaid.y", 32, false, cluster_nctaid<1>},
    {"%cluster_nctaid.z", 32, false, cluster_nctaid<2>},
    {"%cluster_ctarank", 32, false, [](const Warp& w, int) -> std::uint64_t { return w.cta().rank; }},
    {"%cluster_nctarank", 32, false,
     [](const Warp& w, int) -> std::uint64_t { return w.cta().cluster().ctas().size(); }},
    {"%laneid", 32, false,
     [](const Warp&, int lane) -> std::uint64_t { return static_cast<std::uint64_t>(lane); }},
    {"%warpid", 32, false,
     [](const Warp& w, int) -> std::uint64_t { return static_cast<std::uint64_t>(w.number()); }},
    {"%nwarpid", 32, false, [](const Warp&, int) -> std::uint64_t { return 64; }},
    {"%smid", 32, false, [](const Warp& w, int) -> std::uint64_t { return w.cta().cluster().number % 132; }},
    {"%nsmid", 32, false, [](const Warp&, int) -> std::uint64_t { return 132; }},
    {"%gridid", 64, false, zero},
    {"%lanemask_eq", 32, false, [](const Warp&, int lane) -> std::uint64_t { return 1u << lane; }},
    {"%lanemask_lt", 32, false, [](const Warp&, int lane) -> std::uint64_t { return (1u << lane) - 1; }},
    {"%lanemask_le", 32, false, [](const Warp&, int lane) -> std::uint64_t { return (2u << lane) - 1; }},
    {"%lanemask_gt", 32, false,
     [](const Warp&, int lane) -> std::uint64_t { return static_cast<std::uint32_t>(-(2ll << lane)); }},
    {"%lanemask_ge", 32, false,
     [](const Warp&, int lane) -> std::uint64_t { return static_cast<std::uint32_t>(-(1ll << lane)); }},
    {"%dynamic_smem_size", 32, false,
     [](const Warp& w, int) -> std::uint64_t { return launch(w).smem_bytes; }},
    {"%total_smem_size", 32, false,
     [](const Warp& w, int) -> std::uint64_t { return w.cta().shared_bytes(); }},
    {"%aggr_smem_size", 32, false,
     [](const Warp& w, int) -> std::uint64_t { return w.cta().shared_bytes(); }},
    {"%clock", 32, true, [](const Warp& w, int) { return w.elapsed + w.instructions; }},
    {"%clock_hi", 32, true, [](const Warp& w, int) { return (w.elapsed + w.instructions) >> 32; }},
    {"%clock64", 64, true, [](const Warp& w, int) { return w.elapsed + w.instructions; }},
    {"%globaltimer", 64, true, nanoseconds},
    {"%globaltimer_lo", 32, true, nanoseconds},
    {"%globaltimer_hi", 32, true, [](const Warp& w, int lane) { return nanoseconds(w, lane) >> 32; }},
};

}  // namespace

std::optional<Special> find_special(std::string_view name) {
    if (!name.starts_with('%')) return std::nullopt;
    for (std::uint32_t i = 0; i < std::size(kRows); ++i)
        if (kRows[i].name == name) return Special{i, kRows[i].bits, kRows[i].changes};
    return std::nullopt;
}

std::uint64_t special_value(std::uint32_t number, const Warp& warp, int lane) {
    return kRows[number].value(warp, lane);
}

}  // namespace emu
