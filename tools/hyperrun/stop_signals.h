// Signals by which batch systems announce the end of a job's time.
#pragma once

#include <atomic>

#include "base/status.h"

namespace hyper::tools {

// From now on SIGTERM and SIGUSR1 set the returned flag, however often they come; SIGINT and
// SIGKILL still end a job that does not want to. To be called once, by the main thread while it is
// the only one: the two signals are blocked in it and thus in every thread that is made later, and
// a thread that does nothing else receives them. The math library's gemm uses the stack pointer as
// a data register, so a signal that a computing thread received would be written over the library's
// memory. kResourceExhausted: the system makes no thread.
Result<const std::atomic<bool>*> CatchStopSignals();

}  // namespace hyper::tools
