// Each bad strategy with the position and the words of every error it must give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "frontend/strategy/strategy.h"

namespace hyper::strategy {
namespace {

using testing::HasSubstr;

struct Expected {
  int line;
  int column;
  std::vector<std::string> parts;  // of message or help
};

struct Case {
  std::string name;
  std::string text;
  std::vector<Expected> errors;
};

// `lines` below a valid train block with the optimizer on line 4.
std::string Train(const std::string& optimizer, const std::string& lines = "") {
  return "version: 1\ntrain:\n  loss: {output: l}\n  optimizer: " + optimizer + "\n" + lines;
}
const std::string kSgd = "{kind: sgd, lr: 0.1}";

std::vector<Case> Cases() {
  const std::string head = "version: 1\n";
  return {
      {"unknown_top", head + "modle: {}\n", {{2, 1, {"unknown key 'modle'", "'model'"}}}},
      {"unknown_nested",
       Train("{kind: sgd, lr: 0.1, lrr: 1}"),
       {{4, 35, {"unknown key 'lrr' in 'train.optimizer'", "did you mean 'lr'?"}}}},
      {"unknown_elsewhere",
       Train(kSgd, "  warmup: 3\n"),
       {{5, 3, {"unknown key 'warmup' in 'train'", "there is 'train.schedule.warmup'"}}}},
      {"unknown_nothing_near",
       head + "run: {zzzzzz: 1}\n",
       {{2, 7, {"unknown key 'zzzzzz' in 'run'", "known keys here: dir, steps, log_every"}}}},
      {"duplicate",
       Train("{kind: sgd, lr: 0.1}", "  seed: 1\n  clip_norm: 1\n  seed: 2\n"),
       {{7, 3, {"'train.seed' is given twice", "line 5", "line 7"}}}},
      {"duplicate_name",
       head + "model:\n  dims:\n    n: 1\n    n: 2\n",
       {{5, 5, {"'model.dims.n' is given twice", "line 4", "line 5"}}}},
      {"duplicate_section",
       head + "run: {steps: 1}\nrun: {steps: 2}\n",
       {{3, 1, {"'run' is given twice", "line 2", "line 3"}}}},
      {"missing_version", "run: {steps: 1}\n", {{1, 1, {"'version' is missing"}}}},
      {"other_version", "version: 2\n", {{1, 10, {"'version' is '2'", "integer: 1"}}}},
      {"missing_in_train",
       head + "train:\n  seed: 1\n",
       {{2, 1, {"'train.loss' is missing"}}, {2, 1, {"'train.optimizer' is missing"}}}},
      // The key that was meant is not reported as missing too.
      {"misspelled_required",
       Train("{kind: adam, lrr: 0.1}"),
       {{4, 27, {"unknown key 'lrr'", "did you mean 'lr'?"}}}},
      {"misspelled_kind",
       Train("{knid: sgd, lr: 0.1}"),
       {{4, 15, {"unknown key 'knid'", "did you mean 'kind'?"}}}},
      {"misspelled_section",
       head + "train:\n  los: {output: l}\n  optimizer: " + kSgd + "\n",
       {{3, 3, {"unknown key 'los'", "did you mean 'loss'?"}}}},
      {"missing_lr", Train("{kind: adam}"), {{4, 3, {"'train.optimizer.lr' is missing"}}}},
      {"list_for_number",
       Train("{kind: sgd, lr: [1]}"),
       {{4, 30, {"'train.optimizer.lr' is a list", "a number, at least 0"}}}},
      {"scalar_for_map", head + "train: 3\n", {{2, 8, {"'train' is a single value", "a map"}}}},
      {"list_for_map", head + "run: [1]\n", {{2, 6, {"'run' is a list"}}}},
      {"empty_value", head + "run:\n  steps:\n", {{3, 3, {"'run.steps' has no value"}}}},
      {"quoted_number",
       Train("{kind: sgd, lr: \"1e-4\"}"),
       {{4, 30, {"text because of its quotes", "write 1e-4 without quotes"}}}},
      {"quoted_int",
       head + "run: {steps: '7'}\n",
       {{2, 14, {"text because of its quotes", "write 7 without quotes"}}}},
      {"quoted_bool",
       head + "data_parallel: {overlap: \"true\"}\n",
       {{2, 26, {"text because of its quotes", "write true without quotes"}}}},
      {"quoted_bytes",
       head + "data_parallel: {bucket: \"4096\"}\n",
       {{2, 25, {"text because of its quotes"}}}},
      {"leading_zero",
       head + "run: {steps: 010}\n",
       {{2, 14, {"'010'", "write 10 (no leading zeros)"}}}},
      {"underscore", head + "run: {steps: 1_000}\n", {{2, 14, {"'1_000'", "write 1000"}}}},
      {"exponent_int", head + "run: {steps: 1e3}\n", {{2, 14, {"'1e3'", "write 1000"}}}},
      {"point_int", head + "run: {steps: 5.0}\n", {{2, 14, {"'5.0'", "write 5"}}}},
      {"fraction_int", head + "run: {steps: 5.5}\n", {{2, 14, {"'5.5'", "an integer"}}}},
      {"hex", head + "run: {steps: 0x10}\n", {{2, 14, {"'0x10'", "an integer"}}}},
      {"huge_int", head + "run: {steps: 99999999999999999999}\n", {{2, 14, {"out of range"}}}},
      {"negative", head + "run: {steps: -1}\n", {{2, 14, {"'-1', out of range", "at least 0"}}}},
      {"bare_point", Train("{kind: sgd, lr: .5}"), {{4, 30, {"'.5'", "write 0.5"}}}},
      {"infinite", Train("{kind: sgd, lr: .inf}"), {{4, 30, {"'.inf'", "finite"}}}},
      {"not_a_number", Train("{kind: sgd, lr: nan}"), {{4, 30, {"'nan'", "finite"}}}},
      {"overflow", Train("{kind: sgd, lr: 1e999}"), {{4, 30, {"'1e999', out of range"}}}},
      {"range_open_end",
       Train("{kind: momentum, lr: 1, momentum: 1}"),
       {{4, 48, {"out of range", "from 0 to 1, upper end excluded"}}}},
      {"range_in_pair",
       Train("{kind: adam, lr: 1, betas: [0.9, 1.5]}"),
       {{4, 47, {"'train.optimizer.betas[1]' is '1.5', out of range"}}}},
      {"pair_of_three",
       Train("{kind: adam, lr: 1, betas: [0.9, 0.9, 0.9]}"),
       {{4, 41, {"has 3 values", "two numbers"}}}},
      {"scalar_for_pair",
       Train("{kind: adam, lr: 1, betas: 0.9}"),
       {{4, 41, {"'train.optimizer.betas' is a single value", "two numbers"}}}},
      {"yes", head + "data_parallel: {overlap: yes}\n", {{2, 26, {"'yes'", "write true"}}}},
      {"off", head + "data_parallel: {overlap: off}\n", {{2, 26, {"'off'", "write false"}}}},
      {"upper_true", head + "data_parallel: {overlap: True}\n", {{2, 26, {"write true"}}}},
      {"bad_enum",
       Train("{kind: adamm, lr: 1}"),
       {{4, 21, {"'adamm'", "sgd, momentum, nesterov, adam, adamw", "did you mean 'adam'"}}}},
      {"bad_unit",
       head + "data_parallel: {bucket: 25Mib}\n",
       {{2, 25, {"'25Mib'", "units are B, KiB"}}}},
      {"bad_size", head + "data_parallel: {bucket: 1_024KiB}\n", {{2, 25, {"write 1024KiB"}}}},
      {"zero_size", head + "data_parallel: {bucket: 0}\n", {{2, 25, {"out of range"}}}},
      {"percent_of_lr", Train("{kind: sgd, lr: 5%}"), {{4, 30, {"'5%'", "a number"}}}},
      {"later_precision",
       Train(kSgd, "  precision: bf16\n"),
       {{5, 14, {"'bf16', which is not available in this version", "one of fp32, fp64"}}}},
      {"later_zero",
       head + "data_parallel: {zero: 1}\n",
       {{2, 23, {"'1', which is not available in this version", "only 0 works"}}}},
      {"zero_beyond", head + "data_parallel: {zero: 4}\n", {{2, 23, {"'4'"}}}},
      {"reserved",
       head + "mesh: {tp: 2}\nshard:\n- {match: x}\npipeline: {axis: pp}\nmodules: {a: {}}\n"
              "memory: {tiers: []}\n",
       {{2, 1, {"'mesh' is not available in this version", "'none'"}},
        {3, 1, {"'shard' is not available"}},
        {5, 1, {"'pipeline' is not available"}},
        {6, 1, {"'modules' is not available"}},
        {7, 1, {"'memory' is not available"}}}},
      {"tie_no_lists",
       head + "model:\n  tie: [a, b]\n",
       {{3,
         9,
         {"'model.tie[0]' is a single value", "write one list per group: [[a, b], [c, d]]"}}}},
      {"tie_map", head + "model:\n  tie: {a: b}\n", {{3, 8, {"'model.tie' is a map"}}}},
      {"tie_empty", head + "model:\n  tie: []\n", {{3, 8, {"'model.tie' is an empty list"}}}},
      {"tie_null",
       head + "model:\n  tie:\n",
       {{3, 3, {"'model.tie' has no value", "list of lists"}}}},
      {"tie_alone",
       head + "model:\n  tie: [[a]]\n",
       {{3, 9, {"'model.tie[0]' is a list of 1; expected a list of lists of two or more names"}}}},
      {"tie_twice",
       head + "model:\n  tie: [[a, b], [c, a]]\n",
       {{3, 21, {"'model.tie[1][1]' is 'a', which 'model.tie[0][0]' names already"}}}},
      {"tie_text",
       head + "model:\n  tie: [[a, \"\"], [[b], c]]\n",
       {{3, 13, {"'model.tie[0][1]' is empty text"}}}},
      {"bind_ragged",
       head + "model:\n  bind:\n    a: [[1, 2], [3]]\n    b: [1, [2]]\n    c: [[1], 2]\n",
       {{4, 17, {"'model.bind.a[1]' is a list of 1, the one before it of 2"}},
        {5, 12, {"'model.bind.b[1]' is a list beside single values"}},
        {6, 14, {"'model.bind.c[1]' is a single value beside lists"}}}},
      {"bind_other_values",
       head + "model:\n  bind:\n    a: two\n    b: [1, true]\n    c: {d: 1}\n    e: \"3\"\n    f:\n"
              "    g: [01]\n    h: 99999999999999999999\n",
       {{4, 8, {"'model.bind.a' is 'two'", "nested lists of them, or a .npy file"}},
        {5, 12, {"'model.bind.b[1]' is a truth value, others are numbers"}},
        {6, 8, {"'model.bind.c' is a map"}},
        {7, 8, {"'model.bind.e' is text because of its quotes", "write 3 without quotes"}},
        {8, 5, {"'model.bind.f' has no value"}},
        {9, 9, {"'model.bind.g[0]' is '01'", "write 1 (no leading zeros)"}},
        {10, 8, {"out of range"}}}},
      {"not_for_this_optimizer",
       Train("{kind: adam, lr: 1, momentum: 0.9}"),
       {{4,
         34,
         {"'train.optimizer.momentum' does not apply to kind adam",
          "adam takes lr, betas, eps, weight_decay"}}}},
      {"not_for_constant",
       Train(kSgd, "  schedule: {total: 5}\n"),
       {{5, 14, {"'train.schedule.total' does not apply to kind constant"}}}},
      {"both_batches",
       Train(kSgd, "  micro_batches: 2\n  global_batch: 8\n"),
       {{6, 17, {"'train.micro_batches' and 'train.global_batch' are both given"}}}},
      {"warmup_beyond_total",
       Train(kSgd, "  schedule: {kind: linear, warmup: 9, total: 5}\n"),
       {{5, 36, {"'train.schedule.warmup' is 9", "at most 5"}}}},
      {"loss_without_kind",
       head + "train:\n  loss: {logits: a}\n  optimizer: " + kSgd + "\n",
       {{3, 3, {"neither 'kind' nor 'output'", "cross_entropy, mse, bce_with_logits"}}}},
      {"loss_with_both",
       head + "train:\n  loss: {kind: mse, prediction: p, target: t, output: o}\n  optimizer: " +
           kSgd + "\n",
       {{3, 47, {"'train.loss.output' does not apply to kind mse"}}}},
      {"loss_output_with_more",
       head + "train:\n  loss: {output: o, labels: y}\n  optimizer: " + kSgd + "\n",
       {{3, 29, {"'train.loss.labels' does not apply"}}}},
      {"loss_missing_tensor",
       head + "train:\n  loss:\n  - {kind: mse, prediction: p}\n  optimizer: " + kSgd + "\n",
       {{4, 5, {"'train.loss[0].target' is missing"}}}},
      {"loss_wrong_tensor",
       head + "train:\n  loss: {kind: mse, prediction: p, target: t, logits: z}\n  optimizer: " +
           kSgd + "\n",
       {{3,
         47,
         {"'train.loss.logits' does not apply to kind mse",
          "mse takes prediction, target, weight"}}}},
      {"loss_empty_list",
       head + "train:\n  loss: []\n  optimizer: " + kSgd + "\n",
       {{3, 9, {"'train.loss' is an empty list"}}}},
      {"loss_weight_zero",
       head + "train:\n  loss: {output: o, weight: 0}\n  optimizer: " + kSgd + "\n",
       {{3, 29, {"out of range", "above 0"}}}},
      {"bad_dim",
       head + "model: {dims: {n: 0}}\n",
       {{2, 19, {"'model.dims.n' is '0', out of range", "at least 1"}}}},
      {"dims_no_map", head + "model: {dims: 4}\n", {{2, 15, {"a map of names"}}}},
      {"pattern_no_text",
       head + "model: {parameters: {freeze: [{a: 1}]}}\n",
       {{2, 31, {"'model.parameters.freeze[0]' is a map"}}}},
      {"key_no_name", head + "run: {[a]: 1}\n", {{2, 7, {"must be a name, not a list"}}}},
      {"merge_key",
       head + "x-a: &a {steps: 1}\nrun: {<<: *a}\n",
       {{3, 7, {"merge keys ('<<') are not supported"}}}},
      {"data_no_inputs",
       head + "data: {kind: npy, inputs: {}}\n",
       {{2, 19, {"'data.inputs' names no input"}}}},
      {"data_no_file",
       head + "data: {kind: npy, inputs: {x: {scale: 2}}}\n",
       {{2, 28, {"'data.inputs.x.file' is missing"}}}},
      {"data_tokens_no_path",
       head + "data: {kind: tokens, inputs: {x: tokens}}\n",
       {{2, 1, {"'data.path' is missing"}}}},
      {"data_bad_field",
       head + "data: {kind: tokens, path: a, inputs: {x: nxt_tokens}}\n",
       {{2, 43, {"'nxt_tokens'", "tokens, next_tokens", "did you mean 'next_tokens'"}}}},
      {"data_scale_of_tokens",
       head + "data: {kind: tokens, path: a, inputs: {x: {field: tokens, scale: 2}}}\n",
       {{2, 66, {"'data.inputs.x.scale' does not apply to data of kind tokens"}}}},
      {"data_dtype_of_idx",
       head + "data: {kind: idx, dtype: uint8, inputs: {x: f}}\n",
       {{2, 19, {"'data.dtype' does not apply to kind idx"}}}},
      {"data_std_zero",
       head + "data: {kind: idx, inputs: {x: {file: f, std: 0}}}\n",
       {{2, 46, {"out of range", "above 0"}}}},
      {"data_integers_no_high",
       head + "data: {kind: synthetic, inputs: {x: integers}}\n",
       {{2, 37, {"'data.inputs.x.high' is missing"}}}},
      {"data_low_above_high",
       head + "data: {kind: synthetic, inputs: {x: {field: uniform, low: 3, high: 2}}}\n",
       {{2, 34, {"low 3 and high 2", "low below high"}}}},
      {"data_eval_other_kind",
       head + "data: {kind: idx, inputs: {x: f}, eval: {kind: tokens, inputs: {x: tokens}}}\n",
       {{2, 35, {"'data.eval.path' is missing"}}}},
      {"eval_every_without_eval",
       head + "run: {eval_every: 5}\n",
       {{2, 19, {"'data.eval' names no held-out data"}}}},
      {"syntax", head + "run: {steps: 1\n", {{3, 1, {"YAML syntax", "end of map flow"}}}},
      {"syntax_tab",
       head + "run:\n\tsteps: 1\n",
       {{3, 7, {"YAML syntax", "indent with spaces, not tabs"}}}},
      {"tag", head + "run: {steps: !!int 3}\n", {{2, 14, {"tags", "int"}}}},
      {"unknown_alias", head + "run: *nothing\n", {{2, 6, {"YAML syntax", "anchor"}}}},
      {"two_documents", head + "---\nversion: 1\n", {{2, 1, {"second document"}}}},
      {"not_a_map", "- 1\n- 2\n", {{1, 1, {"a strategy is a map of keys"}}}},
      {"empty", "# nothing\n", {{0, 0, {"the strategy is empty", "version: 1"}}}},
      {"many_at_once",
       "version: 1\n"
       "model: {dims: {n: none}}\n"
       "train:\n"
       "  loss: {kind: mse, prediction: p}\n"
       "  optimizer: {kind: sgd, lr: fast}\n"
       "  micro_batches: 1\n"
       "  global_batch: 0\n"
       "rum: {steps: 1}\n",
       {{2, 19, {"'model.dims.n'"}},
        {4, 3, {"'train.loss.target' is missing"}},
        {5, 30, {"'fast'"}},
        {7, 17, {"'train.global_batch' is '0'"}},
        {8, 1, {"unknown key 'rum'", "'run'"}},
        {7, 17, {"both given"}}}},
  };
}

// Keeps parameter dumps out of failure messages.
void PrintTo(const Case& bad, std::ostream* out) { *out << bad.name; }

class ErrorTest : public testing::TestWithParam<Case> {};

TEST_P(ErrorTest, PositionAndWords) {
  const Case& bad = GetParam();
  Diagnostics diagnostics;
  const Result<Strategy> strategy = ParseStrategy(bad.text, "bad.yaml", &diagnostics);
  ASSERT_FALSE(strategy.ok());
  EXPECT_EQ(strategy.status().code(), StatusCode::kInvalidArgument);
  const std::string rendered = strategy.status().message();
  ASSERT_EQ(diagnostics.items().size(), bad.errors.size()) << rendered;
  for (size_t i = 0; i < bad.errors.size(); ++i) {
    const Diagnostic& item = diagnostics.items()[i];
    EXPECT_EQ(item.location.file, "bad.yaml");
    EXPECT_EQ(item.location.line, bad.errors[i].line) << rendered;
    EXPECT_EQ(item.location.column, bad.errors[i].column) << rendered;
    for (const std::string& part : bad.errors[i].parts) {
      EXPECT_THAT(item.message + "\n" + item.help, HasSubstr(part));
    }
    if (item.location.line > 0) {
      EXPECT_THAT(rendered, HasSubstr(fmt::format("bad.yaml:{}:{}: error: ", item.location.line,
                                                  item.location.column)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategy, ErrorTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Draft, KeepsWhatWasAcceptedAndKnowsWhatWasNot) {
  Diagnostics found;
  const StrategyDraft draft = DraftStrategy(
      "version: 1\nmodel:\n  dims: {batch: many, seq: 3}\n  parameters: {train: [1, a*]}\n"
      "train:\n  loss:\n    - {kind: mse, prediction: y, traget: t}\n"
      "    - {kind: cross, logits: l, labels: k}\n  optimizer: {kind: sgd, lr: x}\n"
      "data:\n  kind: npy\n  inputs: {x: x.npy, t: [1]}\n",
      "d.yaml", &found);
  EXPECT_TRUE(draft.has_keys);
  EXPECT_GE(found.error_count(), 5) << found.Render();
  const Strategy& s = draft.strategy;
  EXPECT_EQ(s.model.dims, (std::map<std::string, int64_t>{{"batch", 1}, {"seq", 3}}));
  ASSERT_FALSE(s.model.parameters.empty());
  EXPECT_EQ(s.model.parameters.back().pattern, "a*");
  ASSERT_TRUE(s.train.has_value());
  ASSERT_EQ(s.train->loss.size(), 2u);
  EXPECT_EQ(s.train->loss[0].prediction, "y");
  EXPECT_EQ(s.train->loss[0].target, "");
  EXPECT_EQ(s.train->loss[1].logits, "l");
  EXPECT_TRUE(s.launch.data->inputs.contains("t"));
  EXPECT_TRUE(draft.IsCertain("model.dims"));
  EXPECT_TRUE(draft.IsCertain("model.dims.seq"));
  EXPECT_FALSE(draft.IsCertain("model.dims.batch"));
  EXPECT_FALSE(draft.IsCertainBelow("model.dims"));
  EXPECT_FALSE(draft.IsCertain("train.loss[0].target"));
  EXPECT_FALSE(draft.IsCertainBelow("train.loss"));
  EXPECT_TRUE(draft.IsCertainBelow("train.precision"));
  EXPECT_TRUE(draft.IsCertain("data.eval.inputs"));

  Diagnostics none;
  const StrategyDraft text = DraftStrategy("just text", "d.yaml", &none);
  EXPECT_FALSE(text.has_keys);
  EXPECT_TRUE(none.has_errors());
  EXPECT_EQ(text.strategy.source, "just text");
  Diagnostics typo;
  const StrategyDraft unknown = DraftStrategy("version: 1\nmodle: {dims: {}}\n", "d", &typo);
  EXPECT_FALSE(unknown.IsCertain("model.dims"));
  EXPECT_EQ(typo.error_count(), 1);
}

TEST(RenderTest, QuotesTheLineWithACaret) {
  const Result<Strategy> strategy =
      ParseStrategy("version: 1\nrun: {step: 10}\n", "a.yaml", nullptr);
  ASSERT_FALSE(strategy.ok());
  EXPECT_EQ(strategy.status().message(),
            "a.yaml:2:7: error: unknown key 'step' in 'run'\n"
            "  run: {step: 10}\n"
            "        ^\n"
            "  help: did you mean 'steps'?\n");
}

}  // namespace
}  // namespace hyper::strategy
