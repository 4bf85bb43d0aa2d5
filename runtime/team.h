// One team of threads per rank, shared by generated kernels and the math library (OpenMP, as the
// library uses it): there is never a second pool.
#pragma once

#include <cstdint>

namespace hyper::runtime {

// Threads that a team of this process should have: the size of the affinity mask, capped by
// OMP_NUM_THREADS when set.
int DefaultTeamSize();

// The largest team that a launch may ask for: 1,024, or four per processor of a larger machine. Far
// above it the OpenMP library dies while it makes the threads.
int MaxTeamSize();

class Team {
 public:
  explicit Team(int threads);
  int size() const { return threads_; }
  // Calls body(task, tasks) for task = 0..size-1, one per thread, and waits. With one thread the
  // call is direct. `body` must not throw.
  using TaskFunction = void (*)(void* context, int64_t task, int64_t tasks);
  void Run(TaskFunction body, void* context) const;

 private:
  int threads_;
};

}  // namespace hyper::runtime
