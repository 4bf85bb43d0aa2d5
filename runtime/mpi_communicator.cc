#include "runtime/mpi_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

namespace hyper::runtime {
namespace {

constexpr int kTag = 7;

std::string MpiErrorText(int error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

// Pauses between polls: first only gives the core away, then sleeps longer and longer.
class Backoff {
 public:
  void Pause() {
    if (polls_ < kYields) {
      ++polls_;
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(sleep_us_));
    sleep_us_ = std::min<int64_t>(sleep_us_ * 2, 200);
  }
  void Reset() { *this = Backoff(); }

 private:
  static constexpr int kYields = 64;
  int polls_ = 0;
  int64_t sleep_us_ = 10;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm communicator, const MpiOptions& options)
      : communicator_(communicator), options_(options) {
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
  }
  ~MpiTransport() override {
    // After a failure peers may be gone; waiting for them in MPI_Finalize would hang.
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized || broken_) return;
    MPI_Comm_free(&communicator_);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status Exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    const Status status = StartAndWait(sends, receives);
    if (!status.ok()) broken_ = true;
    return status;
  }

 private:
  Status StartAndWait(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
    requests_.clear();
    peers_.clear();
    for (const Incoming& receive : receives) {
      for (int64_t at = 0; at < receive.bytes; at += options_.max_message_bytes) {
        const int n = static_cast<int>(std::min(options_.max_message_bytes, receive.bytes - at));
        MPI_Request request;
        const int error =
            MPI_Irecv(receive.data + at, n, MPI_BYTE, receive.peer, kTag, communicator_, &request);
        HYPER_RETURN_IF_ERROR(Check(error, "receive from", receive.peer));
        requests_.push_back(request);
        peers_.push_back(receive.peer);
      }
    }
    for (const Outgoing& send : sends) {
      for (int64_t at = 0; at < send.bytes; at += options_.max_message_bytes) {
        const int n = static_cast<int>(std::min(options_.max_message_bytes, send.bytes - at));
        MPI_Request request;
        const int error =
            MPI_Isend(send.data + at, n, MPI_BYTE, send.peer, kTag, communicator_, &request);
        HYPER_RETURN_IF_ERROR(Check(error, "send to", send.peer));
        requests_.push_back(request);
        peers_.push_back(send.peer);
      }
    }
    return WaitForAll();
  }

  Status WaitForAll() {
    Backoff backoff;
    auto last_progress = std::chrono::steady_clock::now();
    size_t open = requests_.size();
    while (open > 0) {
      size_t still_open = 0;
      for (size_t i = 0; i < open; ++i) {
        int done = 0;
        MPI_Status status;
        const int error = MPI_Test(&requests_[i], &done, &status);
        HYPER_RETURN_IF_ERROR(Check(error, "exchange with", peers_[i]));
        if (!done) {
          requests_[still_open] = requests_[i];
          peers_[still_open++] = peers_[i];
        }
      }
      if (still_open == 0) break;
      const auto now = std::chrono::steady_clock::now();
      if (still_open < open) {
        last_progress = now;
        backoff.Reset();
      } else if (now - last_progress > options_.timeout) {
        return Overdue(still_open);
      }
      open = still_open;
      backoff.Pause();
    }
    return Status::Ok();
  }

  Status Overdue(size_t open) const {
    const std::set<int> waiting(peers_.begin(), peers_.begin() + static_cast<ptrdiff_t>(open));
    std::string names;
    for (const int peer : waiting) names += fmt::format("{}{}", names.empty() ? "" : ", ", peer);
    return {StatusCode::kDeadlineExceeded,
            fmt::format("rank {} has waited {} s for rank{} {}", rank_, options_.timeout.count(),
                        waiting.size() > 1 ? "s" : "", names)};
  }

  Status Check(int error, std::string_view what, int peer) const {
    if (error == MPI_SUCCESS) return Status::Ok();
    return Unavailable(
        fmt::format("rank {}: cannot {} rank {}: {}", rank_, what, peer, MpiErrorText(error)));
  }

  MPI_Comm communicator_;
  const MpiOptions options_;
  int rank_ = 0;
  int size_ = 1;
  bool broken_ = false;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
};

bool MpiRunning() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

}  // namespace

bool LaunchedByMpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(const MpiOptions& options) {
  if (options.max_message_bytes < 1 || options.max_message_bytes > INT_MAX) {
    return Internal(fmt::format("max_message_bytes is {}", options.max_message_bytes));
  }
  if (MpiRunning()) return Internal("there is one MPI communicator per process");
  int provided = MPI_THREAD_SINGLE;
  const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (error != MPI_SUCCESS) {
    return Unavailable(fmt::format("MPI does not start: {}", MpiErrorText(error)));
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    return Unavailable(
        fmt::format("MPI offers thread level {}, MPI_THREAD_SERIALIZED ({}) is "
                    "needed",
                    provided, static_cast<int>(MPI_THREAD_SERIALIZED)));
  }
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int dup_error = MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  if (dup_error != MPI_SUCCESS) {
    return Unavailable(fmt::format("MPI_Comm_dup: {}", MpiErrorText(dup_error)));
  }
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  return std::unique_ptr<Communicator>(std::make_unique<OrderedCommunicator>(
      std::make_unique<MpiTransport>(communicator, options), options.ordered));
}

void AbortMpi(int exit_code) {
  if (MpiRunning()) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace hyper::runtime
