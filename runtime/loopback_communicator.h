// Ranks as threads of one process: most distributed tests and `hyperc verify` need no MPI.
// Messages are handed over by pointer; a delay per message makes overlap measurable.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/ordered_communicator.h"

namespace hyper::runtime {

struct LoopbackOptions {
  std::chrono::nanoseconds latency{0};  // per message
  double bytes_per_second = 0;          // of a sender's one link; 0: unlimited
  std::chrono::milliseconds timeout{60000};
  // Fault injection: this rank's exchanges fail from the n-th on (counted from 0).
  int failing_rank = -1;
  int64_t fail_at_exchange = 0;
  OrderedOptions ordered;
};

// One communicator per rank, each for its own thread. They may be destroyed in any order once no
// thread is inside a call.
std::vector<std::unique_ptr<Communicator>> MakeLoopback(int ranks, LoopbackOptions options = {});

// Runs `body` on `ranks` threads and waits. When a rank returns an error the others get
// kUnavailable from their next exchange with anyone; the first error to occur is returned, with
// its rank named.
Status RunOnRanks(int ranks, const LoopbackOptions& options,
                  const std::function<Status(Communicator&)>& body);

}  // namespace hyper::runtime
