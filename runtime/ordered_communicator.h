// The collectives of ours over point-to-point messages. An all-reduce adds every element in rank
// order 0, 1, .., N-1, so its bits depend on the number of ranks only: not on timing, not on the
// transport, not on how the vector is cut.
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/ordered_rounds.h"
#include "runtime/transport.h"

namespace hyper::runtime {

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
  Status AllReduce(void* data, int64_t elements, ir::DType dtype, Operation operation);
  template <typename T>
  void CombineChunk(T* own, int64_t count, Operation operation);

  std::unique_ptr<Transport> transport_;
  OrderedOptions options_;
  std::vector<std::byte> scratch_;  // one chunk per rank
  int64_t scratch_stride_ = 0;      // bytes between the chunks of two ranks
  std::vector<OrderedRounds::Message> planned_sends_;
  std::vector<OrderedRounds::Message> planned_receives_;
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
};

}  // namespace hyper::runtime
