#include "runtime/data/random.h"

namespace hyper::runtime {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t HashCounter(uint64_t key, uint64_t counter) {
  return Mix(Mix(counter * kGolden + key) ^ (key + kGolden));
}

uint64_t StreamKey(int64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return HashCounter(hash, static_cast<uint64_t>(seed));
}

double UniformFrom(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

Permutation::Permutation(int64_t size, int64_t seed, int64_t epoch)
    : size_(size), key_(HashCounter(StreamKey(seed, "shuffle"), static_cast<uint64_t>(epoch))) {
  while (half_bits_ < 31 && (int64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

int64_t Permutation::At(int64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next = left ^ (HashCounter(key_ + round * kGolden, right) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace hyper::runtime
