// Numbers in the text form: the shortest decimal that reads back as the same value.
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/types.h"

namespace hyper::ir {

// "0.1", "-inf", "nan", "1e-05"; `dtype` (f32 or narrower, or f64) sets the precision.
std::string FloatText(DType dtype, double value);
// The whole text must be a number.
std::optional<double> ParseFloat(DType dtype, std::string_view text);
// u64 constants are written unsigned and held as their bit pattern.
std::string IntText(DType dtype, int64_t value);
std::optional<int64_t> ParseInt(DType dtype, std::string_view text);

}  // namespace hyper::ir
