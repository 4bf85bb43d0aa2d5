#include "ir/number_text.h"

#include <charconv>
#include <cmath>

#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

template <typename T>
std::optional<T> FromChars(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string FloatText(DType dtype, double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  char* const limit = buffer + sizeof(buffer);
  char* const end = dtype == DType::kF64
                        ? std::to_chars(buffer, limit, value).ptr
                        : std::to_chars(buffer, limit, static_cast<float>(value)).ptr;
  return std::string(buffer, end);
}

std::optional<double> ParseFloat(DType dtype, std::string_view text) {
  if (text == "nan") return std::nan("");
  if (text == "inf") return INFINITY;
  if (text == "-inf") return -INFINITY;
  // from_chars knows more spellings of these; one is enough.
  if (text.find_first_of("nN") != std::string_view::npos) return std::nullopt;
  if (dtype == DType::kF64) return FromChars<double>(text);
  const std::optional<float> value = FromChars<float>(text);
  if (!value) return std::nullopt;
  return RoundFloat(dtype, *value);
}

std::string IntText(DType dtype, int64_t value) {
  return dtype == DType::kU64 ? std::to_string(static_cast<uint64_t>(value))
                              : std::to_string(value);
}

std::optional<int64_t> ParseInt(DType dtype, std::string_view text) {
  if (dtype == DType::kU64) {
    const std::optional<uint64_t> value = FromChars<uint64_t>(text);
    if (!value) return std::nullopt;
    return static_cast<int64_t>(*value);
  }
  const std::optional<int64_t> value = FromChars<int64_t>(text);
  if (!value || WrapInt(dtype, *value) != *value) return std::nullopt;
  return value;
}

}  // namespace hyper::ir
