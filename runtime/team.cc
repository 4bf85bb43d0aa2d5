#include "runtime/team.h"

#include <algorithm>
#include <cstdlib>

#include <omp.h>
#include <sched.h>
#include <unistd.h>

namespace hyper::runtime {

int DefaultTeamSize() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int threads = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) threads = std::max(1, CPU_COUNT(&set));
  if (const char* value = std::getenv("OMP_NUM_THREADS")) {
    const int requested = std::atoi(value);
    if (requested > 0) threads = std::min(threads, requested);
  }
  return threads;
}

int MaxTeamSize() {
  constexpr int64_t kAlways = 1024;
  const int64_t processors = std::max<int64_t>(1, ::sysconf(_SC_NPROCESSORS_CONF));
  return static_cast<int>(std::max(kAlways, 4 * processors));
}

Team::Team(int threads) : threads_(std::max(1, threads)) {}

void Team::Run(TaskFunction body, void* context) const {
  if (threads_ == 1) {
    body(context, 0, 1);
    return;
  }
#pragma omp parallel num_threads(threads_)
  body(context, omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace hyper::runtime
