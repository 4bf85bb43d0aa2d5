// The collectives of ours over point-to-point messages. An all-reduce adds every element in rank
// order 0, 1, .., N-1, so its bits depend on the number of ranks only: not on timing, not on the
// transport, not on how the vector is cut.
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/transport.h"

namespace hyper::runtime {

struct OrderedOptions {
  // Bytes of the vector in flight at once; the scratch memory of a rank is at most this (more only
  // where `ranks * min_chunk` is larger).
  int64_t segment_bytes = 4 << 20;
  int64_t min_chunk_bytes = 4 << 10;
};

class OrderedCommunicator final : public Communicator {
 public:
  explicit OrderedCommunicator(std::unique_ptr<Transport> transport, OrderedOptions options = {});

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  Status AllReduceSum(void* data, int64_t elements, ir::DType dtype) override;
  Status AllReduceMax(void* data, int64_t elements, ir::DType dtype) override;
  Status Broadcast(void* data, int64_t bytes, int root) override;
  Status Barrier() override;
  Result<std::vector<std::string>> AllGather(const std::string& text) override;

 private:
  enum class Operation { kSum, kMax };
  struct Segment {
    int64_t begin = 0;   // elements
    int64_t count = 0;
    int64_t chunk = 0;   // elements owned by each of the first `owners` ranks
    int owners = 0;
  };
  Segment SegmentAt(int64_t index, int64_t elements, int64_t element_bytes) const;
  int64_t SegmentElements(int64_t element_bytes) const;
  Status AllReduce(void* data, int64_t elements, ir::DType dtype, Operation operation);
  template <typename T>
  void CombineChunk(T* own, int64_t count, Operation operation);

  std::unique_ptr<Transport> transport_;
  OrderedOptions options_;
  std::vector<std::byte> scratch_;  // one chunk per rank
  int64_t scratch_stride_ = 0;      // bytes between the chunks of two ranks
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
};

}  // namespace hyper::runtime
