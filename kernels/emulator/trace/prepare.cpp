#include "trace/prepare.hpp"

#include <map>
#include <tuple>

namespace emu {
namespace {

using Kind = Event::Kind;

class Points {
  public:
    explicit Points(Prepared& all) : all_(all) {}

    void reborn(std::uint32_t cta, std::uint32_t offset) { lives_[{cta, offset}] = all_.lives++; }
    std::uint32_t life(std::uint32_t cta, std::uint32_t offset) {
        const auto [at, fresh] = lives_.try_emplace({cta, offset}, all_.lives);
        if (fresh) ++all_.lives;
        return at->second;
    }
    std::uint32_t mbarrier(std::uint32_t cta, std::uint32_t offset, std::uint32_t phase) {
        return find({0, life(cta, offset), phase});
    }
    std::uint32_t named(std::uint32_t cta, std::uint32_t number, std::uint32_t generation) {
        return find({1 + cta, number, generation});
    }
    std::uint32_t cluster(std::uint32_t generation) { return find({~0u, 0, generation}); }

  private:
    std::uint32_t find(std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> key) {
        const auto [at, fresh] = index_.try_emplace(key, static_cast<std::uint32_t>(all_.points.size()));
        if (fresh) all_.points.emplace_back();
        return at->second;
    }
    Prepared& all_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> lives_;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> index_;
};

std::uint32_t waited_for(const Event& e, Points& points) {
    switch (static_cast<Waited>(e.detail)) {
        case Waited::mbarrier:
            return e.y == kNever ? kNoPoint : points.mbarrier(e.cta, e.object, e.y);
        case Waited::barrier:
            return points.named(e.cta, e.object, e.y);
        case Waited::cluster:
            return points.cluster(e.y);
        default:
            return kNoPoint;
    }
}

void read_cluster(PreparedCluster& c, Prepared& all) {
    const std::vector<Event>& events = c.log->events;
    Points points(all);
    c.point.assign(events.size(), kNoPoint);
    c.life.assign(events.size(), kNoPoint);
    c.streams.resize(std::size_t{all.cluster_size} * all.warps);
    c.effects.resize(c.log->operations.size());
    std::uint32_t landing = 0;
    for (std::uint32_t i = 0; i < events.size(); ++i) {
        const Event& e = events[i];
        const auto belongs = [&](std::uint32_t point) {
            c.point[i] = point;
            ++all.points[point].missing, ++all.points[point].count;
        };
        switch (e.kind) {
            case Kind::init:
                points.reborn(e.owner, e.object);
                [[fallthrough]];
            case Kind::inval:
                c.life[i] = points.life(e.owner, e.object);
                break;
            case Kind::arrive:
            case Kind::drop:
            case Kind::expect_arrive:
            case Kind::expect_tx:
            case Kind::complete_tx:
                c.life[i] = points.life(e.owner, e.object);
                belongs(points.mbarrier(e.owner, e.object, e.y));
                break;
            case Kind::phase:
                c.life[i] = points.life(e.owner, e.object);
                c.point[i] = points.mbarrier(e.owner, e.object, e.y);
                all.points[c.point[i]].closed = true;
                break;
            case Kind::bar_arrive:
                belongs(points.named(e.owner, e.object, e.y));
                break;
            case Kind::bar_phase:
                all.points[points.named(e.owner, e.object, e.y)].closed = true;
                break;
            case Kind::cluster_come:
                belongs(points.cluster(e.y));
                break;
            case Kind::cluster_phase:
                all.points[points.cluster(e.y)].closed = true;
                break;
            case Kind::wait:
            case Kind::pass:
                if (e.kind == Kind::pass) c.point[i] = waited_for(e, points);
                if (static_cast<Waited>(e.detail) == Waited::mbarrier)
                    c.life[i] = points.life(e.cta, e.object);
                break;
            case Kind::landed:
                landing = e.object - 1;
                continue;
            case Kind::fetched:
                continue;
            default:
                break;
        }
        if (e.warp == kNoWarp)
            c.effects[landing].push_back(i);
        else
            c.streams[std::size_t{e.cta} * all.warps + e.warp].push_back(i);
    }
}

}  // namespace

Prepared prepare(const EventLog& log) {
    Prepared all;
    all.warps = (log.threads + 31) / 32;
    for (const auto& [number, cluster] : log.clusters)
        all.cluster_size = std::max(all.cluster_size, static_cast<std::uint32_t>(cluster.ctas.size()));
    std::uint32_t first = 0;
    for (const auto& [number, cluster] : log.clusters) {
        all.clusters.push_back({&cluster, first, {}, {}, {}, {}});
        first += all.cluster_size;
    }
    for (PreparedCluster& c : all.clusters)
        read_cluster(c, all);
    return all;
}

}  // namespace emu
