// Fences, barriers of a CTA and of the cluster: who hands on what it knows, and who takes it over.
#include "check/monitor.hpp"

namespace emu {

void Monitor::fence(Warp& w, Fence kind) {
    WarpState& s = state(w);
    if (kind == Fence::none) return;
    if (kind == Fence::proxy) s.now.fenced = s.now.known;
    s.published = s.now;
    if (kind == Fence::proxy || kind == Fence::mbarrier_init)
        std::erase_if(unfenced_,
                      [&](Mbarrier* b) { return b->init.agent() == s.self && (b->init_fenced = true); });
    tick(s);
}

void Monitor::barrier_arrived(Warp& w, std::uint32_t number) {
    WarpState& s = state(w);
    state(w.cta()).barriers[number].coming.join(s.now);
    tick(s);
}
void Monitor::barrier_completed(const Cta& cta, std::uint32_t number, bool everybody) {
    CtaState& c = state(cta);
    Sync& b = c.barriers[number];
    b.done.join(b.coming);
    if (everybody) b.done.join(c.exited);
    b.coming.clear();
}
void Monitor::barrier_passed(Warp& w, std::uint32_t number) {
    acquire(state(w), state(w.cta()).barriers[number].done);
}

void Monitor::cluster_arrived(Warp& w, bool relaxed) {
    WarpState& s = state(w);
    cluster_barrier_.coming.join(relaxed ? s.published : s.now);
    cluster_arrivals_.raise(s.self, s.now.known[s.self]);
    tick(s);
}
void Monitor::cluster_completed() {
    cluster_barrier_.done.join(cluster_barrier_.coming);
    cluster_arrived_.join(cluster_arrivals_);
    cluster_barrier_.coming.clear();
    cluster_arrivals_.clear();
}
void Monitor::cluster_passed(Warp& w) {
    acquire(state(w), cluster_barrier_.done);
    state(w.cta()).passed.join(cluster_arrived_);
}

}  // namespace emu
