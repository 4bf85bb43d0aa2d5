// The table of ONNX operators and its documentation.
#include <map>
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

TEST(OnnxOpsTable, VersionsOfOneOperatorDiffer) {
  std::map<std::string, OnnxOpVersion> by_key;
  for (const OnnxOpVersion& v : OnnxOpVersions()) {
    EXPECT_TRUE(by_key.emplace(v.domain + ":" + v.op + std::to_string(v.since), v).second)
        << v.op << v.since;
  }
  EXPECT_EQ(by_key.at(":Relu6").by, "importer");
  EXPECT_EQ(by_key.at(":Relu14").gradient, "yes");
  EXPECT_FALSE(by_key.contains(":Relu1"));  // replaced before the oldest opset that is read
  EXPECT_EQ(by_key.at(":MeanVarianceNormalization13").by, "function");
  EXPECT_EQ(by_key.at(":Floor13").gradient.substr(0, 5), "none:");
  EXPECT_EQ(by_key.at(":StringConcat20").by, "");
}

}  // namespace
}  // namespace hyper::onnx_frontend
