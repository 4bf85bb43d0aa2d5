#include "ir/ops/window.h"

#include <algorithm>

#include "base/strings.h"

namespace hyper::ir {
namespace {

// Keeps products of window attributes inside 64 bits.
Status ExpectModest(std::string_view name, const Dims& values) {
  return ExpectAtMost(name, values, int64_t{1} << 24);
}

}  // namespace

std::vector<AttributeDef> WindowAttributes() {
  return {{"strides", AttributeKind::kDims, "step per spatial dim, at least 1", std::nullopt},
          {"pads_low", AttributeKind::kDims, "padding before each spatial dim", std::nullopt},
          {"pads_high", AttributeKind::kDims, "padding after each spatial dim", std::nullopt},
          {"dilations", AttributeKind::kDims, "distance of taps per spatial dim, at least 1",
           std::nullopt}};
}

std::vector<AttributeDef> Extend(std::vector<AttributeDef> base, std::vector<AttributeDef> more) {
  for (AttributeDef& def : more) base.push_back(std::move(def));
  return base;
}

Attributes Keep(const Attributes& a, std::span<const std::string_view> names) {
  Attributes out;
  for (std::string_view name : names) out.Set(std::string(name), *a.Find(name));
  return out;
}

Result<Dims> WindowOutput(const Dims& input, const Dims& kernel, const Attributes& a,
                          int first_dim) {
  const int count = static_cast<int>(input.size());
  HYPER_RETURN_IF_ERROR(ExpectEntries("kernel", kernel, count));
  HYPER_RETURN_IF_ERROR(ExpectEach("kernel", kernel, 1));
  HYPER_RETURN_IF_ERROR(ExpectModest("kernel", kernel));
  for (std::string_view name : {"strides", "pads_low", "pads_high", "dilations"}) {
    const Dims& values = a.GetDims(name);
    HYPER_RETURN_IF_ERROR(ExpectEntries(name, values, count));
    const bool pad = name == "pads_low" || name == "pads_high";
    HYPER_RETURN_IF_ERROR(ExpectEach(name, values, pad ? 0 : 1));
    HYPER_RETURN_IF_ERROR(ExpectModest(name, values));
  }
  Dims out;
  for (size_t d = 0; d < input.size(); ++d) {
    const int64_t reach = (kernel[d] - 1) * a.GetDims("dilations")[d] + 1;
    const int64_t padded = input[d] + a.GetDims("pads_low")[d] + a.GetDims("pads_high")[d];
    if (reach > padded) {
      return InvalidArgument("dim " + std::to_string(first_dim + static_cast<int>(d)) + " is " +
                             std::to_string(input[d]) + ", " + std::to_string(padded) +
                             " with padding, but the window of " + std::to_string(kernel[d]) +
                             " taps spans " + std::to_string(reach));
    }
    out.push_back((padded - reach) / a.GetDims("strides")[d] + 1);
  }
  return out;
}

Status ExpectTapInEachWindow(const Dims& input, const Dims& kernel, const Dims& output,
                             const Attributes& a) {
  for (size_t d = 0; d < input.size(); ++d) {
    const int64_t stride = a.GetDims("strides")[d];
    const int64_t dilation = a.GetDims("dilations")[d];
    // Windows that start inside the input have a tap there: only those before and the last remain.
    const int64_t before = (a.GetDims("pads_low")[d] + stride - 1) / stride;
    for (int64_t o = 0; o < output[d];
         o = o + 1 < before ? o + 1 : std::max(o + 1, output[d] - 1)) {
      const int64_t start = o * stride - a.GetDims("pads_low")[d];
      const int64_t first = start >= 0 ? 0 : (-start + dilation - 1) / dilation;  // tap at >= 0
      const bool inside = first < kernel[d] && start + first * dilation < input[d];
      if (inside) continue;
      return InvalidArgument("window " + std::to_string(o) + " along dim " + std::to_string(d + 2) +
                             " lies in the padding only: pads_low " +
                             FormatDims(a.GetDims("pads_low")) + ", pads_high " +
                             FormatDims(a.GetDims("pads_high")) + ", kernel " + FormatDims(kernel) +
                             ", input " + FormatDims(input));
    }
  }
  return Status::Ok();
}

Dims Spatial(const Dims& dims) { return Dims(dims.begin() + 2, dims.end()); }

Dims WithSpatial(const Dims& dims, const Dims& spatial) {
  Dims out = {dims[0], dims[1]};
  out.insert(out.end(), spatial.begin(), spatial.end());
  return out;
}

}  // namespace hyper::ir
