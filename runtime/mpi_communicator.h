// Ranks as MPI processes. MPI carries point-to-point messages only; the collectives are those of
// OrderedCommunicator. MPI is initialised as MPI_THREAD_SERIALIZED: one thread at a time calls it
// (the thread that reduces gradients during backward, the trainer's own otherwise). Waiting polls
// with growing pauses, so that a waiting rank leaves its core to the computing threads.
#pragma once

#include <chrono>
#include <climits>
#include <memory>

#include "runtime/communicator.h"
#include "runtime/ordered_communicator.h"

namespace hyper::runtime {

struct MpiOptions {
  // Longest single message; longer ones are split. MPI counts are ints.
  int64_t max_message_bytes = INT_MAX;
  // A peer that sends nothing for so long is reported by kDeadlineExceeded.
  std::chrono::seconds timeout{1800};
  OrderedOptions ordered;
};

// True when an MPI or PMI launcher started this process.
bool LaunchedByMpi();

// MPI_Init_thread on first use in a process, MPI_Finalize at exit of the last communicator (once
// per process). kUnavailable when MPI cannot start or offers too little thread support.
Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(const MpiOptions& options = {});

// Ends all ranks of the job with this exit code. Call on an error that the other ranks cannot see;
// does nothing when MPI is not running.
void AbortMpi(int exit_code);

}  // namespace hyper::runtime
