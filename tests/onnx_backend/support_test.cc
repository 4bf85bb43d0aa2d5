// docs/onnx-support.md is what the records and lists say (HYPER_UPDATE_GOLDEN=1 rewrites it).
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/onnx_backend/cases.h"
#include "tests/onnx_backend/support_doc.h"

namespace hyper::onnx_backend {
namespace {

TEST(OnnxSupport, DocsAreUpToDate) {
  const std::string path = HYPER_SOURCE_DIR "/docs/onnx-support.md";
  const std::string now = SupportMarkdown(HYPER_NODE_TESTS);
  if (std::getenv("HYPER_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << now;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), now) << "run this test with HYPER_UPDATE_GOLDEN=1";
}

TEST(OnnxSupport, CasesKnowTheirOperator) {
  const auto plain = ReadCase(HYPER_NODE_TESTS, "test_relu");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->op, "Relu");
  EXPECT_EQ(plain->since, 14);
  const auto expanded = ReadCase(HYPER_NODE_TESTS, "test_elu_expanded_ver18");
  ASSERT_TRUE(expanded.ok());
  EXPECT_EQ(expanded->op, "Elu");
  EXPECT_TRUE(expanded->expanded);
  EXPECT_EQ(expanded->inputs.size(), 1u);
  const auto training = ReadCase(HYPER_NODE_TESTS, "test_adam");
  ASSERT_TRUE(training.ok());
  EXPECT_EQ(training->domain, "ai.onnx.preview.training");
  EXPECT_EQ(training->since, 1);
}

// So that none of them can go missing from what the claims say about them.
TEST(OnnxSupport, CasesOfTrainingExist) {
  std::map<std::string, int> counts;
  for (const std::string& name : CaseNames(HYPER_NODE_TESTS)) {
    for (const char* prefix : {"test_adam", "test_adagrad", "test_momentum", "test_nesterov",
                               "test_sce_", "test_nllloss_", "test_batchnorm"}) {
      if (name.starts_with(prefix)) ++counts[prefix];
    }
  }
  const std::map<std::string, int> expected = {
      {"test_adam", 2},  {"test_adagrad", 2},   {"test_momentum", 2}, {"test_nesterov", 1},
      {"test_sce_", 68}, {"test_nllloss_", 36}, {"test_batchnorm", 4}};
  EXPECT_EQ(counts, expected);
}

}  // namespace
}  // namespace hyper::onnx_backend
