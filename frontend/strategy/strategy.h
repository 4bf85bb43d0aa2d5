// The typed strategy: what a user's YAML says, checked, with the position of every value.
// Thread safety: values; const access from several threads is safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostics.h"
#include "base/status.h"
#include "frontend/strategy/launch_config.h"

namespace hyper::strategy {

// Enumerators are in the order of the `choices` of their row in settings.cc.
enum class LossKind { kCrossEntropy, kMse, kBceWithLogits };
enum class Precision { kFp32, kFp64 };
enum class RunningVariance { kPopulation, kUnbiased };

std::string LossKindName(LossKind kind);
std::string PrecisionName(Precision precision);
std::string RunningVarianceName(RunningVariance variance);

// One pattern of model.parameters, for messages about it use LocationOf(path).
struct ParameterRule {
  bool train = true;    // false: freeze
  std::string pattern;  // glob on the parameter's name
  std::string path;     // "model.parameters.freeze[0]"
  bool operator==(const ParameterRule&) const = default;
};

// A value of model.bind.
struct BoundValue {
  std::string file;               // of a .npy file, relative to the strategy's folder; or:
  std::vector<int64_t> dims;      // of the nested lists; none for a single value
  bool truth_values = false;      // `integers` are true (1) and false (0)
  std::vector<int64_t> integers;  // row-major
  std::vector<double> numbers;    // instead, when one of them is written as no integer
  bool operator==(const BoundValue&) const = default;
};

// One group of model.tie.
struct TieGroup {
  std::vector<std::string> names;  // two or more; the first keeps its name
  std::string path;                // "model.tie[0]"; a name's place is path + "[1]"
  bool operator==(const TieGroup&) const = default;
};

struct ModelConfig {
  std::map<std::string, int64_t> dims;
  std::map<std::string, BoundValue> bind;  // by input
  std::vector<ParameterRule> parameters;   // in file order; the last match wins
  std::vector<TieGroup> tie;               // no name occurs twice
  bool operator==(const ModelConfig&) const = default;

  // Without a match a parameter is trained exactly when no rule says what to train.
  bool IsTrained(std::string_view parameter) const;
};

// One term of the loss: a kind with its tensors, or `output`, a scalar output of the model.
struct LossTerm {
  std::optional<LossKind> kind;         // empty: `output`
  std::string logits;                   // cross_entropy, bce_with_logits
  std::string labels;                   // cross_entropy, bce_with_logits
  std::optional<int64_t> ignore_index;  // cross_entropy
  std::optional<int64_t> class_axis;    // cross_entropy; below zero from the end; empty: by shapes
  std::string prediction;               // mse
  std::string target;                   // mse
  std::string output;
  double weight = 1;
  std::string path;  // "train.loss" or "train.loss[2]": prefix for LocationOf
  bool operator==(const LossTerm&) const = default;
};

struct TrainConfig {
  std::vector<LossTerm> loss;  // at least one
  Precision precision = Precision::kFp32;
  RunningVariance running_variance = RunningVariance::kPopulation;
  bool operator==(const TrainConfig&) const = default;
};

struct DataParallelConfig {
  int64_t zero = 0;
  int64_t bucket_bytes = 0;
  bool overlap = true;
  int64_t min_replicas = 1;
  bool operator==(const DataParallelConfig&) const = default;
};

struct Strategy {
  int64_t version = 1;
  ModelConfig model;
  std::optional<TrainConfig> train;  // has a value exactly when launch.train has one
  DataParallelConfig data_parallel;
  LaunchConfig launch;  // optimizer, schedule, batch counts, data, run

  std::string file;    // name given to ParseStrategy
  std::string source;  // its text, for Diagnostics::Render
  std::map<std::string, SourceLocation> locations;

  // Where the value of a key stands ("train.loss.logits", "model.dims.batch"); for a value that
  // came from a default, its nearest section; at least the file.
  SourceLocation LocationOf(std::string_view path) const;
  // Compares what is asked for, not where it was written.
  bool operator==(const Strategy& other) const;
};

// Parses and checks. Every error goes to `diagnostics` (may be null); the status then carries
// the rendering of all of them with quoted lines.
Result<Strategy> ParseStrategy(std::string_view text, std::string file_name,
                               Diagnostics* diagnostics);

// What stands in a strategy that may have errors: entries that were refused are left out (an extent
// of model.dims is 1 then), so that the others can still be held against a model.
struct StrategyDraft {
  Strategy strategy;              // `file` and `source` are set in any case
  bool has_keys = false;          // false: the text is no map of keys
  std::set<std::string> refused;  // values without an accepted form, missing ones included
  std::set<std::string> unknown;  // sections ("" is the whole) with a key that is not known

  // Whether what `strategy` has at `path` is what the file says: no value there or around it was
  // refused, and no unknown key may have been meant for it or a section around it.
  bool IsCertain(std::string_view path) const;
  // The same of everything below `path` too.
  bool IsCertainBelow(std::string_view path) const;
};

// Never fails: every error goes to `diagnostics`. Without any the draft is the whole strategy.
StrategyDraft DraftStrategy(std::string_view text, std::string file_name, Diagnostics* diagnostics);

// "KEY=VALUE" of --set, launch keys only; all or none (see LaunchConfig::ApplyOverrides).
Status ApplyOverrides(std::span<const std::string> assignments, Strategy* strategy);

// Canonical YAML with every default written out; parses back to an equal strategy.
std::string PrintStrategy(const Strategy& strategy);

}  // namespace hyper::strategy
