#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "base/file.h"
#include "frontend/strategy/strategy.h"

namespace hyper::strategy {
namespace {

Strategy Parse(std::string_view text) {
  Result<Strategy> strategy = ParseStrategy(text, "s.yaml", nullptr);
  EXPECT_TRUE(strategy.ok()) << strategy.status().message();
  return strategy.ok() ? *strategy : Strategy{};
}

constexpr std::string_view kFull = R"(# every block once
version: 1
x-note: {free: [form, 1]}
model:
  dims: {batch: 16, seq: 256}
  parameters: {train: ["*"], freeze: ["*embed*", "head.?"]}
train:
  x-why: first try
  loss: {kind: cross_entropy, logits: logits, labels: labels, ignore_index: -100}
  optimizer: {kind: adamw, lr: 3e-4, betas: [0.9, 0.95], weight_decay: 0.1}
  schedule: {kind: cosine, warmup: 100, total: 2000, min_ratio: 10%}
  precision: fp64
  micro_batches: 4
  clip_norm: 1.0
  seed: 1234
  batchnorm: {running_variance: unbiased}
data_parallel: {zero: 0, bucket: 4MiB, overlap: false, min_replicas: 2}
mesh: {}
memory: none
data:
  kind: tokens
  path: train.bin
  dtype: uint8
  inputs: {input_ids: tokens, labels: next_tokens}
  eval: {path: held_out.bin}
  shuffle: false
  prefetch: 3
run:
  dir: out
  steps: 2000
  log_every: 20
  eval_every: 500
  checkpoint: {every: 200, keep: 2, dir: ckpt}
)";

TEST(ParseStrategyTest, TieGroups) {
  const Strategy s = Parse(
      "version: 1\nmodel:\n  tie: [[e.weight, onnx::MatMul_163],\n    [a, \"b\\\"\\n c\", d]]\n");
  ASSERT_EQ(s.model.tie.size(), 2u);
  EXPECT_EQ(s.model.tie[0], (TieGroup{{"e.weight", "onnx::MatMul_163"}, "model.tie[0]"}));
  EXPECT_EQ(s.model.tie[1].names, (std::vector<std::string>{"a", "b\"\n c", "d"}));
  EXPECT_EQ(s.LocationOf("model.tie[0][1]").line, 3);
  EXPECT_EQ(s.LocationOf("model.tie[1][2]").line, 4);
  EXPECT_EQ(Parse(PrintStrategy(s)), s);
}

TEST(ParseStrategyTest, EveryBlock) {
  const Strategy s = Parse(kFull);
  EXPECT_EQ(s.version, 1);
  EXPECT_EQ(s.model.dims, (std::map<std::string, int64_t>{{"batch", 16}, {"seq", 256}}));
  ASSERT_EQ(s.model.parameters.size(), 3u);
  EXPECT_EQ(s.model.parameters[2], (ParameterRule{false, "head.?", "model.parameters.freeze[1]"}));
  ASSERT_TRUE(s.train.has_value());
  ASSERT_EQ(s.train->loss.size(), 1u);
  const LossTerm& loss = s.train->loss[0];
  EXPECT_EQ(loss.kind, LossKind::kCrossEntropy);
  EXPECT_EQ(loss.logits, "logits");
  EXPECT_EQ(loss.labels, "labels");
  EXPECT_EQ(loss.ignore_index, -100);
  EXPECT_EQ(loss.weight, 1.0);
  EXPECT_EQ(loss.path, "train.loss");
  EXPECT_EQ(s.train->precision, Precision::kFp64);
  EXPECT_EQ(s.train->running_variance, RunningVariance::kUnbiased);
  EXPECT_EQ(s.data_parallel, (DataParallelConfig{0, 4 << 20, false, 2}));
  ASSERT_TRUE(s.launch.train.has_value());
  const LaunchTrain& train = *s.launch.train;
  EXPECT_EQ(train.optimizer,
            (OptimizerConfig{OptimizerKind::kAdamW, 3e-4, 0, 0.9, 0.95, 1e-8, 0.1}));
  EXPECT_EQ(train.schedule, (ScheduleConfig{ScheduleKind::kCosine, 100, 2000, 0.1}));
  EXPECT_EQ(train.micro_batches, 4);
  EXPECT_FALSE(train.global_batch.has_value());
  EXPECT_EQ(train.clip_norm, 1.0);
  EXPECT_EQ(train.seed, 1234);
  ASSERT_TRUE(s.launch.data.has_value());
  EXPECT_EQ(s.launch.data->kind, DataKind::kTokens);
  EXPECT_EQ(s.launch.data->dtype, TokenType::kUint8);
  EXPECT_EQ(s.launch.data->inputs.at("labels").field, "next_tokens");
  EXPECT_FALSE(s.launch.data->shuffle);
  EXPECT_EQ(s.launch.data->prefetch, 3);
  const std::optional<DataSource> eval = EvalSource(*s.launch.data);
  ASSERT_TRUE(eval.has_value());
  EXPECT_EQ(eval->path, "held_out.bin");
  EXPECT_EQ(eval->dtype, TokenType::kUint8);
  EXPECT_EQ(eval->inputs.at("input_ids").field, "tokens");
  EXPECT_EQ(s.launch.run, (RunConfig{"out", 2000, 20, 500, 200, 2, "ckpt"}));
}

TEST(ParseStrategyTest, BoundInputs) {
  const Strategy s = Parse(R"(version: 1
model:
  bind:
    shape: [2, -3, 9223372036854775807]
    count: 7
    keep: true
    scales: [1, 0.5]
    rows:
    - [1, 2]
    - [3, 4]
    none: []
    empty_rows: [[], []]
    "odd name: x": [false]
    table: sub/table.npy
)");
  const auto& bind = s.model.bind;
  ASSERT_EQ(bind.size(), 9u);
  EXPECT_EQ(bind.at("shape").integers,
            (std::vector<int64_t>{2, -3, std::numeric_limits<int64_t>::max()}));
  EXPECT_EQ(bind.at("shape").dims, std::vector<int64_t>{3});
  EXPECT_EQ(bind.at("count"), (BoundValue{.integers = {7}}));
  EXPECT_EQ(bind.at("keep"), (BoundValue{.truth_values = true, .integers = {1}}));
  EXPECT_EQ(bind.at("scales"), (BoundValue{.dims = {2}, .numbers = {1, 0.5}}));
  EXPECT_EQ(bind.at("rows"), (BoundValue{.dims = {2, 2}, .integers = {1, 2, 3, 4}}));
  EXPECT_EQ(bind.at("none"), (BoundValue{.dims = {0}}));
  EXPECT_EQ(bind.at("empty_rows"), (BoundValue{.dims = {2, 0}}));
  EXPECT_EQ(bind.at("odd name: x"),
            (BoundValue{.dims = {1}, .truth_values = true, .integers = {0}}));
  EXPECT_EQ(bind.at("table"), (BoundValue{.file = "sub/table.npy"}));
  EXPECT_EQ(s.LocationOf("model.bind.scales").line, 7);
  EXPECT_EQ(Parse(PrintStrategy(s)), s);
}

TEST(ParseStrategyTest, DefaultsOfAForwardOnlyStrategy) {
  const Strategy s = Parse("version: 1\n");
  EXPECT_FALSE(s.train.has_value());
  EXPECT_FALSE(s.launch.train.has_value());
  EXPECT_FALSE(s.launch.data.has_value());
  EXPECT_TRUE(s.model.parameters.empty());
  EXPECT_EQ(s.data_parallel, (DataParallelConfig{0, 25 << 20, true, 1}));
  EXPECT_EQ(s.launch.run, (RunConfig{"run", std::nullopt, 10, 0, 0, 3, ""}));
}

TEST(ParseStrategyTest, DefaultsOfTraining) {
  const Strategy s = Parse(
      "version: 1\n"
      "train:\n"
      "  loss: {output: loss}\n"
      "  optimizer: {kind: adamw, lr: 1}\n");
  EXPECT_FALSE(s.train->loss[0].kind.has_value());
  EXPECT_EQ(s.train->loss[0].output, "loss");
  EXPECT_EQ(s.train->precision, Precision::kFp32);
  EXPECT_EQ(s.train->running_variance, RunningVariance::kPopulation);
  EXPECT_EQ(s.launch.train->optimizer,
            (OptimizerConfig{OptimizerKind::kAdamW, 1, 0, 0.9, 0.999, 1e-8, 0.01}));
  EXPECT_EQ(s.launch.train->schedule, ScheduleConfig{});
  EXPECT_EQ(s.launch.train->micro_batches, 1);
  EXPECT_EQ(s.launch.train->clip_norm, 0.0);
  EXPECT_EQ(s.launch.train->seed, 1);
}

TEST(ParseStrategyTest, WeightDecayDefaultDependsOnTheKind) {
  for (const auto& [kind, decay, momentum] :
       {std::tuple{"sgd", 0.0, 0.0}, std::tuple{"momentum", 0.0, 0.9},
        std::tuple{"nesterov", 0.0, 0.9}, std::tuple{"adam", 0.0, 0.0},
        std::tuple{"adamw", 0.01, 0.0}}) {
    const Strategy s = Parse(std::string("version: 1\ntrain:\n  loss: {output: l}\n"
                                         "  optimizer: {lr: 0.1, kind: ") +
                             kind + "}\n");
    EXPECT_EQ(OptimizerKindName(s.launch.train->optimizer.kind), kind);
    EXPECT_EQ(s.launch.train->optimizer.weight_decay, decay) << kind;
    EXPECT_EQ(s.launch.train->optimizer.momentum, momentum) << kind;
  }
}

TEST(ParseStrategyTest, LossList) {
  const Strategy s = Parse(
      "version: 1\n"
      "train:\n"
      "  loss:\n"
      "  - {kind: mse, prediction: p, target: t, weight: 0.5}\n"
      "  - {kind: bce_with_logits, logits: \"12\", labels: y}\n"
      "  - output: aux\n"
      "    weight: 2\n"
      "  optimizer: {kind: sgd, lr: 0.1}\n");
  ASSERT_EQ(s.train->loss.size(), 3u);
  EXPECT_EQ(s.train->loss[0].kind, LossKind::kMse);
  EXPECT_EQ(s.train->loss[0].prediction, "p");
  EXPECT_EQ(s.train->loss[0].target, "t");
  EXPECT_EQ(s.train->loss[0].weight, 0.5);
  EXPECT_EQ(s.train->loss[1].logits, "12");
  EXPECT_EQ(s.train->loss[2].output, "aux");
  EXPECT_EQ(s.train->loss[2].path, "train.loss[2]");
  EXPECT_EQ(s.LocationOf("train.loss[1].logits").line, 5);
  EXPECT_EQ(s.LocationOf("train.loss[1].logits").column, 37);
  EXPECT_EQ(Parse(PrintStrategy(s)), s);
}

TEST(ParseStrategyTest, PositionsOfValues) {
  const Strategy s = Parse(kFull);
  const auto expect = [&s](const char* path, int line, int column) {
    const SourceLocation at = s.LocationOf(path);
    EXPECT_EQ(at.file, "s.yaml");
    EXPECT_EQ(at.line, line) << path;
    EXPECT_EQ(at.column, column) << path;
  };
  expect("train.loss.logits", 9, 39);
  expect("model.dims.seq", 5, 26);
  expect("model.parameters.freeze[1]", 6, 50);
  expect("train", 7, 1);
  expect("train.optimizer", 10, 3);
  expect("train.optimizer.eps", 10, 3);  // a default: its section
  expect("nowhere", 0, 0);
}

TEST(ParseStrategyTest, TheLastMatchingPatternWins) {
  const auto trained = [](const char* rules, const char* name) {
    return Parse(std::string("version: 1\nmodel: {parameters: ") + rules + "}\n")
        .model.IsTrained(name);
  };
  EXPECT_TRUE(trained("{}", "w"));
  EXPECT_FALSE(trained("{freeze: [\"*.bias\"]}", "a.bias"));
  EXPECT_TRUE(trained("{freeze: [\"*.bias\"]}", "a.weight"));
  EXPECT_TRUE(trained("{train: [\"head.*\"]}", "head.w"));
  EXPECT_FALSE(trained("{train: [\"head.*\"]}", "body.w"));
  EXPECT_FALSE(trained("{train: [\"*\"], freeze: [\"*.w\"]}", "head.w"));
  EXPECT_TRUE(trained("{freeze: [\"*\"], train: [\"head.*\"]}", "head.w"));
  EXPECT_FALSE(trained("{freeze: \"*\"}", "head.w"));
}

TEST(ParseStrategyTest, EvalInheritsInputByInput) {
  const Strategy s = Parse(
      "version: 1\n"
      "data:\n"
      "  kind: idx\n"
      "  path: /data\n"
      "  inputs:\n"
      "    x: {file: train-x.gz, scale: 0.5, mean: 0.25, std: 2}\n"
      "    y.0: train-y.gz\n"
      "  eval: {inputs: {x: test-x.gz, y.0: {file: test-y.gz}}}\n");
  const DataSource train = TrainSource(*s.launch.data);
  EXPECT_EQ(train.inputs.at("x"), (InputSource{"train-x.gz", "", 0.5, 0.25, 2, 0, 1}));
  EXPECT_EQ(train.inputs.at("y.0"), (InputSource{"train-y.gz", "", 1, 0, 1, 0, 1}));
  const DataSource eval = *EvalSource(*s.launch.data);
  EXPECT_EQ(eval.kind, DataKind::kIdx);
  EXPECT_EQ(eval.path, "/data");
  EXPECT_EQ(eval.inputs.at("x"), (InputSource{"test-x.gz", "", 0.5, 0.25, 2, 0, 1}));
  EXPECT_EQ(eval.inputs.at("y.0").file, "test-y.gz");
  EXPECT_EQ(s.LocationOf("data.inputs.y.0").line, 7);
  EXPECT_EQ(Parse(PrintStrategy(s)), s);
}

TEST(ParseStrategyTest, SyntheticData) {
  const Strategy s = Parse(
      "version: 1\n"
      "data: {kind: synthetic, inputs: {x: normal, y: {field: integers, high: 10}, z: uniform}}\n");
  const DataSource source = TrainSource(*s.launch.data);
  EXPECT_EQ(source.inputs.at("x").field, "normal");
  EXPECT_EQ(source.inputs.at("y").high, 10);
  EXPECT_EQ(source.inputs.at("z").high, 1);
  EXPECT_FALSE(EvalSource(*s.launch.data).has_value());
}

TEST(ParseStrategyTest, NumbersSizesAndFractions) {
  for (const auto& [text, value] : {std::pair{"1e-4", 1e-4},
                                    {"1.0e-4", 1e-4},
                                    {"1E-4", 1e-4},
                                    {"0.0001", 1e-4},
                                    {"2", 2.0},
                                    {"+2.5", 2.5},
                                    {"1.", 1.0},
                                    {"1e+2", 100.0},
                                    {"0", 0.0}}) {
    const Strategy s = Parse(std::string("version: 1\ntrain:\n  loss: {output: l}\n"
                                         "  optimizer: {kind: sgd, lr: ") +
                             text + "}\n");
    EXPECT_EQ(s.launch.train->optimizer.lr, value) << text;
  }
  for (const auto& [text, bytes] : {std::pair<const char*, int64_t>{"25MiB", 26214400},
                                    {"4096", 4096},
                                    {"1.5 KiB", 1536},
                                    {"\"2kB\"", 2000},
                                    {"1GB", 1000000000}}) {
    const Strategy s = Parse(std::string("version: 1\ndata_parallel: {bucket: ") + text + "}\n");
    EXPECT_EQ(s.data_parallel.bucket_bytes, bytes) << text;
  }
  for (const auto& [text, ratio] : {std::pair{"5%", 0.05}, {"0.05", 0.05}, {"\"5%\"", 0.05}}) {
    const Strategy s = Parse(std::string("version: 1\ntrain:\n  loss: {output: l}\n"
                                         "  optimizer: {kind: sgd, lr: 1}\n"
                                         "  schedule: {kind: linear, min_ratio: ") +
                             text + "}\n");
    EXPECT_EQ(s.launch.train->schedule.min_ratio, ratio) << text;
  }
}

TEST(ParseStrategyTest, AliasesAndLineEndsAndByteOrderMark) {
  const Strategy s = Parse(
      "\xEF\xBB\xBFversion: 1\r\n"
      "x-loss: &loss {output: l}\r\n"
      "train:\r\n"
      "  loss: *loss\r\n"
      "  optimizer: {kind: sgd, lr: 1}\r\n");
  EXPECT_EQ(s.train->loss[0].output, "l");
}

TEST(PrintStrategyTest, ParsesBackEqualAndIsAFixedPoint) {
  for (const std::string& text :
       {std::string(kFull), std::string("version: 1\n"),
        std::string("version: 1\nmodel: {dims: {\"a: b\": 3, true: 4, \"\\u00e9\\n\": 5}, "
                    "parameters: {freeze: [\"*\"], train: [\"#x\", \"- y\"]}}\n"),
        std::string("version: 1\ntrain:\n  loss: [{output: \"null\"}]\n"
                    "  optimizer: {kind: nesterov, lr: 0.30000000000000004}\n"
                    "  global_batch: 64\n"),
        std::string("version: 1\ndata: {kind: npy, inputs: {x: x.npy}, eval: {path: e}}\n")}) {
    const Strategy first = Parse(text);
    const std::string printed = PrintStrategy(first);
    const Strategy second = Parse(printed);
    EXPECT_EQ(first, second) << printed;
    EXPECT_EQ(PrintStrategy(second), printed);
  }
}

TEST(PrintStrategyTest, EqualityNoticesEveryField) {
  const Strategy base = Parse(kFull);
  std::string text(kFull);
  // Each replacement changes one value of kFull; equality must see all of them.
  for (const auto& [from, to] : {std::pair{"batch: 16", "batch: 8"},
                                 {"*embed*", "*embd*"},
                                 {"ignore_index: -100", "ignore_index: -1"},
                                 {"3e-4", "4e-4"},
                                 {"0.95", "0.96"},
                                 {"warmup: 100", "warmup: 99"},
                                 {"fp64", "fp32"},
                                 {"micro_batches: 4", "global_batch: 4"},
                                 {"clip_norm: 1.0", "clip_norm: 0"},
                                 {"unbiased", "population"},
                                 {"4MiB", "5MiB"},
                                 {"held_out.bin", "other.bin"},
                                 {"prefetch: 3", "prefetch: 2"},
                                 {"keep: 2", "keep: 1"}}) {
    std::string changed = text;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, std::string(from).size(), to);
    const Strategy other = Parse(changed);
    EXPECT_FALSE(base == other) << to;
    EXPECT_NE(PrintStrategy(other), PrintStrategy(base)) << to;
  }
}

