#include "frontend/strategy/launch_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace hyper::strategy {
namespace {

using testing::HasSubstr;

LaunchConfig Example() {
  LaunchConfig config;
  LaunchTrain& train = config.train.emplace();
  train.optimizer = {OptimizerKind::kAdamW, 3e-4, 0, 0.9, 0.95, 1e-8, 0.1};
  train.schedule = {ScheduleKind::kCosine, 10, 200, 0.1};
  train.micro_batches = 4;
  train.clip_norm = 1;
  train.seed = 9007199254740992;
  DataConfig& data = config.data.emplace();
  data.kind = DataKind::kIdx;
  data.path = "/data";
  data.inputs["x.0"] = {"x.gz", "", 0.1, std::nullopt, 2.0, std::nullopt, std::nullopt};
  data.inputs["y"].file = "y.gz";
  data.eval.emplace().inputs["x.0"].file = "test.gz";
  data.prefetch = 2;
  config.run = {"out", 2000, 10, 0, 100, 3, ""};
  return config;
}

TEST(LaunchConfigTest, JsonRoundTrip) {
  std::vector<LaunchConfig> configs(3, Example());
  configs[1].train.reset();
  configs[1].data.reset();
  configs[1].run.steps.reset();
  configs[2].train->optimizer = {OptimizerKind::kNesterov, 0.1, 0.8, 0, 0, 0, 0.25};
  configs[2].train->micro_batches.reset();
  configs[2].train->global_batch = 256;
  configs[2].train->schedule = {ScheduleKind::kConstant, 3, std::nullopt, 0};
  configs[2].data->kind = DataKind::kTokens;
  configs[2].data->dtype = TokenType::kUint32;
  configs[2].data->inputs = {{"ids", {"", "tokens", {}, {}, {}, {}, {}}}};
  configs[2].data->eval.reset();
  for (const LaunchConfig& config : configs) {
    const std::string json = config.ToJson();
    const Result<LaunchConfig> again = LaunchConfig::FromJson(json);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, config) << json;
    EXPECT_EQ(again->ToJson(), json);
  }
}

TEST(LaunchConfigTest, DamagedJsonIsRefused) {
  const std::string good = Example().ToJson();
  for (const auto& [from, to, part] :
       {std::tuple{"\"lr\": 0.0003", "\"lr\": \"fast\"", "'train.optimizer.lr' is 'fast'"},
        std::tuple{"\"steps\"", "\"stepz\"", "unknown key 'stepz' in 'run'"},
        std::tuple{"\"seed\": 9007199254740992", "\"seed\": null", "'train.seed' has no value"},
        std::tuple{"\"adamw\"", "\"lion\"", "'train.optimizer.kind' is 'lion'"},
        std::tuple{"\"run\"", "\"mesh\"", "unknown key 'mesh'"}}) {
    std::string json = good;
    ASSERT_NE(json.find(from), std::string::npos) << from;
    json.replace(json.find(from), std::string(from).size(), to);
    const Result<LaunchConfig> config = LaunchConfig::FromJson(json);
    ASSERT_FALSE(config.ok()) << to;
    EXPECT_THAT(config.status().message(), HasSubstr(part));
  }
  EXPECT_FALSE(LaunchConfig::FromJson("").ok());
  EXPECT_FALSE(LaunchConfig::FromJson("[]").ok());
  EXPECT_FALSE(LaunchConfig::FromJson("null").ok());
  for (size_t cut = 0; cut + 2 < good.size(); cut += 7) {
    EXPECT_FALSE(LaunchConfig::FromJson(good.substr(0, cut)).ok()) << cut;
  }
  EXPECT_FALSE(LaunchConfig::FromJson(std::string(100000, '[')).ok());
}

TEST(ApplySetTest, EveryKindOfValue) {
  LaunchConfig config = Example();
  const auto set = [&config](const char* key, const char* value) {
    const Status status = config.ApplySet(key, value);
    EXPECT_TRUE(status.ok()) << key << ": " << status.message();
  };
  set("run.steps", "7");
  set("run.log_every", "1");
  set("run.dir", "/out/a b=c");
  set("run.checkpoint.every", "5");
  set("train.optimizer.lr", "1e-2");
  set("train.optimizer.betas", "[0.8, 0.9]");
  set("train.schedule.kind", "linear");
  set("train.schedule.min_ratio", "25%");
  set("train.clip_norm", "0");
  set("train.seed", "42");
  set("data.shuffle", "false");
  set("data.inputs.x.0.scale", "3");
  set("data.inputs.y", "other.gz");
  set("data.inputs.x.0", "z.gz");
  set("data.eval.path", "/held");
  EXPECT_EQ(config.run.steps, 7);
  EXPECT_EQ(config.run.log_every, 1);
  EXPECT_EQ(config.run.dir, "/out/a b=c");
  EXPECT_EQ(config.run.checkpoint_every, 5);
  EXPECT_EQ(config.train->optimizer.lr, 1e-2);
  EXPECT_EQ(config.train->optimizer.beta1, 0.8);
  EXPECT_EQ(config.train->optimizer.beta2, 0.9);
  EXPECT_EQ(config.train->schedule.kind, ScheduleKind::kLinear);
  EXPECT_EQ(config.train->schedule.min_ratio, 0.25);
  EXPECT_EQ(config.train->clip_norm, 0);
  EXPECT_EQ(config.train->seed, 42);
  EXPECT_FALSE(config.data->shuffle);
  EXPECT_EQ(config.data->inputs.at("x.0").scale, 3);
  EXPECT_EQ(config.data->inputs.at("x.0").file, "z.gz");
  EXPECT_EQ(config.data->inputs.at("x.0").std, 2);
  EXPECT_EQ(config.data->inputs.at("y").file, "other.gz");
  EXPECT_EQ(config.data->eval->path, "/held");
  set("train.optimizer.betas", "0.7,0.6");
  EXPECT_EQ(config.train->optimizer.beta2, 0.6);
}

