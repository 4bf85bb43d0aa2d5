// The part of a strategy that a launch may still change: optimizer values, schedule, batch counts,
// data, run. The bundle carries it as JSON; hyperrun reads it and applies --set. Standard library
// and base/ only, no YAML.
// Thread safety: values; const access from several threads is safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hyper::strategy {

// Enumerators are in the order of the `choices` of their row in settings.cc.
enum class OptimizerKind { kSgd, kMomentum, kNesterov, kAdam, kAdamW };
enum class ScheduleKind { kConstant, kLinear, kCosine };
enum class DataKind { kIdx, kNpy, kTokens, kSynthetic };
enum class TokenType { kUint8, kUint16, kUint32 };

std::string OptimizerKindName(OptimizerKind kind);
std::string ScheduleKindName(ScheduleKind kind);
std::string DataKindName(DataKind kind);
std::string TokenTypeName(TokenType type);

// Values of kinds that do not use a field are 0.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;  // fixed at compile time
  double lr = 0;
  double momentum = 0;      // momentum, nesterov
  double beta1 = 0;         // adam, adamw
  double beta2 = 0;         // adam, adamw
  double eps = 0;           // adam, adamw
  double weight_decay = 0;  // decoupled for adamw, else added to the gradient
  bool operator==(const OptimizerConfig&) const = default;
};

// Factor of lr: linear warm-up from 0 to 1 over `warmup` steps, then constant or a decay to
// `min_ratio` at step `total`.
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  int64_t warmup = 0;            // steps
  std::optional<int64_t> total;  // steps; empty: the steps of the run
  double min_ratio = 0;          // in [0, 1]
  bool operator==(const ScheduleConfig&) const = default;
};

struct LaunchTrain {
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  // Exactly one of the two has a value.
  std::optional<int64_t> micro_batches;  // per replica and step
  std::optional<int64_t> global_batch;   // samples per step over all replicas
  double clip_norm = 0;                  // 0: no clipping
  int64_t seed = 0;
  bool operator==(const LaunchTrain&) const = default;
};

// Source of one model input or label as written; what is empty takes a default (InputSource).
struct InputConfig {
  std::string file;
  std::string field;
  std::optional<double> scale, mean, std, low, high;
  bool operator==(const InputConfig&) const = default;
};

struct EvalConfig {
  std::optional<DataKind> kind;
  std::string path;
  std::optional<TokenType> dtype;
  std::map<std::string, InputConfig> inputs;
  bool operator==(const EvalConfig&) const = default;
};

struct DataConfig {
  DataKind kind = DataKind::kIdx;
  std::string path;
  TokenType dtype = TokenType::kUint16;
  std::map<std::string, InputConfig> inputs;  // by name of the model input or label
  std::optional<EvalConfig> eval;
  bool shuffle = true;
  int64_t prefetch = 0;  // micro-batches
  bool operator==(const DataConfig&) const = default;
};

// One input with all defaults resolved. A stored value v is read as (v * scale - mean) / std.
struct InputSource {
  std::string file;   // idx, npy: relative to DataSource::path unless absolute
  std::string field;  // tokens: tokens | next_tokens; synthetic: normal | uniform | integers
  double scale = 1;
  double mean = 0;
  double std = 1;
  double low = 0;  // synthetic uniform, integers: values in [low, high)
  double high = 1;
  bool operator==(const InputSource&) const = default;
};

struct DataSource {
  DataKind kind = DataKind::kIdx;
  std::string path;  // folder (idx, npy) or file (tokens); may be empty
  TokenType dtype = TokenType::kUint16;
  std::map<std::string, InputSource> inputs;
  bool operator==(const DataSource&) const = default;
};

DataSource TrainSource(const DataConfig& data);
// Held-out data: what `eval` leaves out is as for training, input by input; when `eval` names
// another kind only its own inputs count. Empty without `eval`.
std::optional<DataSource> EvalSource(const DataConfig& data);

struct RunConfig {
  std::string dir;
  std::optional<int64_t> steps;  // empty: the command line must say
  int64_t log_every = 1;         // at least 1
  int64_t eval_every = 0;        // 0: only at the end
  int64_t checkpoint_every = 0;  // 0: only the final state
  int64_t checkpoint_keep = 1;
  std::string checkpoint_dir;  // empty: "checkpoints" below dir
  bool operator==(const RunConfig&) const = default;
};

struct LaunchConfig {
  std::optional<LaunchTrain> train;  // empty: the bundle runs forward only
  std::optional<DataConfig> data;
  RunConfig run;
  bool operator==(const LaunchConfig&) const = default;

  // Deterministic JSON with the keys of the strategy file; FromJson(ToJson()) is the same value.
  std::string ToJson() const;
  // kInvalidArgument with every error, one per line.
  static Result<LaunchConfig> FromJson(std::string_view json);

  // One --set: `key` as in the strategy file ("run.steps"), `value` as written there. Setting one
  // of micro_batches / global_batch clears the other. kInvalidArgument for a bad value, a key that
  // is fixed at compile time, or an unknown key (with the nearest names); *this is then unchanged.
  Status ApplySet(std::string_view key, std::string_view value);
  // "KEY=VALUE" each. All of them or, with an error that lists every bad one, none. Checks across
  // keys (such as warmup <= total) see the result of all assignments.
  Status ApplyOverrides(std::span<const std::string> assignments);
};

}  // namespace hyper::strategy
