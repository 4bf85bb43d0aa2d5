#include "offload/packing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "offload/packing_sweep.h"

namespace hyper::offload {
namespace {

// Work of the hill climb in visited conflicts: a fraction of a second.
constexpr int64_t kClimbWork = 20'000'000;
constexpr int kMaxClimbSteps = 4000;
// More pairs of blocks that meet, as of hundreds of layers, would take minutes and gigabytes.
constexpr int64_t kMaxConflicts = 8'000'000;

enum class Fit { kBest, kFirst };

using Order = std::vector<int>;

class Packer {
 public:
  explicit Packer(std::span<const Block> blocks) : blocks_(blocks), conflicts_(blocks.size()) {
    // Sweep in order of start: only blocks still alive can conflict.
    Order by_start(blocks.size());
    std::iota(by_start.begin(), by_start.end(), 0);
    std::stable_sort(by_start.begin(), by_start.end(),
                     [&](int a, int b) { return block(a).first < block(b).first; });
    Order alive;
    for (const int index : by_start) {
      std::erase_if(alive, [&](int other) { return block(other).last < block(index).first; });
      int64_t live = block(index).bytes;
      for (const int other : alive) {
        live += block(other).bytes;
        if (block(index).bytes == 0 || block(other).bytes == 0) continue;
        conflicts_[static_cast<size_t>(index)].push_back(other);
        conflicts_[static_cast<size_t>(other)].push_back(index);
        conflict_count_ += 2;
      }
      alive.push_back(index);
      bound_ = std::max(bound_, live);
    }
  }

  Packing Run() {
    Packing best;
    best.peak = std::numeric_limits<int64_t>::max();
    Order best_order;
    Fit best_fit = Fit::kBest;
    for (const Order& order : GreedyOrders()) {
      for (const Fit fit : {Fit::kBest, Fit::kFirst}) {
        Packing packing = Place(order, fit);
        if (packing.peak >= best.peak) continue;
        best = std::move(packing);
        best_order = order;
        best_fit = fit;
        if (best.peak == bound_) return best;  // cannot be better
      }
    }
    Climb(best_fit, std::move(best_order), best);
    return best;
  }

 private:
  const Block& block(int index) const { return blocks_[static_cast<size_t>(index)]; }

  std::vector<Order> GreedyOrders() const {
    const auto sorted = [&](const std::function<double(const Block&)>& key) {
      Order order(blocks_.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return key(block(a)) > key(block(b)); });
      return order;
    };
    const auto length = [](const Block& b) { return static_cast<double>(b.last - b.first + 1); };
    return {
        sorted([](const Block& b) { return static_cast<double>(b.bytes); }),
        sorted([&](const Block& b) { return length(b); }),
        sorted([&](const Block& b) { return length(b) * static_cast<double>(b.bytes); }),
        sorted([](const Block& b) { return -static_cast<double>(b.first); }),
        sorted([](const Block& b) { return static_cast<double>(b.last); }),
    };
  }

  // Each block in turn goes into the smallest (kBest) or lowest (kFirst) gap between the blocks
  // placed before it that live at the same time.
  Packing Place(const Order& order, Fit fit) {
    Packing packing;
    packing.offsets.assign(blocks_.size(), -1);
    for (const int index : order) {
      const int64_t bytes = block(index).bytes;
      taken_.clear();
      for (const int other : conflicts_[static_cast<size_t>(index)]) {
        const int64_t offset = packing.offsets[static_cast<size_t>(other)];
        if (offset >= 0) taken_.emplace_back(offset, offset + block(other).bytes);
      }
      std::sort(taken_.begin(), taken_.end());
      int64_t best_gap = std::numeric_limits<int64_t>::max();
      int64_t best_offset = -1;
      int64_t end = 0;
      for (const auto& [from, to] : taken_) {
        const int64_t gap = from - end;
        if (gap >= bytes && gap < best_gap) {
          best_gap = gap;
          best_offset = end;
          if (fit == Fit::kFirst) break;
        }
        end = std::max(end, to);
      }
      if (best_offset < 0) best_offset = end;
      packing.offsets[static_cast<size_t>(index)] = best_offset;
      packing.peak = std::max(packing.peak, best_offset + bytes);
    }
    return packing;
  }

  uint64_t Random() {  // xorshift64
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

  // Moves a block that forms the peak to an earlier turn; keeps what is not worse.
  void Climb(Fit fit, Order order, Packing& best) {
    const int64_t per_step = conflict_count_ + static_cast<int64_t>(blocks_.size()) + 1;
    const int steps = static_cast<int>(std::min<int64_t>(kMaxClimbSteps, kClimbWork / per_step));
    for (int step = 0; step < steps && best.peak > bound_; ++step) {
      std::vector<size_t> turns;  // positions in order of the blocks that end at the peak
      for (size_t turn = 1; turn < order.size(); ++turn) {
        const int index = order[turn];
        if (best.offsets[static_cast<size_t>(index)] + block(index).bytes == best.peak) {
          turns.push_back(turn);
        }
      }
      if (turns.empty()) return;
      const size_t from = turns[Random() % turns.size()];
      const size_t to = Random() % from;
      Order candidate = order;
      std::rotate(candidate.begin() + static_cast<ptrdiff_t>(to),
                  candidate.begin() + static_cast<ptrdiff_t>(from),
                  candidate.begin() + static_cast<ptrdiff_t>(from) + 1);
      Packing packing = Place(candidate, fit);
      if (packing.peak > best.peak) continue;
      best = std::move(packing);
      order = std::move(candidate);
    }
  }

  std::span<const Block> blocks_;
  std::vector<std::vector<int>> conflicts_;
  int64_t conflict_count_ = 0;
  int64_t bound_ = 0;  // no packing can be lower
  std::vector<std::pair<int64_t, int64_t>> taken_;
  uint64_t state_ = 0x9e3779b97f4a7c15;
};

}  // namespace

Packing Pack(std::span<const Block> blocks) {
  if (blocks.empty()) return {};
  if (CountConflicts(blocks) > kMaxConflicts) return PackBySweep(blocks);
  return Packer(blocks).Run();
}

}  // namespace hyper::offload
