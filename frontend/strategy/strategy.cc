#include "frontend/strategy/strategy.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "frontend/strategy/check.h"
#include "frontend/strategy/fields.h"
#include "frontend/strategy/launch_json.h"
#include "frontend/strategy/yaml_reader.h"
#include "frontend/strategy/yaml_writer.h"

namespace hyper::strategy {
namespace {

using Json = nlohmann::ordered_json;

template <typename Io, typename Config>
void VisitLoss(Io& io, Config& c) {
  io.Field("kind", &c.kind);
  io.Field("logits", &c.logits);
  io.Field("labels", &c.labels);
  io.Field("ignore_index", &c.ignore_index);
  io.Field("class_axis", &c.class_axis);
  io.Field("prediction", &c.prediction);
  io.Field("target", &c.target);
  io.Field("output", &c.output);
  io.Field("weight", &c.weight);
}

template <typename Io, typename Config>
void VisitDataParallel(Io& io, Config& c) {
  io.Field("zero", &c.zero);
  io.Field("bucket", &c.bucket_bytes);
  io.Field("overlap", &c.overlap);
  io.Field("min_replicas", &c.min_replicas);
}

// A term names a kind or a finished output, and nothing of the other form.
void CheckLossTerm(const Json& term, const std::string& path, const RuleReport& report) {
  if (!term.is_object()) return;
  const bool has_kind = term.contains("kind");
  if (!has_kind && !term.contains("output")) {
    report(path, fmt::format("'{}' has neither 'kind' nor 'output'", path),
           fmt::format("kinds are {}",
                       Join(SplitChoices(FindSetting("train.loss.kind")->choices), ", ")));
    return;
  }
  if (has_kind) return;
  for (const auto& [name, value] : term.items()) {
    const std::string_view only_for = FindSetting(ChildPath("train.loss", name))->only_for;
    if (only_for.empty() || only_for == kNoKind) continue;
    report(ChildPath(path, name),
           fmt::format("'{}' does not apply to a loss that is an output", ChildPath(path, name)),
           fmt::format("remove '{}', or name a kind instead of 'output'", name));
  }
}

void CheckStrategyRules(const Json& checked, const RuleReport& report) {
  CheckLaunchRules(checked, report);
  const auto train = checked.find("train");
  if (train == checked.end() || !train->is_object() || !train->contains("loss")) return;
  const Json& loss = train->at("loss");
  if (!loss.is_array()) return CheckLossTerm(loss, "train.loss", report);
  for (size_t i = 0; i < loss.size(); ++i) {
    CheckLossTerm(loss[i], fmt::format("train.loss[{}]", i), report);
  }
}

// Null when it is absent.
const Json& Child(const Json& json, const char* name) {
  static const Json kNone;
  const auto found = json.find(name);
  return found == json.end() ? kNone : *found;
}

std::vector<ParameterRule> ReadRules(const Json& json) {
  std::vector<ParameterRule> rules;
  // File order decides, so the two lists are taken in the order in which they stand.
  for (const auto& [name, patterns] : json.items()) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!patterns[i].is_string()) continue;
      rules.push_back({name == "train", patterns[i].get<std::string>(),
                       fmt::format("model.parameters.{}[{}]", name, i)});
    }
  }
  return rules;
}

void FlattenNumbers(const Json& json, std::vector<const Json*>* leaves) {
  if (!json.is_array()) return leaves->push_back(&json);
  for (const Json& item : json) FlattenNumbers(item, leaves);
}

// Checked nested lists.
BoundValue ReadBound(const Json& json) {
  BoundValue bound;
  if (json.is_string()) {
    bound.file = json.get<std::string>();
    return bound;
  }
  for (const Json* level = &json; level->is_array(); level = &level->front()) {
    bound.dims.push_back(static_cast<int64_t>(level->size()));
    if (level->empty()) return bound;
  }
  std::vector<const Json*> leaves;
  FlattenNumbers(json, &leaves);
  bound.truth_values = leaves.front()->is_boolean();
  const bool integers = std::none_of(leaves.begin(), leaves.end(),
                                     [](const Json* leaf) { return leaf->is_number_float(); });
  for (const Json* leaf : leaves) {
    if (bound.truth_values) {
      bound.integers.push_back(leaf->get<bool>() ? 1 : 0);
    } else if (integers) {
      bound.integers.push_back(leaf->get<int64_t>());
    } else {
      bound.numbers.push_back(leaf->get<double>());
    }
  }
  return bound;
}

