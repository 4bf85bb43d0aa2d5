#include "tests/runtime/communicator_conformance.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/data/random.h"

namespace hyper::runtime::testing {
namespace {

template <typename T>
ir::DType TypeFor();
template <>
ir::DType TypeFor<float>() {
  return ir::DType::kF32;
}
template <>
ir::DType TypeFor<double>() {
  return ir::DType::kF64;
}
template <>
ir::DType TypeFor<int64_t>() {
  return ir::DType::kI64;
}

// Values of very different sizes, so that another order of summation gives other bits.
template <typename T>
T ValueAt(int rank, int64_t index) {
  const uint64_t bits = HashCounter(static_cast<uint64_t>(rank + 1), static_cast<uint64_t>(index));
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits >> 8) - (int64_t{1} << 55);
  } else {
    const double size = static_cast<double>(int64_t{1} << (bits % 30));
    return static_cast<T>((UniformFrom(bits) - 0.5) * size);
  }
}

template <typename T>
Status CheckAllReduce(Communicator& communicator, int64_t elements) {
  const size_t count = static_cast<size_t>(elements);
  std::vector<T> sum(count), max(count), expected_sum(count), expected_max(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t index = static_cast<int64_t>(i);
    sum[i] = max[i] = ValueAt<T>(communicator.rank(), index);
    expected_sum[i] = expected_max[i] = ValueAt<T>(0, index);
    for (int rank = 1; rank < communicator.size(); ++rank) {
      expected_sum[i] += ValueAt<T>(rank, index);
      expected_max[i] = std::max(expected_max[i], ValueAt<T>(rank, index));
    }
  }
  HYPER_RETURN_IF_ERROR(communicator.AllReduceSum(sum.data(), elements, TypeFor<T>()));
  HYPER_RETURN_IF_ERROR(communicator.AllReduceMax(max.data(), elements, TypeFor<T>()));
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(&sum[i], &expected_sum[i], sizeof(T)) != 0 || max[i] != expected_max[i]) {
      return Internal(
          fmt::format("{} elements of {} bytes, element {}: sum {} for {}, max {} for "
                      "{}",
                      elements, sizeof(T), i, sum[i], expected_sum[i], max[i], expected_max[i]));
    }
  }
  return Status::Ok();
}

Status CheckBroadcast(Communicator& communicator, int64_t bytes) {
  for (int root = 0; root < communicator.size(); ++root) {
    std::vector<unsigned char> data(static_cast<size_t>(bytes));
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = communicator.rank() == root ? static_cast<unsigned char>(i * 7 + root) : 0;
    }
    HYPER_RETURN_IF_ERROR(communicator.Broadcast(data.data(), bytes, root));
    for (size_t i = 0; i < data.size(); ++i) {
      if (data[i] != static_cast<unsigned char>(i * 7 + root)) {
        return Internal(fmt::format("broadcast of {} bytes from {}: byte {}", bytes, root, i));
      }
    }
  }
  return Status::Ok();
}

Status CheckAllGather(Communicator& communicator) {
  const auto text_of = [](int rank) {
    if (rank == 1) return std::string();
    return std::string(static_cast<size_t>(rank * 1500 + 3), static_cast<char>('a' + rank));
  };
  HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         communicator.AllGather(text_of(communicator.rank())));
  if (static_cast<int>(texts.size()) != communicator.size()) return Internal("all-gather: count");
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (texts[static_cast<size_t>(rank)] != text_of(rank)) {
      return Internal(fmt::format("all-gather: text of rank {}", rank));
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckConformance(Communicator& communicator) {
  // Around one chunk, one segment and several, with lengths that do not divide.
  for (const int64_t elements : {0, 1, 3, 511, 512, 1025, 4099, 20011, 300007}) {
    HYPER_RETURN_IF_ERROR(CheckAllReduce<float>(communicator, elements));
    HYPER_RETURN_IF_ERROR(CheckAllReduce<double>(communicator, elements));
    HYPER_RETURN_IF_ERROR(CheckAllReduce<int64_t>(communicator, elements));
  }
  for (const int64_t bytes : {0, 1, 7, 5000, 100003}) {
    HYPER_RETURN_IF_ERROR(CheckBroadcast(communicator, bytes));
  }
  HYPER_RETURN_IF_ERROR(CheckAllGather(communicator));
  float value = 0;
  if (communicator.AllReduceSum(&value, 1, ir::DType::kI8).ok()) {
    return Internal("an i8 sum is not refused");
  }
  return communicator.Barrier();
}

}  // namespace hyper::runtime::testing
