#include "frontend/strategy/launch_config.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/diagnostics.h"
#include "base/strings.h"
#include "frontend/strategy/check.h"
#include "frontend/strategy/fields.h"
#include "frontend/strategy/launch_json.h"
#include "frontend/strategy/scalar.h"
#include "frontend/strategy/settings.h"

namespace hyper::strategy {
namespace {

using Json = nlohmann::ordered_json;

template <typename Io, typename Config>
void VisitOptimizer(Io& io, Config& c) {
  io.Field("kind", &c.kind);
  io.Field("lr", &c.lr);
  io.Field("momentum", &c.momentum);
  io.Pair("betas", &c.beta1, &c.beta2);
  io.Field("eps", &c.eps);
  io.Field("weight_decay", &c.weight_decay);
}

template <typename Io, typename Config>
void VisitSchedule(Io& io, Config& c) {
  io.Field("kind", &c.kind);
  io.Field("warmup", &c.warmup);
  io.Field("total", &c.total);
  io.Field("min_ratio", &c.min_ratio);
}

template <typename Io, typename Config>
void VisitTrain(Io& io, Config& c) {
  io.Field("micro_batches", &c.micro_batches);
  io.Field("global_batch", &c.global_batch);
  io.Field("clip_norm", &c.clip_norm);
  io.Field("seed", &c.seed);
}

template <typename Io, typename Config>
void VisitInput(Io& io, Config& c) {
  io.Field("file", &c.file);
  io.Field("field", &c.field);
  io.Field("scale", &c.scale);
  io.Field("mean", &c.mean);
  io.Field("std", &c.std);
  io.Field("low", &c.low);
  io.Field("high", &c.high);
}

// DataConfig and EvalConfig share their first three keys.
template <typename Io, typename Config>
void VisitSource(Io& io, Config& c) {
  io.Field("kind", &c.kind);
  io.Field("path", &c.path);
  io.Field("dtype", &c.dtype);
}

template <typename Io, typename Config>
void VisitRun(Io& io, Config& c) {
  io.Field("dir", &c.dir);
  io.Field("steps", &c.steps);
  io.Field("log_every", &c.log_every);
  io.Field("eval_every", &c.eval_every);
}

template <typename Io, typename Config>
void VisitCheckpoint(Io& io, Config& c) {
  io.Field("every", &c.checkpoint_every);
  io.Field("keep", &c.checkpoint_keep);
  io.Field("dir", &c.checkpoint_dir);
}

const Json& Child(const Json& json, const char* name) {
  static const Json kNone;
  const auto found = json.find(name);
  return found == json.end() ? kNone : *found;
}

// The key that a plain name stands for: files where the data is files, else fields.
bool NameIsFile(DataKind kind) { return kind == DataKind::kIdx || kind == DataKind::kNpy; }

std::map<std::string, InputConfig> ReadInputs(const Json& json, DataKind kind,
                                              const std::string& table_path) {
  std::map<std::string, InputConfig> inputs;
  if (!json.is_object()) return inputs;
  for (const auto& [name, value] : json.items()) {
    InputConfig& input = inputs[name];
    if (value.is_string()) {
      (NameIsFile(kind) ? input.file : input.field) = value.get<std::string>();
    } else {
      FieldReader io(value, table_path);
      VisitInput(io, input);
    }
  }
  return inputs;
}

Json WriteInputs(const std::map<std::string, InputConfig>& inputs, const std::string& table_path) {
  Json json = Json::object();
  for (const auto& [name, input] : inputs) {
    FieldWriter io(&json[name], table_path);
    VisitInput(io, input);
  }
  return json;
}

DataConfig ReadData(const Json& json) {
  DataConfig data;
  FieldReader io(json, "data");
  VisitSource(io, data);
  io.Field("shuffle", &data.shuffle);
  io.Field("prefetch", &data.prefetch);
  data.inputs = ReadInputs(Child(json, "inputs"), data.kind, "data.inputs.*");
  const Json& eval_json = Child(json, "eval");
  if (eval_json.is_object()) {
    EvalConfig& eval = data.eval.emplace();
    FieldReader eval_io(eval_json, "data.eval");
    VisitSource(eval_io, eval);
    eval.inputs =
        ReadInputs(Child(eval_json, "inputs"), eval.kind.value_or(data.kind), "data.eval.inputs.*");
  }
  return data;
}

Json WriteData(const DataConfig& data) {
  Json json;
  FieldWriter io(&json, "data");
  VisitSource(io, data);
  json["inputs"] = WriteInputs(data.inputs, "data.inputs.*");
  if (data.eval) {
    FieldWriter eval_io(&json["eval"], "data.eval");
    VisitSource(eval_io, *data.eval);
    if (!data.eval->inputs.empty()) {
      json["eval"]["inputs"] = WriteInputs(data.eval->inputs, "data.eval.inputs.*");
    }
  }
  io.Field("shuffle", &data.shuffle);
  io.Field("prefetch", &data.prefetch);
  return json;
}

InputSource Resolve(const InputConfig& config, InputSource source) {
  if (!config.file.empty()) source.file = config.file;
  if (!config.field.empty()) source.field = config.field;
  source.scale = config.scale.value_or(source.scale);
  source.mean = config.mean.value_or(source.mean);
  source.std = config.std.value_or(source.std);
  source.low = config.low.value_or(source.low);
  source.high = config.high.value_or(source.high);
  return source;
}

// Where a key of --set goes: its row and the names on the way, "data.inputs.x.file" ->
// {"data", "inputs", "x", "file"} also where the user's name contains dots.
struct KeyTarget {
  const Setting* setting = nullptr;
  std::vector<std::string> names;
};

void AppendNames(std::string_view path, std::vector<std::string>* names) {
  while (!path.empty()) {
    const size_t end = path.find('.');
    names->emplace_back(path.substr(0, end));
    path = end == std::string_view::npos ? std::string_view{} : path.substr(end + 1);
  }
}

KeyTarget FindTarget(std::string_view key) {
  KeyTarget best;
  for (const Setting& setting : AllSettings()) {
    const size_t star = setting.path.find('*');
    if (star == std::string_view::npos) {
      if (setting.path != key) continue;
      KeyTarget exact{&setting, {}};
      AppendNames(key, &exact.names);
      return exact;
    }
    const std::string_view prefix = setting.path.substr(0, star);
    const std::string_view suffix = setting.path.substr(star + 1);
    if (key.size() <= prefix.size() + suffix.size() || !key.starts_with(prefix) ||
        !key.ends_with(suffix)) {
      continue;
    }
    // The longest row wins: ".file" at the end is the key, not part of the user's name.
    if (best.setting != nullptr && best.setting->path.size() >= setting.path.size()) continue;
    best = {&setting, {}};
    AppendNames(prefix, &best.names);
    best.names.emplace_back(key.substr(prefix.size(), key.size() - prefix.size() - suffix.size()));
    AppendNames(suffix.empty() ? suffix : suffix.substr(1), &best.names);
  }
  return best;
}

Status UnknownKey(std::string_view key) {
  std::vector<std::string> names;
  for (const Setting& setting : AllSettings()) {
    if (setting.phase == Phase::kLaunch && !IsContainer(setting.type)) {
      names.emplace_back(setting.path);
    }
  }
  std::string hint = DidYouMean(key, names);
  if (hint.empty()) {
    // Only the section may be wrong or missing: "lr", "optimizer.lr".
    std::vector<std::string> same_leaf;
    for (const std::string& name : names) {
      if (LeafName(name) == LeafName(key)) same_leaf.push_back(fmt::format("'{}'", name));
    }
    hint = same_leaf.empty() ? "keys that a launch may set are under run, data, train.optimizer "
                               "and train.schedule, and train.clip_norm, train.seed, "
                               "train.micro_batches and train.global_batch"
                             : fmt::format("there is {}", Join(same_leaf, ", "));
  }
  return NotFound(fmt::format("unknown key '{}'; {}", key, hint));
}

Status WrongValue(std::string_view key, const ScalarResult& result) {
  return InvalidArgument(fmt::format("'{}' {}{}{}", key, result.message,
                                     result.help.empty() ? "" : "; ", result.help));
}

std::string_view Trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// "[0.9, 0.95]" or "0.9,0.95"
Result<Json> ParsePair(const Setting& setting, std::string_view key, std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) {
    return InvalidArgument(
        fmt::format("'{}' is '{}'; expected {}", key, text, DescribeType(setting)));
  }
  Json pair = Json::array();
  for (const std::string_view part : {text.substr(0, comma), text.substr(comma + 1)}) {
    ScalarResult parsed = ParseScalar(setting, Trim(part), false);
    if (!parsed.value) return WrongValue(key, parsed);
    pair.push_back(*std::move(parsed.value));
  }
  return pair;
}

// Puts one value into the JSON form; what spans keys is checked when it is read back.
Status Assign(std::string_view key, std::string_view text, Json* json) {
  const KeyTarget target = FindTarget(key);
  if (target.setting == nullptr) return UnknownKey(key);
  const Setting& setting = *target.setting;
  if (IsContainer(setting.type)) {
    return InvalidArgument(
        fmt::format("'{}' is a group of keys; set one of them, such as '{}'", key,
                    ChildPath(setting.path, LeafName(ChildSettings(setting.path).front()->path))));
  }
  if (setting.phase == Phase::kCompile) {
    return InvalidArgument(fmt::format(
        "'{}' is a compile-time key, fixed in the bundle; change it in the strategy and compile "
        "again",
        key));
  }
  if (target.names.front() == "train" && !json->contains("train")) {
    return InvalidArgument(
        fmt::format("'{}' has no effect: the bundle was compiled without a 'train' block", key));
  }
  if (setting.type == ValueType::kNameOrSection && Trim(text).starts_with('{')) {
    return InvalidArgument(
        fmt::format("'{}' is set to a map; set its keys one by one: '{}=...', '{}=...'", key,
                    ChildPath(key, LeafName(ChildSettings(setting.path).front()->path)),
                    ChildPath(key, "scale")));
  }
  Json value;
  if (setting.type == ValueType::kFloatPair) {
    HYPER_ASSIGN_OR_RETURN(value, ParsePair(setting, key, Trim(text)));
  } else {
    ScalarResult parsed = ParseScalar(setting, text, false);
    if (!parsed.value) return WrongValue(key, parsed);
    value = *std::move(parsed.value);
  }
  Json* place = json;
  for (size_t i = 0; i + 1 < target.names.size(); ++i) {
    place = &(*place)[target.names[i]];
    if (place->is_null()) *place = Json::object();
    // An input given by its plain name so far becomes a map when one of its keys is set.
    if (!place->is_object()) return InvalidArgument(fmt::format("'{}' is not a map", key));
  }
  Json& slot = (*place)[target.names.back()];
  if (setting.type == ValueType::kNameOrSection && slot.is_object()) {
    // The plain name replaces the file or field and keeps scale, mean and the rest.
    const Json& data = Child(*json, "data");
    const Json& eval_kind = Child(Child(data, "eval"), "kind");
    const bool own_kind = setting.path.starts_with("data.eval") && eval_kind.is_string();
    const Json& kind = own_kind ? eval_kind : Child(data, "kind");
    const bool file =
        kind.is_string() &&
        NameIsFile(static_cast<DataKind>(ChoiceIndex("data.kind", kind.get<std::string>())));
    slot[file ? "file" : "field"] = value;
  } else {
    slot = std::move(value);
  }
  if (key == "train.micro_batches") (*json)["train"].erase("global_batch");
  if (key == "train.global_batch") (*json)["train"].erase("micro_batches");
  return Status::Ok();
}

}  // namespace