// `at`: the next element to write.
Json WriteBound(const BoundValue& bound, size_t depth, size_t* at) {
  if (!bound.file.empty()) return bound.file;
  if (depth == bound.dims.size()) {
    const size_t i = (*at)++;
    if (!bound.numbers.empty()) return bound.numbers[i];
    return bound.truth_values ? Json(bound.integers[i] != 0) : Json(bound.integers[i]);
  }
  Json list = Json::array();
  for (int64_t i = 0; i < bound.dims[depth]; ++i) {
    list.push_back(WriteBound(bound, depth + 1, at));
  }
  return list;
}

LossTerm ReadLoss(const Json& json, std::string path) {
  LossTerm term;
  FieldReader io(json, "train.loss");
  VisitLoss(io, term);
  term.path = std::move(path);
  return term;
}

TrainConfig ReadTrain(const Json& json) {
  TrainConfig train;
  const Json& loss = Child(json, "loss");
  if (loss.is_array()) {
    for (size_t i = 0; i < loss.size(); ++i) {
      train.loss.push_back(ReadLoss(loss[i], fmt::format("train.loss[{}]", i)));
    }
  } else {
    train.loss.push_back(ReadLoss(loss, "train.loss"));
  }
  FieldReader io(json, "train");
  io.Field("precision", &train.precision);
  FieldReader batchnorm(Child(json, "batchnorm"), "train.batchnorm");
  batchnorm.Field("running_variance", &train.running_variance);
  return train;
}

// Refused (null) values keep their zero.
Strategy FromChecked(const Json& checked) {
  Strategy strategy;
  FieldReader io(checked, "");
  io.Field("version", &strategy.version);
  const Json& model = Child(checked, "model");
  for (const auto& [name, value] : Child(model, "dims").items()) {
    strategy.model.dims[name] = value.is_null() ? 1 : value.get<int64_t>();
  }
  for (const auto& [name, value] : Child(model, "bind").items()) {
    if (!value.is_null()) strategy.model.bind[name] = ReadBound(value);
  }
  strategy.model.parameters = ReadRules(Child(model, "parameters"));
  const Json& tie = Child(model, "tie");
  for (size_t i = 0; i < tie.size(); ++i) {  // none when it was refused
    strategy.model.tie.push_back(
        {tie[i].get<std::vector<std::string>>(), fmt::format("model.tie[{}]", i)});
  }
  if (Child(checked, "train").is_object()) strategy.train = ReadTrain(Child(checked, "train"));
  FieldReader data_parallel(Child(checked, "data_parallel"), "data_parallel");
  VisitDataParallel(data_parallel, strategy.data_parallel);
  strategy.launch = LaunchFromChecked(checked);
  return strategy;
}

Json WriteTrain(const TrainConfig& train, const Json& launch) {
  Json json = Json::object();
  const bool list = train.loss.size() != 1 || train.loss[0].path.ends_with(']');
  for (const LossTerm& term : train.loss) {
    Json term_json;
    FieldWriter io(&term_json, "train.loss");
    VisitLoss(io, term);
    if (list) {
      json["loss"].push_back(std::move(term_json));
    } else {
      json["loss"] = std::move(term_json);
    }
  }
  json["optimizer"] = launch.at("optimizer");
  json["schedule"] = launch.at("schedule");
  Json own;
  FieldWriter io(&own, "train");
  io.Field("precision", &train.precision);
  FieldWriter batchnorm(&own["batchnorm"], "train.batchnorm");
  batchnorm.Field("running_variance", &train.running_variance);
  json.update(own);
  for (const auto& [name, value] : launch.items()) {
    if (!json.contains(name)) json[name] = value;
  }
  return json;
}

void CollectRefused(const Json& json, const std::string& path, std::set<std::string>* refused) {
  if (json.is_null()) {
    refused->insert(path);
  } else if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      CollectRefused(value, ChildPath(path, name), refused);
    }
  } else if (json.is_array()) {
    for (size_t i = 0; i < json.size(); ++i) {
      CollectRefused(json[i], fmt::format("{}[{}]", path, i), refused);
    }
  }
}

// The section or list that holds `path`; "" holds the top level.
std::string_view ParentPath(std::string_view path) {
  const size_t end = path.find_last_of(".[");
  return path.substr(0, end == std::string_view::npos ? 0 : end);
}

std::string NormalLineEnds(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // byte order mark
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i];
  }
  return out;
}

}  // namespace

std::string LossKindName(LossKind kind) {
  return ChoiceName("train.loss.kind", static_cast<int>(kind));
}
std::string PrecisionName(Precision precision) {
  return ChoiceName("train.precision", static_cast<int>(precision));
}
std::string RunningVarianceName(RunningVariance variance) {
  return ChoiceName("train.batchnorm.running_variance", static_cast<int>(variance));
}

