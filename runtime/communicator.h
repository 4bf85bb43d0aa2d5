// Collective communication of the ranks of one job, behind one small interface. Implementations:
// loopback (ranks are threads of one process; tests and `hyperc verify`) and MPI.
// Every all-reduce has a fixed order of summation that depends on the number of ranks only, so the
// same launch gives the same bits.
// Thread safety: one thread at a time per Communicator, unless an implementation says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/types.h"

namespace hyper::runtime {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In-place sum over ranks; dtype f32, f64 or i64; any length (split below INT_MAX per message).
  virtual Status AllReduceSum(void* data, int64_t elements, ir::DType dtype) = 0;
  virtual Status AllReduceMax(void* data, int64_t elements, ir::DType dtype) = 0;
  virtual Status Broadcast(void* data, int64_t bytes, int root) = 0;
  virtual Status Barrier() = 0;
  // One string per rank, on every rank.
  virtual Result<std::vector<std::string>> AllGather(const std::string& text) = 0;
};

}  // namespace hyper::runtime