std::string OptimizerKindName(OptimizerKind kind) {
  return ChoiceName("train.optimizer.kind", static_cast<int>(kind));
}
std::string ScheduleKindName(ScheduleKind kind) {
  return ChoiceName("train.schedule.kind", static_cast<int>(kind));
}
std::string DataKindName(DataKind kind) { return ChoiceName("data.kind", static_cast<int>(kind)); }
std::string TokenTypeName(TokenType type) {
  return ChoiceName("data.dtype", static_cast<int>(type));
}

DataSource TrainSource(const DataConfig& data) {
  DataSource source{data.kind, data.path, data.dtype, {}};
  for (const auto& [name, input] : data.inputs) source.inputs[name] = Resolve(input, {});
  return source;
}

std::optional<DataSource> EvalSource(const DataConfig& data) {
  if (!data.eval) return std::nullopt;
  DataSource source;
  if (data.eval->kind.value_or(data.kind) == data.kind) source = TrainSource(data);
  source.kind = data.eval->kind.value_or(data.kind);
  if (!data.eval->path.empty()) source.path = data.eval->path;
  source.dtype = data.eval->dtype.value_or(source.dtype);
  for (const auto& [name, input] : data.eval->inputs) {
    source.inputs[name] = Resolve(input, source.inputs[name]);
  }
  return source;
}

