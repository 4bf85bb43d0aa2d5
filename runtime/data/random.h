// Counter-based random numbers for data: the value at a position depends on the key and the
// position only, so any rank can draw any sample without the others.
// Thread safety: pure functions and immutable values.
#pragma once

#include <cstdint>
#include <string_view>

namespace hyper::runtime {

// A well-mixed 64-bit hash of (key, counter): two rounds of the SplitMix64 finaliser.
uint64_t HashCounter(uint64_t key, uint64_t counter);
// A key for a named stream (FNV-1a of the name, mixed with the seed).
uint64_t StreamKey(int64_t seed, std::string_view name);
// In [0, 1), 53 bits.
double UniformFrom(uint64_t bits);

// A bijection of [0, size) drawn by (seed, epoch): a six-round Feistel network over the next even
// power of two, walked until the value falls inside. Needs no memory.
class Permutation {
 public:
  Permutation(int64_t size, int64_t seed, int64_t epoch);
  int64_t At(int64_t index) const;

 private:
  int64_t size_;
  int half_bits_ = 0;
  uint64_t key_;
};

}  // namespace hyper::runtime
