#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "frontend/strategy/schema.h"
#include "frontend/strategy/settings.h"
#include "frontend/strategy/strategy.h"

namespace hyper::strategy {
namespace {

using Json = nlohmann::json;

// Collects "path" -> phase of every property, and checks what each must have.
void Walk(const Json& schema, const std::string& path, std::map<std::string, std::string>* found) {
  if (schema.contains("oneOf")) {
    for (const Json& option : schema["oneOf"]) Walk(option, path, found);
  }
  if (schema.contains("items")) Walk(schema["items"], path, found);
  if (schema.contains("additionalProperties") && schema["additionalProperties"].is_object()) {
    Walk(schema["additionalProperties"], path + ".*", found);
  }
  if (!schema.contains("properties")) return;
  EXPECT_EQ(schema["type"], "object") << path;
  EXPECT_EQ(schema["additionalProperties"], false) << path;
  EXPECT_TRUE(schema["patternProperties"].contains("^x-")) << path;
  for (const auto& [name, property] : schema["properties"].items()) {
    const std::string child = path.empty() ? name : path + "." + name;
    EXPECT_GT(property.value("description", "").size(), 10u) << child;
    EXPECT_TRUE(property.contains("type") || property.contains("oneOf")) << child;
    (*found)[child] = property.value("x-hyper-phase", "");
    Walk(property, child, found);
  }
}

TEST(SchemaTest, HasEveryRowWithItsPhase) {
  const Json schema = Json::parse(StrategySchemaJson());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["required"], Json::array({"version"}));
  std::map<std::string, std::string> found;
  Walk(schema, "", &found);
  size_t rows = 0;
  for (const Setting& setting : AllSettings()) {
    if (setting.path.ends_with(".*")) continue;  // user's names: additionalProperties
    ++rows;
    const std::string path(setting.path);
    ASSERT_TRUE(found.contains(path)) << path;
    EXPECT_EQ(found[path], setting.phase == Phase::kLaunch ? "launch" : "compile") << path;
  }
  EXPECT_EQ(found.size(), rows);
  EXPECT_EQ(found["run.steps"], "launch");
  EXPECT_EQ(found["train.precision"], "compile");
  const Json& bucket = schema["properties"]["data_parallel"]["properties"]["bucket"];
  EXPECT_EQ(bucket["default"], "25MiB");
  EXPECT_EQ(schema["properties"]["run"]["properties"]["log_every"]["default"], 10);
}

TEST(SchemaTest, Golden) {
  const std::string path = std::string(HYPER_SOURCE_DIR) + "/tests/frontend/strategy/schema.json";
  const std::string schema = StrategySchemaJson();
  if (std::getenv("HYPER_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteFile(RealFileSystem(), path, schema).ok());
  }
  const Result<std::string> golden = RealFileSystem()->ReadAll(path, 1 << 20);
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  EXPECT_EQ(*golden, schema) << "HYPER_UPDATE_GOLDEN=1 rewrites the file";
}

TEST(SettingsTest, TableIsConsistent) {
  std::set<std::string_view> paths;
  for (const Setting& setting : AllSettings()) {
    EXPECT_TRUE(paths.insert(setting.path).second) << setting.path;
    EXPECT_TRUE(setting.description.ends_with('.')) << setting.path;
    EXPECT_FALSE(DescribeType(setting).empty()) << setting.path;
    const size_t dot = setting.path.rfind('.');
    if (dot != std::string_view::npos) {
      const Setting* parent = FindSetting(setting.path.substr(0, dot));
      ASSERT_NE(parent, nullptr) << setting.path;
      EXPECT_TRUE(IsContainer(parent->type) || parent->type == ValueType::kNameOrSection);
    }
    if (!setting.only_for.empty() && setting.only_for != kNoKind) {
      const Setting* kind = FindSetting(ChildPath(setting.path.substr(0, dot), "kind"));
      ASSERT_NE(kind, nullptr) << setting.path;
      for (const std::string& value : SplitChoices(setting.only_for)) {
        EXPECT_TRUE(HasChoice(kind->choices, value)) << setting.path << " " << value;
      }
    }
    if (setting.type == ValueType::kEnum) {
      EXPECT_FALSE(setting.choices.empty()) << setting.path;
    }
  }
}

// The typed enums are read by position in the table.
TEST(SettingsTest, EnumeratorsFollowTheTable) {
  EXPECT_EQ(OptimizerKindName(OptimizerKind::kSgd), "sgd");
  EXPECT_EQ(OptimizerKindName(OptimizerKind::kMomentum), "momentum");
  EXPECT_EQ(OptimizerKindName(OptimizerKind::kNesterov), "nesterov");
  EXPECT_EQ(OptimizerKindName(OptimizerKind::kAdam), "adam");
  EXPECT_EQ(OptimizerKindName(OptimizerKind::kAdamW), "adamw");
  EXPECT_EQ(ScheduleKindName(ScheduleKind::kConstant), "constant");
  EXPECT_EQ(ScheduleKindName(ScheduleKind::kLinear), "linear");
  EXPECT_EQ(ScheduleKindName(ScheduleKind::kCosine), "cosine");
  EXPECT_EQ(DataKindName(DataKind::kIdx), "idx");
  EXPECT_EQ(DataKindName(DataKind::kNpy), "npy");
  EXPECT_EQ(DataKindName(DataKind::kTokens), "tokens");
  EXPECT_EQ(DataKindName(DataKind::kSynthetic), "synthetic");
  EXPECT_EQ(TokenTypeName(TokenType::kUint8), "uint8");
  EXPECT_EQ(TokenTypeName(TokenType::kUint16), "uint16");
  EXPECT_EQ(TokenTypeName(TokenType::kUint32), "uint32");
  EXPECT_EQ(LossKindName(LossKind::kCrossEntropy), "cross_entropy");
  EXPECT_EQ(LossKindName(LossKind::kMse), "mse");
  EXPECT_EQ(LossKindName(LossKind::kBceWithLogits), "bce_with_logits");
  EXPECT_EQ(PrecisionName(Precision::kFp32), "fp32");
  EXPECT_EQ(PrecisionName(Precision::kFp64), "fp64");
  EXPECT_EQ(RunningVarianceName(RunningVariance::kPopulation), "population");
  EXPECT_EQ(RunningVarianceName(RunningVariance::kUnbiased), "unbiased");
}

TEST(DocsTest, OneLinePerKey) {
  const std::string docs = StrategyDocsMarkdown();
  size_t lines = 0;
  for (const char c : docs) lines += c == '\n' ? 1 : 0;
  EXPECT_EQ(lines, AllSettings().size() + 2);
  EXPECT_NE(docs.find("| `train.optimizer.lr` | a number, at least 0 | required | launch |"),
            std::string::npos);
}

}  // namespace
}  // namespace hyper::strategy