LaunchConfig LaunchFromChecked(const Json& checked) {
  LaunchConfig config;
  const Json& train_json = Child(checked, "train");
  if (train_json.is_object()) {
    LaunchTrain& train = config.train.emplace();
    FieldReader optimizer(Child(train_json, "optimizer"), "train.optimizer");
    VisitOptimizer(optimizer, train.optimizer);
    FieldReader schedule(Child(train_json, "schedule"), "train.schedule");
    VisitSchedule(schedule, train.schedule);
    FieldReader io(train_json, "train");
    VisitTrain(io, train);
    if (!train.global_batch && !train.micro_batches) train.micro_batches = 1;
  }
  const Json& data_json = Child(checked, "data");
  if (data_json.is_object()) config.data = ReadData(data_json);
  const Json& run_json = Child(checked, "run");
  FieldReader run(run_json, "run");
  VisitRun(run, config.run);
  FieldReader checkpoint(Child(run_json, "checkpoint"), "run.checkpoint");
  VisitCheckpoint(checkpoint, config.run);
  return config;
}

Json LaunchToJson(const LaunchConfig& config) {
  Json json = Json::object();
  if (config.train) {
    Json& train = json["train"];
    FieldWriter io(&train, "train");
    FieldWriter optimizer(&train["optimizer"], "train.optimizer");
    VisitOptimizer(optimizer, config.train->optimizer);
    FieldWriter schedule(&train["schedule"], "train.schedule");
    VisitSchedule(schedule, config.train->schedule);
    VisitTrain(io, *config.train);
  }
  if (config.data) json["data"] = WriteData(*config.data);
  FieldWriter run(&json["run"], "run");
  VisitRun(run, config.run);
  FieldWriter checkpoint(&json["run"]["checkpoint"], "run.checkpoint");
  VisitCheckpoint(checkpoint, config.run);
  return json;
}

