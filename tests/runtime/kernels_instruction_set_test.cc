// The math library's instruction set follows the bundle, once per process. The tests of this file
// run in one process, in the order in which they stand.
#include "runtime/kernels/instruction_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "codegen/cpu_features.h"
#include "runtime/kernels/onednn_util.h"

namespace hyper::runtime {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kV2 = {"pni", "ssse3", "sse4_1", "sse4_2", "popcnt"};

TEST(InstructionSet, FollowsTheFirstCap) {
  ASSERT_TRUE(codegen::MissingCpuFeatures(kV2).empty()) << "needs a processor with SSE 4.1";
  const Status status = CapInstructionSet(kV2);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(InstructionSetName(), "sse41");
  const dnnl::memory::desc desc({64, 64}, dnnl::memory::data_type::f32,
                                dnnl::memory::format_tag::ab);
  const dnnl::matmul::primitive_desc pd(CpuEngine(), desc, desc, desc);
  EXPECT_EQ(std::string(pd.impl_info_str()).find("avx"), std::string::npos) << pd.impl_info_str();
}

TEST(InstructionSet, TheSameAgainIsFine) {
  EXPECT_TRUE(CapInstructionSet(kV2).ok());
  EXPECT_TRUE(CapInstructionSet({"sse4_1"}).ok());
  EXPECT_TRUE(CapInstructionSet({}).ok());  // nothing smaller exists
}

TEST(InstructionSet, AnotherIsRefused) {
  std::vector<std::string> v3 = kV2;
  v3.insert(v3.end(), {"avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"});
  const Status status = CapInstructionSet(v3);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("sse41"));
  EXPECT_THAT(status.message(), HasSubstr("avx2"));
}

}  // namespace
}  // namespace hyper::runtime
