#include <cmath>

#include <fmt/format.h>

#include "base/strings.h"
#include "frontend/strategy/launch_json.h"
#include "frontend/strategy/settings.h"

namespace hyper::strategy {
namespace {

using Json = nlohmann::ordered_json;

bool HasRefusedValue(const Json& json) {
  if (json.is_null()) return true;
  if (!json.is_structured()) return false;
  for (const Json& item : json) {
    if (HasRefusedValue(item)) return true;
  }
  return false;
}

// The integer at `name`, empty when it is absent or refused.
std::optional<int64_t> IntAt(const Json& section, const char* name) {
  const auto found = section.find(name);
  if (found == section.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

void CheckTrain(const Json& root, const RuleReport& report) {
  const auto train = root.find("train");
  if (train == root.end() || !train->is_object()) return;
  if (train->contains("micro_batches") && train->contains("global_batch")) {
    report("train.global_batch",
           "'train.micro_batches' and 'train.global_batch' are both given, and each determines "
           "the other",
           "keep one of the two");
  }
  const auto schedule = train->find("schedule");
  if (schedule == train->end() || !schedule->is_object()) return;
  const std::optional<int64_t> warmup = IntAt(*schedule, "warmup");
  const std::optional<int64_t> total = IntAt(*schedule, "total");
  if (warmup && total && *warmup > *total) {
    report("train.schedule.warmup",
           fmt::format("'train.schedule.warmup' is {}, beyond 'train.schedule.total' {}; expected "
                       "at most {}",
                       *warmup, *total, *total),
           {});
  }
}

class SourceRules {
 public:
  SourceRules(const RuleReport& report, std::string path, const DataSource& source)
      : report_(report), path_(std::move(path)), source_(source) {}

  // `written`: the inputs as given in this section, whose extra keys are judged.
  void Check(const std::map<std::string, InputConfig>& written) const {
    if (source_.inputs.empty()) {
      report_(path_ + ".inputs", fmt::format("'{}.inputs' names no input", path_),
              "name each model input and label of the loss");
    }
    if (source_.kind == DataKind::kTokens && source_.path.empty()) {
      report_(path_, fmt::format("'{}.path' is missing; expected the token file", path_), {});
    }
    for (const auto& [name, input] : source_.inputs) {
      const std::string input_path = fmt::format("{}.inputs.{}", path_, name);
      const auto given = written.find(name);
      const InputConfig config = given == written.end() ? InputConfig{} : given->second;
      switch (source_.kind) {
        case DataKind::kIdx:
        case DataKind::kNpy: CheckFile(input_path, input, config); break;
        case DataKind::kTokens: CheckTokens(input_path, input, config); break;
        case DataKind::kSynthetic: CheckSynthetic(input_path, input, config); break;
      }
    }
  }

 private:
  void Refuse(const std::string& input_path, const char* key, bool given) const {
    if (!given) return;
    report_(fmt::format("{}.{}", input_path, key),
            fmt::format("'{}.{}' does not apply to data of kind {}", input_path, key,
                        DataKindName(source_.kind)),
            fmt::format("remove '{}'", key));
  }

  void RefuseScaling(const std::string& input_path, const InputConfig& config) const {
    Refuse(input_path, "scale", config.scale.has_value());
    Refuse(input_path, "mean", config.mean.has_value());
    Refuse(input_path, "std", config.std.has_value());
  }

  void CheckFile(const std::string& input_path, const InputSource& input,
                 const InputConfig& config) const {
    if (input.file.empty()) {
      report_(input_path, fmt::format("'{}.file' is missing; expected a file name", input_path),
              {});
    }
    Refuse(input_path, "field", !config.field.empty());
    Refuse(input_path, "low", config.low.has_value());
    Refuse(input_path, "high", config.high.has_value());
  }

  void CheckField(const std::string& input_path, const InputSource& input,
                  const std::vector<std::string>& fields) const {
    for (const std::string& field : fields) {
      if (input.field == field) return;
    }
    if (input.field.empty()) {
      report_(
          input_path,
          fmt::format("'{}.field' is missing; expected one of {}", input_path, Join(fields, ", ")),
          {});
    } else {
      report_(fmt::format("{}.field", input_path),
              fmt::format("'{}' is '{}'; expected one of {}", input_path, input.field,
                          Join(fields, ", ")),
              DidYouMean(input.field, fields));
    }
  }

  void CheckTokens(const std::string& input_path, const InputSource& input,
                   const InputConfig& config) const {
    CheckField(input_path, input, {"tokens", "next_tokens"});
    Refuse(input_path, "file", !config.file.empty());
    Refuse(input_path, "low", config.low.has_value());
    Refuse(input_path, "high", config.high.has_value());
    RefuseScaling(input_path, config);
  }

  void CheckSynthetic(const std::string& input_path, const InputSource& input,
                      const InputConfig& config) const {
    CheckField(input_path, input, {"normal", "uniform", "integers"});
    Refuse(input_path, "file", !config.file.empty());
    RefuseScaling(input_path, config);
    if (input.field == "normal") {
      if (config.low || config.high) {
        report_(input_path + (config.low ? ".low" : ".high"),
                fmt::format("'{}' is 'normal', which has no 'low' or 'high'", input_path),
                "use 'uniform'");
      }
      return;
    }
    if (input.field == "integers" && !config.high && input.high == InputSource{}.high) {
      report_(
          input_path,
          fmt::format("'{}.high' is missing; expected the number of different values", input_path),
          {});
      return;
    }
    if (input.low >= input.high) {
      report_(input_path,
              fmt::format("'{}' has low {} and high {}; expected low below high", input_path,
                          input.low, input.high),
              {});
    } else if (input.field == "integers" &&
               (input.low != std::floor(input.low) || input.high != std::floor(input.high))) {
      report_(input_path,
              fmt::format("'{}' has low {} and high {}; expected whole numbers for 'integers'",
                          input_path, input.low, input.high),
              {});
    }
  }

  const RuleReport& report_;
  std::string path_;
  const DataSource& source_;
};

}  // namespace

void CheckLaunchRules(const Json& checked, const RuleReport& report) {
  if (!checked.is_object()) return;
  CheckTrain(checked, report);
  const auto data = checked.find("data");
  const auto run = checked.find("run");
  if (run != checked.end() && run->is_object() && IntAt(*run, "eval_every").value_or(0) > 0 &&
      (data == checked.end() || (data->is_object() && !data->contains("eval")))) {
    report("run.eval_every", "'run.eval_every' is set but 'data.eval' names no held-out data",
           "add 'data.eval', or remove 'run.eval_every'");
  }
  if (data == checked.end() || HasRefusedValue(*data)) return;
  const LaunchConfig config = LaunchFromChecked(Json{{"data", *data}});
  const DataSource train = TrainSource(*config.data);
  SourceRules(report, "data", train).Check(config.data->inputs);
  if (!config.data->eval) return;
  const std::optional<DataSource> eval = EvalSource(*config.data);
  SourceRules(report, "data.eval", *eval).Check(config.data->eval->inputs);
}

}  // namespace hyper::strategy
