#include "runtime/loopback_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include <fmt/format.h>

namespace hyper::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Sends of one exchange that their receivers have not finished; guarded by Hub::mutex.
struct SendState {
  int queued = 0;
  int copying = 0;
};

struct Message {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  Clock::time_point ready;
  SendState* state = nullptr;
};

// State shared by the ranks of one job. All members after `options` are guarded by `mutex`.
struct Hub {
  Hub(int rank_count, const LoopbackOptions& given)
      : ranks(rank_count),
        options(given),
        queues(static_cast<size_t>(rank_count * rank_count)),
        changed(static_cast<size_t>(rank_count)),
        link_free(static_cast<size_t>(rank_count)) {}

  std::vector<Message>& Queue(int from, int to) {
    return queues[static_cast<size_t>(from * ranks + to)];
  }
  void Fail(int rank) {
    const std::lock_guard lock(mutex);
    if (failed_rank < 0) failed_rank = rank;
    for (std::condition_variable& condition : changed) condition.notify_all();
  }

  const int ranks;
  const LoopbackOptions options;
  std::mutex mutex;
  std::vector<std::vector<Message>> queues;
  std::vector<std::condition_variable> changed;  // per rank: something for it happened
  std::vector<Clock::time_point> link_free;
  int failed_rank = -1;
};

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks; }

  Status Exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    if (rank_ == hub_->options.failing_rank && exchanges_++ >= hub_->options.fail_at_exchange) {
      hub_->Fail(rank_);
      return Unavailable(fmt::format("rank {}: injected failure", rank_));
    }
    std::unique_lock lock(hub_->mutex);
    SendState state;
    for (const Outgoing& send : sends) {
      hub_->Queue(rank_, send.peer)
          .push_back({send.data, send.bytes, ReadyTime(send.bytes), &state});
      ++state.queued;
      hub_->changed[static_cast<size_t>(send.peer)].notify_all();
    }
    const int last_peer = sends.empty() ? -1 : sends.back().peer;
    Status status = Receive(lock, receives);
    if (status.ok()) {
      status = WaitFor(lock, last_peer, [&] { return state.queued + state.copying == 0; });
    }
    if (!status.ok()) {
      // Queues point to this frame and receivers read our buffers: leave neither behind.
      for (const Outgoing& send : sends) {
        std::erase_if(hub_->Queue(rank_, send.peer),
                      [&](const Message& m) { return m.state == &state; });
      }
      hub_->changed[static_cast<size_t>(rank_)].wait(lock, [&] { return state.copying == 0; });
    }
    return status;
  }

 private:
  Status Receive(std::unique_lock<std::mutex>& lock, std::span<const Incoming> receives) {
    for (const Incoming& receive : receives) {
      std::vector<Message>& queue = hub_->Queue(receive.peer, rank_);
      HYPER_RETURN_IF_ERROR(WaitFor(lock, receive.peer, [&] { return !queue.empty(); }));
      const Message message = queue.front();
      if (message.bytes != receive.bytes) {
        return Internal(fmt::format("rank {} expects {} bytes from rank {} but gets {}", rank_,
                                    receive.bytes, receive.peer, message.bytes));
      }
      queue.erase(queue.begin());
      --message.state->queued;
      ++message.state->copying;
      lock.unlock();
      std::this_thread::sleep_until(message.ready);
      if (receive.bytes > 0) {
        std::memcpy(receive.data, message.data, static_cast<size_t>(receive.bytes));
      }
      lock.lock();
      --message.state->copying;
      hub_->changed[static_cast<size_t>(receive.peer)].notify_all();
    }
    return Status::Ok();
  }

  Clock::time_point ReadyTime(int64_t bytes) {
    const LoopbackOptions& options = hub_->options;
    const Clock::time_point now = Clock::now();
    if (options.bytes_per_second <= 0) return now + options.latency;
    Clock::time_point& free = hub_->link_free[static_cast<size_t>(rank_)];
    free = std::max(free, now) + std::chrono::nanoseconds(static_cast<int64_t>(
                                     1e9 * static_cast<double>(bytes) / options.bytes_per_second));
    return free + options.latency;
  }

  template <typename Condition>
  Status WaitFor(std::unique_lock<std::mutex>& lock, int peer, Condition done) {
    std::condition_variable& changed = hub_->changed[static_cast<size_t>(rank_)];
    const bool in_time = changed.wait_for(lock, hub_->options.timeout,
                                          [&] { return done() || hub_->failed_rank >= 0; });
    if (done()) return Status::Ok();
    if (!in_time) {
      return {StatusCode::kDeadlineExceeded, fmt::format("rank {} waited {} ms for rank {}", rank_,
                                                         hub_->options.timeout.count(), peer)};
    }
    return Unavailable(fmt::format("rank {} is gone", hub_->failed_rank));
  }

  std::shared_ptr<Hub> hub_;
  const int rank_;
  int64_t exchanges_ = 0;
};

std::vector<std::unique_ptr<Communicator>> MakeOnHub(const std::shared_ptr<Hub>& hub) {
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < hub->ranks; ++rank) {
    communicators.push_back(std::make_unique<OrderedCommunicator>(
        std::make_unique<LoopbackTransport>(hub, rank), hub->options.ordered));
  }
  return communicators;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeLoopback(int ranks, LoopbackOptions options) {
  return MakeOnHub(std::make_shared<Hub>(ranks, options));
}

Status RunOnRanks(int ranks, const LoopbackOptions& options,
                  const std::function<Status(Communicator&)>& body) {
  const auto hub = std::make_shared<Hub>(ranks, options);
  std::vector<std::unique_ptr<Communicator>> communicators = MakeOnHub(hub);
  std::mutex first_mutex;
  Status first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const Status status = Guard([&] { return body(*communicators[static_cast<size_t>(rank)]); });
      if (status.ok()) return;
      {
        const std::lock_guard lock(first_mutex);
        if (first.ok()) first = status.WithContext(fmt::format("rank {}", rank));
      }
      hub->Fail(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace hyper::runtime