bool ModelConfig::IsTrained(std::string_view parameter) const {
  bool trained = true;
  for (const ParameterRule& rule : parameters) {
    if (rule.train) trained = false;
  }
  for (const ParameterRule& rule : parameters) {
    if (GlobMatch(rule.pattern, parameter)) trained = rule.train;
  }
  return trained;
}

SourceLocation Strategy::LocationOf(std::string_view path) const {
  return FindLocation(locations, file, path);
}

bool Strategy::operator==(const Strategy& other) const {
  return version == other.version && model == other.model && train == other.train &&
         data_parallel == other.data_parallel && launch == other.launch;
}

bool StrategyDraft::IsCertain(std::string_view path) const {
  for (;; path = ParentPath(path)) {
    if (refused.contains(std::string(path))) return false;
    if (path.empty()) return true;
    if (unknown.contains(std::string(ParentPath(path)))) return false;
  }
}

bool StrategyDraft::IsCertainBelow(std::string_view path) const {
  const auto holds = [path](const std::string& place) {
    return place == path || (place.size() > path.size() && place.starts_with(path) &&
                             (place[path.size()] == '.' || place[path.size()] == '['));
  };
  return IsCertain(path) && std::none_of(refused.begin(), refused.end(), holds) &&
         std::none_of(unknown.begin(), unknown.end(), holds);
}

StrategyDraft DraftStrategy(std::string_view text, std::string file_name,
                            Diagnostics* diagnostics) {
  StrategyDraft draft;
  std::string source;
  const Status guarded = Guard([&]() -> Status {
    // Checked before the copy: the size limit is part of what makes text readable.
    if (text.size() <= kMaxYamlBytes) source = NormalLineEnds(text);
    if (!IsReadableText(text.size() <= kMaxYamlBytes ? source : text, file_name, diagnostics)) {
      source.clear();
      return Status::Ok();
    }
    const std::optional<ConfigNode> root = ReadYaml(source, file_name, diagnostics);
    if (!root) return Status::Ok();
    LocationMap locations;
    const Json checked =
        CheckTree(*root, Scope::kStrategy, file_name, diagnostics, &locations, &draft.unknown);
    if (!checked.is_object()) return Status::Ok();
    CheckStrategyRules(checked,
                       [&](const std::string& path, std::string message, std::string help) {
                         diagnostics->Error(FindLocation(locations, file_name, path),
                                            std::move(message), std::move(help));
                       });
    draft.strategy = FromChecked(checked);
    draft.strategy.locations = std::move(locations);
    CollectRefused(checked, "", &draft.refused);
    draft.has_keys = true;
    return Status::Ok();
  });
  if (!guarded.ok()) diagnostics->Error({file_name}, guarded.message());
  draft.strategy.file = std::move(file_name);
  draft.strategy.source = std::move(source);
  return draft;
}

Result<Strategy> ParseStrategy(std::string_view text, std::string file_name,
                               Diagnostics* diagnostics) {
  Diagnostics found;
  StrategyDraft draft = DraftStrategy(text, std::move(file_name), &found);
  if (diagnostics != nullptr) {
    for (const Diagnostic& item : found.items()) diagnostics->Add(item);
  }
  if (found.has_errors()) return found.ToStatus(draft.strategy.source);
  return std::move(draft.strategy);
}

Status ApplyOverrides(std::span<const std::string> assignments, Strategy* strategy) {
  return strategy->launch.ApplyOverrides(assignments);
}

std::string PrintStrategy(const Strategy& strategy) {
  Json json = Json::object();
  json["version"] = strategy.version;
  json["model"]["dims"] = strategy.model.dims;
  if (strategy.model.dims.empty()) json["model"]["dims"] = Json::object();
  for (const auto& [name, bound] : strategy.model.bind) {
    size_t at = 0;
    json["model"]["bind"][name] = WriteBound(bound, 0, &at);
  }
  for (const ParameterRule& rule : strategy.model.parameters) {
    json["model"]["parameters"][rule.train ? "train" : "freeze"].push_back(rule.pattern);
  }
  for (const TieGroup& group : strategy.model.tie) json["model"]["tie"].push_back(group.names);
  const Json launch = LaunchToJson(strategy.launch);
  if (strategy.train) json["train"] = WriteTrain(*strategy.train, launch.at("train"));
  FieldWriter data_parallel(&json["data_parallel"], "data_parallel");
  VisitDataParallel(data_parallel, strategy.data_parallel);
  if (launch.contains("data")) json["data"] = launch.at("data");
  json["run"] = launch.at("run");
  return WriteYaml(json);
}

}  // namespace hyper::strategy
