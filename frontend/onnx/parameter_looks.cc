#include "frontend/onnx/parameter_looks.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

namespace hyper::onnx_frontend {
namespace {

bool AllDigits(std::string_view s) {
  return !s.empty() &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c); });
}

// What modules call their buffers.
bool IsBufferName(const std::string& name) {
  static const std::set<std::string> names = {
      "mean",        "std",          "pixel_mean", "pixel_std",   "mask",          "attn_mask",
      "causal_mask", "inv_freq",     "freqs",      "cos_cached",  "sin_cached",    "pe",
      "pos_table",   "position_ids", "anchors",    "anchor_grid", "window",        "running_mean",
      "running_var", "sigmas",       "betas",      "alphas",      "alphas_cumprod"};
  const size_t dot = name.find_last_of("./");
  return names.count(dot == std::string::npos ? name : name.substr(dot + 1)) > 0;
}

bool WholeNumbers(const ir::HostTensor& value) {
  for (int64_t i = 0; i < value.type().elements(); ++i) {
    const double x = value.ElementAsDouble(i);
    if (x != std::floor(x) || !std::isfinite(x)) return false;
  }
  return true;
}

// True when every line along `axis` obeys s[n+1] + s[n-1] = c s[n] with a c of its own: arithmetic
// progressions, sines and cosines, geometric progressions. Learned or random numbers do not.
bool IsTableAlong(const ir::HostTensor& value, size_t axis) {
  constexpr double kTolerance = 1e-4;
  const ir::Dims& dims = value.type().dims;
  const int64_t extent = dims[axis];
  if (extent < 4) return false;
  int64_t stride = 1;
  for (size_t i = axis + 1; i < dims.size(); ++i) stride *= dims[i];
  const int64_t outer = value.type().elements() / (extent * stride);
  bool varies = false;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < stride; ++i) {
      const auto at = [&](int64_t n) {
        return value.ElementAsDouble((o * extent + n) * stride + i);
      };
      double product = 0;
      double square = 0;
      double largest = 0;
      for (int64_t n = 1; n + 1 < extent; ++n) {
        product += (at(n + 1) + at(n - 1)) * at(n);
        square += at(n) * at(n);
      }
      for (int64_t n = 0; n < extent; ++n) {
        largest = std::max(largest, std::abs(at(n)));
        varies = varies || std::abs(at(n) - at(0)) > kTolerance * std::abs(at(0));
      }
      const double c = square > 0 ? product / square : 0;
      for (int64_t n = 1; n + 1 < extent; ++n) {
        if (!(std::abs(at(n + 1) + at(n - 1) - c * at(n)) <= kTolerance * largest)) return false;
      }
    }
  }
  return varies;
}

}  // namespace

bool IsGeneratedName(const std::string& name) {
  if (AllDigits(name)) return true;
  if (name.starts_with("val_") && AllDigits(std::string_view(name).substr(4))) return true;
  for (std::string_view prefix : {"onnx::", "const_fold_opt__", "scalar_tensor", "_val_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name.find("Constant_") != std::string::npos && name.ends_with("_output_0");
}

bool AllEqual(const ir::HostTensor& value) {
  if (value.type().elements() == 0) return false;
  const auto bytes = value.bytes();
  const size_t size = static_cast<size_t>(ir::DTypeBytes(value.type().dtype));
  return std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

std::string LooksLikeBuffer(const std::string& name, const ir::HostTensor& value) {
  if (value.type().elements() > 1 && !AllEqual(value)) {
    if (WholeNumbers(value)) return "holds whole numbers";
    const bool exact =
        value.type().dtype == ir::DType::kF32 || value.type().dtype == ir::DType::kF64;
    for (size_t axis = 0; exact && axis < value.type().dims.size(); ++axis) {
      if (IsTableAlong(value, axis)) return "holds a table that a formula gives";
    }
  }
  return IsBufferName(name) ? "is called like a buffer" : "";
}

}  // namespace hyper::onnx_frontend