TEST(OverridesTest, ReachTheStrategy) {
  Strategy s = Parse(kFull);
  const std::vector<std::string> good = {"run.steps=5", "train.optimizer.lr=1e-2"};
  ASSERT_TRUE(ApplyOverrides(good, &s).ok());
  EXPECT_EQ(s.launch.run.steps, 5);
  EXPECT_EQ(s.launch.train->optimizer.lr, 1e-2);
  EXPECT_EQ(Parse(PrintStrategy(s)), s);
  const std::vector<std::string> bad = {"train.precision=fp32"};
  EXPECT_EQ(ApplyOverrides(bad, &s).code(), StatusCode::kInvalidArgument);
}

TEST(RecipesTest, EveryStrategyParsesAndRoundTrips) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(HYPER_SOURCE_DIR) + "/recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    const Result<std::string> text = RealFileSystem()->ReadAll(entry.path().string(), 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const Result<Strategy> strategy = ParseStrategy(*text, entry.path().string(), nullptr);
    ASSERT_TRUE(strategy.ok()) << strategy.status().message();
    EXPECT_EQ(Parse(PrintStrategy(*strategy)), *strategy) << entry.path();
    const Result<LaunchConfig> launch = LaunchConfig::FromJson(strategy->launch.ToJson());
    ASSERT_TRUE(launch.ok()) << launch.status().message();
    EXPECT_EQ(*launch, strategy->launch) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 2);
}

}  // namespace
}  // namespace hyper::strategy
