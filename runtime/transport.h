// Point-to-point messages between the ranks of one job: what a network has to offer so that
// OrderedCommunicator can build every collective on it.
// Thread safety: one thread at a time per Transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace hyper::runtime {

struct Outgoing {
  int peer = 0;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};
struct Incoming {
  int peer = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Starts all messages, returns when every buffer may be reused. Messages of one pair of ranks
  // match in the order of the spans and of the calls; lengths of a pair must agree; any length.
  // kUnavailable or kDeadlineExceeded name the peer; the transport is unusable afterwards.
  virtual Status Exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) = 0;
};

}  // namespace hyper::runtime
