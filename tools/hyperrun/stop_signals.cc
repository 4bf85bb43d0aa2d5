#include "tools/hyperrun/stop_signals.h"

#include <csignal>
#include <cstring>

#include <pthread.h>
#include <unistd.h>

#include <fmt/format.h>

namespace hyper::tools {
namespace {

constexpr int kStopSignals[] = {SIGTERM, SIGUSR1};

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // for a signal handler

extern "C" void OnStopSignal(int) { stop_requested.store(true, std::memory_order_relaxed); }

extern "C" void* Receive(void* /*unused*/) {
  while (true) pause();
}

// A thread with every signal blocked but the stop signals, which this one blocks.
int StartReceiver() {
  sigset_t stop;
  sigset_t others;
  sigset_t before;
  sigemptyset(&stop);
  sigfillset(&others);
  for (const int signal : kStopSignals) {
    sigaddset(&stop, signal);
    sigdelset(&others, signal);
  }
  // It begins with the mask of its maker.
  pthread_sigmask(SIG_SETMASK, &others, &before);
  pthread_t thread{};
  const int error = pthread_create(&thread, nullptr, Receive, nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return error;
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  return pthread_detach(thread);
}

}  // namespace

Result<const std::atomic<bool>*> CatchStopSignals() {
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : kStopSignals) sigaction(signal, &action, nullptr);
  if (const int error = StartReceiver(); error != 0) {
    return ResourceExhausted(
        fmt::format("no thread for signals can be made: {}", std::strerror(error)));
  }
  return &stop_requested;
}

}  // namespace hyper::tools
