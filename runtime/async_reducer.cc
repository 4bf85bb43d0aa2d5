#include "runtime/async_reducer.h"

#include <chrono>

namespace hyper::runtime {

int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

AsyncReducer::AsyncReducer(Communicator* communicator, int max_buckets)
    : communicator_(communicator) {
  jobs_.reserve(static_cast<size_t>(max_buckets));
  records_.reserve(static_cast<size_t>(max_buckets));
  if (communicator_->size() > 1) thread_ = std::thread([this] { Loop(); });
}

AsyncReducer::~AsyncReducer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AsyncReducer::Start(int bucket, void* data, int64_t elements, ir::DType dtype,
                         int64_t ready_ns) {
  if (!thread_.joinable()) return;  // one rank: the sum is there already
  {
    const std::lock_guard lock(mutex_);
    if (fresh_) {
      jobs_.clear();
      records_.clear();
      done_ = 0;
      fresh_ = false;
    }
    jobs_.push_back({data, elements, dtype});
    records_.push_back(
        {bucket, elements * ir::DTypeBytes(dtype), ready_ns, SteadyNanoseconds(), 0, 0});
  }
  changed_.notify_all();
}

Status AsyncReducer::Wait() {
  std::unique_lock lock(mutex_);
  if (fresh_) {
    records_.clear();
    return status_;
  }
  changed_.wait(lock, [&] { return done_ == jobs_.size(); });
  fresh_ = true;
  return status_;
}

void AsyncReducer::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || done_ < jobs_.size(); });
    if (stop_) return;
    const size_t index = done_;
    const Job job = jobs_[index];
    const bool usable = status_.ok();
    lock.unlock();
    const int64_t begin = SteadyNanoseconds();
    Status status;
    if (usable) {
      status =
          Guard([&] { return communicator_->AllReduceSum(job.data, job.elements, job.dtype); });
    }
    const int64_t end = SteadyNanoseconds();
    lock.lock();
    records_[index].begin_ns = begin;
    records_[index].end_ns = end;
    if (!status.ok()) status_ = std::move(status);
    ++done_;
    changed_.notify_all();
  }
}

OverlapFigures MeasureOverlap(std::span<const ReduceRecord> records, int64_t backward_end_ns) {
  std::vector<simulate::ReduceTimes> times;
  for (const ReduceRecord& record : records) {
    times.push_back({record.ready_ns, record.begin_ns, record.end_ns});
  }
  return simulate::MeasureOverlap(times, backward_end_ns);
}

}  // namespace hyper::runtime
