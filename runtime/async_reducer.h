// Reduces gradient buckets on a thread of its own while backward goes on. The thread sleeps until
// a bucket is queued; buckets are reduced in the order in which they were queued, which is the same
// on every rank.
// Thread safety: Start and Wait from one thread. Between Start and Wait nobody else may use the
// communicator.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "runtime/communicator.h"
#include "simulate/overlap.h"

namespace hyper::runtime {

// Times of one reduce, nanoseconds of the steady clock.
struct ReduceRecord {
  int bucket = 0;
  int64_t bytes = 0;
  int64_t ready_ns = 0;  // the bucket's gradients were complete
  int64_t queued_ns = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

int64_t SteadyNanoseconds();

class AsyncReducer {
 public:
  // `max_buckets`: most that are queued between two Waits.
  AsyncReducer(Communicator* communicator, int max_buckets);
  ~AsyncReducer();
  AsyncReducer(const AsyncReducer&) = delete;
  AsyncReducer& operator=(const AsyncReducer&) = delete;

  // Queues an in-place sum over ranks of what was complete at `ready_ns`; `data` must not be
  // touched until Wait returns. Errors surface in Wait.
  void Start(int bucket, void* data, int64_t elements, ir::DType dtype, int64_t ready_ns);
  // Until all queued sums are done; the first error otherwise, exceptions of the communicator
  // included (out of memory). After an error nothing is reduced any more.
  Status Wait();
  // Of the buckets reduced between the last two Waits.
  std::span<const ReduceRecord> records() const { return records_; }

 private:
  struct Job {
    void* data = nullptr;
    int64_t elements = 0;
    ir::DType dtype = ir::DType::kF32;
  };
  void Loop();

  Communicator* communicator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;  // guarded by mutex_, as the following
  std::vector<ReduceRecord> records_;
  size_t done_ = 0;
  bool fresh_ = true;  // the next Start begins a new list
  bool stop_ = false;
  Status status_;
  std::thread thread_;
};

// How much of the reduce time was hidden behind backward.
using simulate::OverlapFigures;
OverlapFigures MeasureOverlap(std::span<const ReduceRecord> records, int64_t backward_end_ns);

}  // namespace hyper::runtime
