// How an ordered all-reduce is cut into rounds of messages: pure arithmetic, shared by the
// communicator that sends them and the virtual clock that times them.
// Thread safety: values.
#pragma once

#include <cstdint>
#include <vector>

namespace hyper::runtime {

struct OrderedOptions {
  // Bytes of the vector in flight at once; the scratch memory of a rank is at most this (more only
  // where `ranks * min_chunk` is larger).
  int64_t segment_bytes = 4 << 20;
  int64_t min_chunk_bytes = 4 << 10;
};

// The vector is cut into segments and each into chunks, one per owner (the first ranks). Owners get
// the summands of their chunk from all others, add them in rank order and hand the sum out. Round k
// hands out the sums of segment k-1 together with the summands of segment k.
class OrderedRounds {
 public:
  struct Chunk {
    int64_t begin = 0;  // elements from the vector's start
    int64_t count = 0;  // 0: none
  };
  struct Message {
    int peer = 0;
    Chunk chunk;
    bool summand = false;  // to be added by its receiver, else a sum
  };

  OrderedRounds(int ranks, int64_t elements, int64_t element_bytes, const OrderedOptions& options);

  // 0 when there is nothing to send: one rank, or no elements.
  int64_t rounds() const { return rounds_; }
  // Messages of `rank` in round k, in order; those between two ranks match one to one in it. The
  // lists are replaced; they need room for 2 * ranks each.
  void Messages(int64_t k, int rank, std::vector<Message>* sends,
                std::vector<Message>* receives) const;
  // What `rank` adds up at the end of round k.
  Chunk Owned(int64_t k, int rank) const;
  // Elements of the largest chunk.
  int64_t LargestChunk() const;

 private:
  struct Segment {
    int64_t begin = 0;
    int64_t count = 0;
    int64_t chunk = 0;  // elements owned by each of the first `owners` ranks
    int owners = 0;
  };
  Segment SegmentAt(int64_t index) const;
  static Chunk ChunkOf(const Segment& segment, int owner);

  int ranks_;
  int64_t elements_;
  int64_t min_chunk_ = 1;
  int64_t full_ = 1;  // elements of a segment but the last
  int64_t segments_ = 0;
  int64_t rounds_ = 0;
};

}  // namespace hyper::runtime
