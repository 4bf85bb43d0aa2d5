// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11).
#include <array>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

using Block = std::array<uint32_t, 4>;

Block Philox(Block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

Status RandomUniform(const Call& call) {
  const auto* rng = call.In<int64_t>(0);
  const auto step = static_cast<uint64_t>(rng[1]);
  const uint64_t key = static_cast<uint64_t>(rng[0]) ^
                       (static_cast<uint64_t>(call.op_id) * uint64_t{0x9E3779B97F4A7C15});
  const int64_t elements = call.out(0).elements();
  const uint64_t first = static_cast<uint64_t>(rng[2]) * static_cast<uint64_t>(elements);
  for (int64_t i = 0; i < elements; ++i) {
    const uint64_t e = first + static_cast<uint64_t>(i);
    const uint64_t block = e / 4;
    const Block words = Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
                               static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
    // 24 bits fit every float dtype but f16 and bf16, which round.
    const double u = (words[e % 4] >> 8) * 0x1p-24;
    StoreScalar(call.out(0).dtype, call.outputs[0].data, i, {u, 0});
  }
  return Status::Ok();
}

constexpr NamedKernel kKernels[] = {{"random_uniform", RandomUniform, true}};

}  // namespace

std::span<const NamedKernel> RandomKernels() { return kKernels; }

}  // namespace hyper::ir::reference