std::string LaunchConfig::ToJson() const { return LaunchToJson(*this).dump(2) + "\n"; }

Result<LaunchConfig> LaunchConfig::FromJson(std::string_view json) {
  return Guard([json]() -> Result<LaunchConfig> {
    HYPER_ASSIGN_OR_RETURN(const ConfigNode root, ReadJsonTree(json));
    Diagnostics diagnostics;
    const Json checked = CheckTree(root, Scope::kLaunch, "", &diagnostics, nullptr);
    CheckLaunchRules(checked, [&](const std::string&, std::string message, std::string help) {
      diagnostics.Error({}, std::move(message), std::move(help));
    });
    if (!diagnostics.has_errors()) return LaunchFromChecked(checked);
    std::vector<std::string> lines;
    for (const Diagnostic& item : diagnostics.items()) {
      lines.push_back(item.help.empty() ? item.message
                                        : fmt::format("{}; {}", item.message, item.help));
    }
    return InvalidArgument(Join(lines, "\n"));
  });
}

Status LaunchConfig::ApplySet(std::string_view key, std::string_view value) {
  const std::string assignment = fmt::format("{}={}", key, value);
  return ApplyOverrides(std::span(&assignment, 1));
}

Status LaunchConfig::ApplyOverrides(std::span<const std::string> assignments) {
  Json json = LaunchToJson(*this);
  std::vector<std::string> errors;
  std::map<std::string, std::string> seen;
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      errors.push_back(fmt::format("'{}' is not KEY=VALUE", assignment));
      continue;
    }
    const std::string key = assignment.substr(0, equals);
    if (!seen.emplace(key, assignment).second) {
      errors.push_back(fmt::format("'{}' is set twice: '{}' and '{}'", key, seen[key], assignment));
      continue;
    }
    const Status status = Assign(key, assignment.substr(equals + 1), &json);
    if (!status.ok()) errors.push_back(status.message());
  }
  if (seen.contains("train.micro_batches") && seen.contains("train.global_batch")) {
    errors.push_back(
        "'train.micro_batches' and 'train.global_batch' are both set; keep one of the two");
  }
  if (!errors.empty()) return InvalidArgument(Join(errors, "\n"));
  // Values come from a command line: JSON refuses what is not UTF-8 by an exception.
  return Guard([&]() -> Status {
    HYPER_ASSIGN_OR_RETURN(*this, FromJson(json.dump()));
    return Status::Ok();
  });
}

}  // namespace hyper::strategy
