#include "runtime/ordered_rounds.h"

#include <algorithm>

namespace hyper::runtime {

OrderedRounds::OrderedRounds(int ranks, int64_t elements, int64_t element_bytes,
                             const OrderedOptions& options)
    : ranks_(ranks), elements_(elements) {
  if (ranks_ == 1 || elements_ == 0) return;
  const int64_t chunk_bytes =
      std::max(options.segment_bytes / ranks_, std::max(options.min_chunk_bytes, element_bytes));
  // A short vector has few owners, so that the messages stay worth their latency.
  min_chunk_ = std::max<int64_t>(1, options.min_chunk_bytes / element_bytes);
  full_ = chunk_bytes / element_bytes * ranks_;
  segments_ = (elements_ + full_ - 1) / full_;
  rounds_ = segments_ + 1;
}

OrderedRounds::Segment OrderedRounds::SegmentAt(int64_t index) const {
  Segment segment;
  segment.begin = index * full_;
  segment.count = std::min(full_, elements_ - segment.begin);
  segment.chunk = std::max((segment.count + ranks_ - 1) / ranks_, min_chunk_);
  segment.owners = static_cast<int>((segment.count + segment.chunk - 1) / segment.chunk);
  return segment;
}

OrderedRounds::Chunk OrderedRounds::ChunkOf(const Segment& segment, int owner) {
  if (owner >= segment.owners) return {};
  const int64_t begin = owner * segment.chunk;
  return {segment.begin + begin, std::min(segment.chunk, segment.count - begin)};
}

void OrderedRounds::Messages(int64_t k, int rank, std::vector<Message>* sends,
                             std::vector<Message>* receives) const {
  sends->clear();
  receives->clear();
  for (const bool summand : {false, true}) {
    const int64_t index = summand ? k : k - 1;
    if (index < 0 || index >= segments_) continue;
    const Segment segment = SegmentAt(index);
    const Chunk own = ChunkOf(segment, rank);
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank) continue;
      const Chunk theirs = ChunkOf(segment, peer);
      const Chunk& sent = summand ? theirs : own;
      const Chunk& received = summand ? own : theirs;
      if (sent.count > 0) sends->push_back({peer, sent, summand});
      if (received.count > 0) receives->push_back({peer, received, summand});
    }
  }
}

OrderedRounds::Chunk OrderedRounds::Owned(int64_t k, int rank) const {
  return k < segments_ ? ChunkOf(SegmentAt(k), rank) : Chunk{};
}

int64_t OrderedRounds::LargestChunk() const { return segments_ > 0 ? SegmentAt(0).chunk : 0; }

}  // namespace hyper::runtime
