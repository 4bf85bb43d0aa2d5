#include "runtime/not_finite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "runtime/program_io.h"

namespace hyper::runtime {
namespace {

// Causes first. Negative: not searched.
int OrderOf(program::Storage storage) {
  switch (storage) {
    case program::INPUT: return 0;
    case program::PARAMETER: return 1;
    case program::FROZEN: return 2;
    case program::STATE: return 3;
    case program::GRADIENT: return 4;
    default: return -1;
  }
}

constexpr const char* kKinds[] = {"input", "parameter", "frozen weight", "state", "gradient of"};

template <typename T>
std::string BadValue(const std::vector<std::byte>& bytes) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    if (!std::isfinite(value)) return NumberText(static_cast<double>(value));
  }
  return {};
}

// What the tensor holds that is not finite, or nothing.
std::string BadValueOf(const Executor& executor, const program::Operand& place) {
  const ir::TensorType type = TypeOf(place);
  if (type.dtype != ir::DType::kF32 && type.dtype != ir::DType::kF64) return {};
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  executor.ReadOperand(place, bytes);
  return type.dtype == ir::DType::kF32 ? BadValue<float>(bytes) : BadValue<double>(bytes);
}

// The order of the kind as one digit, then words; empty: none.
std::string FindHere(const Executor& executor, bool several_ranks, int rank) {
  for (int order = 0; order < static_cast<int>(std::size(kKinds)); ++order) {
    for (const program::Slot& slot : executor.program().slots()) {
      if (OrderOf(slot.storage()) != order) continue;
      const std::string value = BadValueOf(executor, slot.place());
      if (value.empty()) continue;
      // Only inputs differ from rank to rank.
      const std::string where = order == 0 && several_ranks ? fmt::format(" (rank {})", rank) : "";
      return fmt::format("{}{} '{}' holds {}{}", order, kKinds[order], slot.name(), value, where);
    }
  }
  return {};
}

}  // namespace

Result<std::string> FirstNotFinite(const Executor& executor, Communicator* communicator) {
  const std::string mine = FindHere(executor, communicator->size() > 1, communicator->rank());
  HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> all, communicator->AllGather(mine));
  std::string first;
  for (const std::string& found : all) {
    if (!found.empty() && (first.empty() || found[0] < first[0])) first = found;
  }
  return first.empty() ? first : first.substr(1);
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{}", value);
}

}  // namespace hyper::runtime
