#include "offload/packing_sweep.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace hyper::offload {
namespace {

// Free gaps below `end`; two gaps never touch.
class Gaps {
 public:
  // The smallest gap that is large enough, the lowest of equal ones; else space at the end.
  int64_t Take(int64_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit != by_size_.end()) {
      const auto [size, offset] = *fit;
      Erase(offset, size);
      if (size > bytes) Insert(offset + bytes, size - bytes);
      return offset;
    }
    int64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto [last, size] = *by_offset_.rbegin();
      if (last + size == end_) {
        offset = last;
        Erase(last, size);
      }
    }
    end_ = offset + bytes;
    return offset;
  }

  void Give(int64_t offset, int64_t bytes) {
    const auto next = by_offset_.upper_bound(offset);
    int64_t from = offset;
    int64_t to = offset + bytes;
    if (next != by_offset_.end() && next->first == to) to += next->second;
    if (next != by_offset_.begin()) {
      const auto [before, size] = *std::prev(next);
      if (before + size == offset) from = before;
    }
    if (to > offset + bytes) Erase(offset + bytes, to - offset - bytes);
    if (from < offset) Erase(from, offset - from);
    Insert(from, to - from);
  }

 private:
  void Insert(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void Erase(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<int64_t, int64_t> by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t end_ = 0;
};

Packing Sweep(std::span<const Block> blocks) {
  const auto order = [&](auto key) {
    std::vector<int> list(blocks.size());
    std::iota(list.begin(), list.end(), 0);
    std::stable_sort(list.begin(), list.end(), [&](int a, int b) {
      return key(blocks[static_cast<size_t>(a)]) < key(blocks[static_cast<size_t>(b)]);
    });
    return list;
  };
  // What begins at once is placed from the largest down.
  const std::vector<int> begin = order([](const Block& b) { return std::pair(b.first, -b.bytes); });
  const std::vector<int> end = order([](const Block& b) { return b.last; });
  Packing packing;
  packing.offsets.assign(blocks.size(), 0);
  Gaps gaps;
  size_t ended = 0;
  for (const int index : begin) {
    const Block& block = blocks[static_cast<size_t>(index)];
    // Ended before this one begins, hence begun before it.
    for (; blocks[static_cast<size_t>(end[ended])].last < block.first; ++ended) {
      const size_t old = static_cast<size_t>(end[ended]);
      if (blocks[old].bytes > 0) gaps.Give(packing.offsets[old], blocks[old].bytes);
    }
    if (block.bytes == 0) continue;
    const int64_t offset = gaps.Take(block.bytes);
    packing.offsets[static_cast<size_t>(index)] = offset;
    packing.peak = std::max(packing.peak, offset + block.bytes);
  }
  return packing;
}

}  // namespace

Packing PackBySweep(std::span<const Block> blocks) {
  Packing forwards = Sweep(blocks);
  std::vector<Block> mirrored(blocks.begin(), blocks.end());
  for (Block& block : mirrored) {
    std::swap(block.first, block.last);
    block.first = -block.first;
    block.last = -block.last;
  }
  Packing backwards = Sweep(mirrored);
  return backwards.peak < forwards.peak ? backwards : forwards;
}

int64_t CountConflicts(std::span<const Block> blocks) {
  std::vector<int> begin, end;
  for (const Block& block : blocks) {
    begin.push_back(block.first);
    end.push_back(block.last);
  }
  std::sort(begin.begin(), begin.end());
  std::sort(end.begin(), end.end());
  int64_t pairs = 0;
  size_t ended = 0;
  for (size_t begun = 0; begun < begin.size(); ++begun) {
    while (end[ended] < begin[begun]) ++ended;
    pairs += static_cast<int64_t>(begun - ended);
  }
  return pairs;
}

}  // namespace hyper::offload
