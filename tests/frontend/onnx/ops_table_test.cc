// The table of ONNX operators and its documentation.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/ops_table.h"

namespace hyper::onnx_frontend {
namespace {

TEST(OnnxOpsTable, EveryImporterIsListedWithItsOpsets) {
  const auto json = nlohmann::json::parse(OnnxOpsJson());
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& row : json["operators"]) {
    const std::string key = row["domain"].get<std::string>() + ":" + row["op"].get<std::string>();
    EXPECT_TRUE(by_name.emplace(key, row).second) << key;
  }
  for (const ImportTarget& target : ImportTargets().targets()) {
    const std::string key = std::string(target.domain) + ":" + std::string(target.op);
    ASSERT_TRUE(by_name.contains(key)) << key;
    EXPECT_EQ(by_name[key]["by"], "importer");
  }
  EXPECT_EQ(by_name[":Relu"]["opsets"][0], 7);
  EXPECT_EQ(by_name[":Relu"]["opsets"][1], json["newest_opset"]);
  EXPECT_EQ(by_name[":If"]["by"], "importer");
  // A body of ONNX whose nodes all have importers, and an operator that nothing lowers.
  EXPECT_EQ(by_name[":MeanVarianceNormalization"]["by"], "function");
  EXPECT_FALSE(by_name.contains(":NonZero"));
}

TEST(OnnxOpsTable, TextFitsAHundredColumns) {
  std::istringstream text(OnnxOpsText());
  for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(OnnxOpsTable, DocsAreUpToDate) {
  const std::string path = HYPER_SOURCE_DIR "/docs/onnx-operators.md";
  if (const char* update = std::getenv("HYPER_UPDATE_GOLDEN"); update && *update == '1') {
    std::ofstream(path) << OnnxOpsMarkdown();
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), OnnxOpsMarkdown()) << "run this test with HYPER_UPDATE_GOLDEN=1";
}

}  // namespace
}  // namespace hyper::onnx_frontend
