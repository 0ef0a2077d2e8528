#include "bench/pool_shapes.h"

#include "aio/check.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace penstock {

namespace {

using Layer = std::vector<std::uint64_t>;  // numel of each tensor

std::vector<Layer> layers_of(const SwapShape& shape) {
    const std::uint64_t h = shape.hidden;
    const std::uint64_t table = shape.vocabulary * h;
    const Layer block = {h,         h,      // norm: weight, bias
                         3 * h * h, 3 * h,  // query, key, value
                         h * h,     h,      // projection
                         h,         h,      // norm
                         4 * h * h, 4 * h,  // feed forward, up
                         4 * h * h, h};     // and down
    std::vector<Layer> layers = {{table, shape.context * h}};
    layers.insert(layers.end(), shape.layers, block);
    layers.push_back({h, h, table});  // the last norm, and the head: tied, fetched a second time
    return layers;
}

class Steps {
   public:
    explicit Steps(const SwapShape& shape) : shape_(shape), layers_(layers_of(shape)), random_(shape.seed) {}

    PoolTrace run();

   private:
    struct Writing {
        std::uint64_t id;
        std::uint64_t until_request;
    };
    using Leases = std::vector<std::uint64_t>;

    std::uint64_t request(std::uint64_t bytes);
    void give_back(std::uint64_t id);
    void write_back(std::uint64_t id);
    void end_writes(bool all);

    void forward();
    void backward();
    void update();
    Leases fetch_weights(const Layer& layer);
    void give_back(const Leases& leases);
    void update_tensor(std::uint64_t numel, const Leases& inputs);

    const SwapShape shape_;
    const std::vector<Layer> layers_;
    std::minstd_rand random_;
    PoolTrace trace_;
    std::vector<std::uint64_t> bytes_;  // of each id, as granted
    std::deque<Writing> writing_;
    std::uint64_t live_bytes_ = 0;
    std::uint64_t peak_bytes_ = 0;
};

PoolTrace Steps::run() {
    for (std::uint32_t step = 0; step < shape_.steps; ++step) {
        forward();
        backward();
        update();
    }
    end_writes(true);
    PENSTOCK_CHECK(live_bytes_ == 0, "{} bytes are left", live_bytes_);
    const std::uint64_t with_slack = peak_bytes_ + peak_bytes_ / 4;
    trace_.uses = {{.name = "tensors", .bytes = with_slack, .setting = {}}};
    trace_.budget_bytes = with_slack + granule_bytes;
    return std::move(trace_);
}

std::uint64_t Steps::request(std::uint64_t bytes) {
    end_writes(false);
    const std::uint64_t id = bytes_.size();
    bytes_.push_back((bytes + granule_bytes - 1) / granule_bytes * granule_bytes);
    live_bytes_ += bytes_.back();
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    trace_.events.push_back({.kind = PoolEvent::Kind::granted, .use = 0, .bytes = bytes, .id = id});
    return id;
}

void Steps::give_back(std::uint64_t id) {
    live_bytes_ -= bytes_[id];
    trace_.events.push_back({.kind = PoolEvent::Kind::returned, .use = 0, .bytes = 0, .id = id});
}

void Steps::write_back(std::uint64_t id) {
    trace_.events.push_back({.kind = PoolEvent::Kind::dropped, .use = 0, .bytes = 0, .id = id});
    writing_.push_back({id, bytes_.size() + 1 + random_() % shape_.longest_write});
}

// Writes end out of order, which is what makes holes.
void Steps::end_writes(bool all) {
    for (auto write = writing_.begin(); write != writing_.end();) {
        if (!all && write->until_request > bytes_.size()) {
            ++write;
            continue;
        }
        give_back(write->id);
        write = writing_.erase(write);
    }
}

Steps::Leases Steps::fetch_weights(const Layer& layer) {
    Leases leases;
    for (const std::uint64_t numel : layer) leases.push_back(request(2 * numel));
    return leases;
}

void Steps::give_back(const Leases& leases) {
    for (const std::uint64_t id : leases) give_back(id);
}

void Steps::forward() {
    std::deque<Leases> window;
    std::size_t fetched = 0;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        while (fetched < layers_.size() && fetched <= layer + shape_.window_layers) {
            window.push_back(fetch_weights(layers_[fetched++]));
        }
        give_back(window.front());
        window.pop_front();
    }
}

void Steps::backward() {
    std::deque<Leases> window;
    std::size_t fetched = 0;
    const std::size_t count = layers_.size();
    for (std::size_t visit = 0; visit < count; ++visit) {
        while (fetched < count && fetched <= visit + shape_.window_layers) {
            window.push_back(fetch_weights(layers_[count - 1 - fetched++]));
        }
        Leases gradients;
        for (const std::uint64_t numel : layers_[count - 1 - visit]) gradients.push_back(request(4 * numel));
        give_back(window.front());
        window.pop_front();
        for (const std::uint64_t id : gradients) write_back(id);
    }
}

void Steps::update() {
    std::vector<std::uint64_t> tensors;  // the tied table is updated once, as the embedding's
    for (const Layer& layer : layers_) tensors.insert(tensors.end(), layer.begin(), layer.end());
    tensors.pop_back();
    std::deque<Leases> ahead;
    std::size_t fetched = 0;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
        for (; fetched < tensors.size() && fetched <= tensor + shape_.tensors_ahead; ++fetched) {
            Leases inputs;  // gradient, master, first and second moment
            for (int part = 0; part < 4; ++part) inputs.push_back(request(4 * tensors[fetched]));
            ahead.push_back(std::move(inputs));
        }
        update_tensor(tensors[tensor], ahead.front());
        ahead.pop_front();
    }
}

void Steps::update_tensor(std::uint64_t numel, const Leases& inputs) {
    const std::uint64_t weights = request(2 * numel);
    give_back(inputs.front());
    write_back(weights);
    for (std::size_t part = 1; part < inputs.size(); ++part) write_back(inputs[part]);
}

}  // namespace

std::optional<SwapShape> swap_shape(const std::string& name) {
    if (name != "gpt2-354m") return std::nullopt;
    return SwapShape{.layers = 24, .hidden = 1024, .vocabulary = 50257, .context = 1024};
}

std::uint64_t parameter_count(const SwapShape& shape) {
    std::uint64_t count = 0;
    for (const Layer& layer : layers_of(shape)) {
        for (const std::uint64_t numel : layer) count += numel;
    }
    return count - shape.vocabulary * shape.hidden;  // the tied table once
}

PoolTrace tensor_swap_trace(const SwapShape& shape) {
    PENSTOCK_CHECK(shape.layers > 0 && shape.hidden > 0 && shape.vocabulary > 0 && shape.context > 0,
                   "{} layers, hidden {}, vocabulary {}, context {}", shape.layers, shape.hidden, shape.vocabulary,
                   shape.context);
    PENSTOCK_CHECK(shape.longest_write > 0, "a write-back that ends before it begins");
    return Steps(shape).run();
}

}  // namespace penstock
