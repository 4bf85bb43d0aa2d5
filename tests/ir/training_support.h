// Small helpers for tests of training modules.
#pragma once

#include <string>
#include <vector>

#include "ir/reference/reference.h"
#include "ir/text.h"
#include "ir/training.h"

namespace hyper::ir::test {

inline HostTensor F64(Dims dims, std::vector<double> values) {
  return HostTensor::FromVector(DType::kF64, std::move(dims), values);
}
inline HostTensor F32(Dims dims, std::vector<float> values) {
  return HostTensor::FromVector(DType::kF32, std::move(dims), values);
}
inline HostTensor I64(Dims dims, std::vector<int64_t> values) {
  return HostTensor::FromVector(DType::kI64, std::move(dims), values);
}
inline std::vector<double> Numbers(const HostTensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.type().elements(); ++i) out.push_back(t.ElementAsDouble(i));
  return out;
}
// Position of `needle` in `text`; std::string::npos when absent.
inline size_t At(const std::string& text, const std::string& needle) { return text.find(needle); }

}  // namespace hyper::ir::test