TEST(ApplySetTest, OneBatchKeyReplacesTheOther) {
  LaunchConfig config = Example();
  ASSERT_TRUE(config.ApplySet("train.global_batch", "64").ok());
  EXPECT_EQ(config.train->global_batch, 64);
  EXPECT_FALSE(config.train->micro_batches.has_value());
  ASSERT_TRUE(config.ApplySet("train.micro_batches", "2").ok());
  EXPECT_EQ(config.train->micro_batches, 2);
  EXPECT_FALSE(config.train->global_batch.has_value());
}

TEST(ApplySetTest, RefusalsNameTheReasonAndChangeNothing) {
  for (const auto& [key, value, part] :
       {std::tuple{"train.precision", "fp64", "compile-time key"},
        std::tuple{"train.optimizer.kind", "sgd", "compile-time key"},
        std::tuple{"model.dims.batch", "4", "compile-time key"},
        std::tuple{"mesh", "{}", "compile-time key"},
        std::tuple{"data_parallel.bucket", "1MiB", "compile-time key"},
        std::tuple{"run.stepz", "4", "did you mean 'run.steps'"},
        std::tuple{"lr", "4", "there is 'train.optimizer.lr'"},
        std::tuple{"qqqqqqqq", "4", "keys that a launch may set"},
        std::tuple{"run", "4", "group of keys"},
        std::tuple{"train.optimizer", "4", "group of keys"},
        std::tuple{"run.steps", "many", "'run.steps' is 'many'; expected an integer"},
        std::tuple{"run.steps", "1_000", "write 1000"},
        std::tuple{"run.steps", "", "expected an integer"},
        std::tuple{"run.dir", "", "empty text"},
        std::tuple{"run.log_every", "0", "out of range"},
        std::tuple{"data.shuffle", "no", "write false"},
        std::tuple{"train.optimizer.momentum", "0.9", "does not apply to kind adamw"},
        std::tuple{"train.optimizer.betas", "0.9", "two numbers"},
        std::tuple{"train.optimizer.betas", "[0.9, 2]", "out of range"},
        std::tuple{"train.schedule.warmup", "201", "at most 200"},
        std::tuple{"data.inputs.y.low", "1", "does not apply to data of kind idx"},
        std::tuple{"data.inputs.y", " {file: other.npy}", "'data.inputs.y.file=...'"},
        std::tuple{"data.path", "\xff", "UTF-8"}}) {
    LaunchConfig config = Example();
    const Status status = config.ApplySet(key, value);
    EXPECT_FALSE(status.ok()) << key;
    EXPECT_THAT(status.message(), HasSubstr(part)) << key << "=" << value;
    EXPECT_EQ(config, Example()) << key;
  }
  LaunchConfig forward = Example();
  forward.train.reset();
  EXPECT_THAT(forward.ApplySet("train.seed", "1").message(), HasSubstr("without a 'train' block"));
}

TEST(ApplyOverridesTest, AllOrNoneWithEveryError) {
  LaunchConfig config = Example();
  const std::vector<std::string> bad = {
      "run.steps=5",           "run.steps=6",         "nonsense", "=1", "run.keep=1",
      "train.micro_batches=1", "train.global_batch=8"};
  const Status status = config.ApplyOverrides(bad);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("'run.steps' is set twice"));
  EXPECT_THAT(status.message(), HasSubstr("'nonsense' is not KEY=VALUE"));
  EXPECT_THAT(status.message(), HasSubstr("'=1' is not KEY=VALUE"));
  EXPECT_THAT(status.message(), HasSubstr("there is 'run.checkpoint.keep'"));
  EXPECT_THAT(status.message(), HasSubstr("are both set"));
  EXPECT_EQ(config, Example());
  // Neither would hold alone: they are judged together.
  const std::vector<std::string> good = {"train.schedule.warmup=500", "train.schedule.total=900"};
  EXPECT_TRUE(config.ApplyOverrides(good).ok());
  EXPECT_EQ(config.train->schedule.warmup, 500);
}

}  // namespace
}  // namespace hyper::strategy
