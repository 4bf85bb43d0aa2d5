// Runs one-function text modules through the reference kernels.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ir/reference/reference.h"
#include "ir/text.h"

namespace hyper::ir {

inline HostTensor F32(Dims dims, std::vector<float> values) {
  return HostTensor::FromVector(DType::kF32, std::move(dims), values);
}
inline HostTensor F64(Dims dims, std::vector<double> values) {
  return HostTensor::FromVector(DType::kF64, std::move(dims), values);
}
inline HostTensor I64(Dims dims, std::vector<int64_t> values) {
  return HostTensor::FromVector(DType::kI64, std::move(dims), values);
}

// `body`: lines of a function whose arguments %a, %b, ... have the types of `inputs`; one result
// per name in `results`.
inline Result<std::vector<HostTensor>> TryEvalText(const std::string& body,
                                                   const std::vector<std::string>& results,
                                                   const std::vector<HostTensor>& inputs) {
  std::string text = "func @f(";
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += (i > 0 ? ", %" : "%") + std::string(1, static_cast<char>('a' + i)) + ": " +
            inputs[i].type().ToString();
  }
  text += ") {\n" + body + "\nreturn ";
  for (size_t i = 0; i < results.size(); ++i) {
    text += (i > 0 ? ", %" : "%") + results[i] + " as \"" + results[i] + "\"";
  }
  HYPER_ASSIGN_OR_RETURN(const Module module, Parse(text + "}"));
  return Evaluate(module.functions[0], inputs);
}

inline std::vector<HostTensor> EvalText(const std::string& body,
                                        const std::vector<std::string>& results,
                                        const std::vector<HostTensor>& inputs) {
  auto out = TryEvalText(body, results, inputs);
  EXPECT_TRUE(out.ok()) << out.status().ToString();
  return out.ok() ? std::move(out).value() : std::vector<HostTensor>(results.size());
}

inline HostTensor EvalOp(const std::string& body, const std::vector<HostTensor>& inputs) {
  return EvalText("%y = " + body, {"y"}, inputs)[0];
}

inline void ExpectValues(const HostTensor& t, const Dims& dims, const std::vector<double>& values,
                         double tolerance = 1e-6) {
  ASSERT_TRUE(t.defined());
  ASSERT_EQ(t.type().dims, dims);
  ASSERT_EQ(static_cast<size_t>(t.type().elements()), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = t.ElementAsDouble(static_cast<int64_t>(i));
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(v)) << "element " << i;
    } else if (std::isinf(values[i])) {
      EXPECT_EQ(v, values[i]) << "element " << i;
    } else {
      EXPECT_NEAR(v, values[i], tolerance) << "element " << i;
    }
  }
}

}  // namespace hyper::ir
