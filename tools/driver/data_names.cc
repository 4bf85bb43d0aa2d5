#include "tools/driver/data_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::tools {
namespace {

// Inputs in order, and for those that only a loss names the key that does.
struct WantedData {
  std::vector<std::string> names;
  std::map<std::string, std::string> loss_keys;

  bool Has(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
};

WantedData WantedBy(const onnx_frontend::LoadedModel& model, const strategy::Strategy& strategy) {
  WantedData wanted;
  std::set<std::string> known;
  for (const onnx::ValueInfoProto* input : model.inputs) {
    if (!strategy.model.bind.contains(input->name())) wanted.names.push_back(input->name());
    known.insert(input->name());
  }
  for (const onnx_frontend::NamedTensor& tensor : model.tensors) known.insert(tensor.name);
  for (const onnx::NodeProto& node : model.graph().node()) {
    known.insert(node.output().begin(), node.output().end());
  }
  if (!strategy.train) return wanted;
  for (const strategy::LossTerm& term : strategy.train->loss) {
    const bool mse = term.kind == strategy::LossKind::kMse;
    const std::string& target = mse ? term.target : term.labels;
    if (!term.kind || target.empty() || !known.insert(target).second) continue;
    wanted.names.push_back(target);
    wanted.loss_keys[target] = term.path + (mse ? ".target" : ".labels");
  }
  return wanted;
}

// The section that lacks data for `name`, or empty.
std::string SectionWithout(const strategy::DataConfig& data, const std::string& name) {
  if (!strategy::TrainSource(data).inputs.contains(name)) return "data.inputs";
  const std::optional<strategy::DataSource> eval = strategy::EvalSource(data);
  return eval && !eval->inputs.contains(name) ? "data.eval.inputs" : "";
}

// Files of one source, each with the key that names it.
void CollectFiles(const strategy::DataSource& source, const std::string& section,
                  std::map<std::string, std::string>* files) {
  if (source.kind == strategy::DataKind::kSynthetic) return;
  if (source.kind == strategy::DataKind::kTokens) {
    if (!source.path.empty()) files->emplace(source.path, section + ".path");
    return;
  }
  for (const auto& [name, input] : source.inputs) {
    if (input.file.empty()) continue;
    files->emplace(JoinPath(source.path, input.file), fmt::format("{}.inputs.{}", section, name));
  }
}

}  // namespace

void WarnOfMissingData(const strategy::Strategy& strategy, FileSystem* fs,
                       Diagnostics* diagnostics) {
  if (!strategy.launch.data) return;
  std::map<std::string, std::string> files;
  CollectFiles(strategy::TrainSource(*strategy.launch.data), "data", &files);
  if (const auto eval = strategy::EvalSource(*strategy.launch.data)) {
    CollectFiles(*eval, "data.eval", &files);
  }
  for (const auto& [path, key] : files) {
    if (fs->Exists(path)) continue;
    diagnostics->Warning(strategy.LocationOf(key),
                         fmt::format("data file '{}' does not exist here; hyperrun will need it, "
                                     "or others by --set",
                                     path));
  }
}

void CheckDataNames(const onnx_frontend::LoadedModel& model, const strategy::Strategy& strategy,
                    Diagnostics* diagnostics, bool labels_known, bool inputs_known) {
  if (!strategy.launch.data) return;
  const strategy::DataConfig& data = *strategy.launch.data;
  const WantedData wanted = WantedBy(model, strategy);
  const auto check_known = [&](const std::string& section, const auto& inputs) {
    for (const auto& [name, input] : inputs) {
      if (wanted.Has(name)) continue;
      if (strategy.model.bind.contains(name)) {
        diagnostics->Error(strategy.LocationOf(section + "." + name),
                           fmt::format("input '{}' is bound to a value by model.bind, so {} cannot "
                                       "feed it",
                                       name, section),
                           "remove it in one of the two places");
        continue;
      }
      diagnostics->Error(
          strategy.LocationOf(section + "." + name),
          fmt::format("{} names '{}', which is no input of the model and no label "
                      "of a loss; there are {}",
                      section, name, wanted.names.empty() ? "none" : Join(wanted.names, ", ")),
          DidYouMean(name, wanted.names));
    }
  };
  if (labels_known) {
    check_known("data.inputs", data.inputs);
    if (data.eval) check_known("data.eval.inputs", data.eval->inputs);
  }
  if (!inputs_known) return;
  for (const auto& [name, key] : wanted.loss_keys) {
    const std::string section = SectionWithout(data, name);
    if (section.empty()) continue;
    diagnostics->Error(
        strategy.LocationOf(key),
        fmt::format("'{}' is no tensor of the model and {} has no data for it", name, section),
        fmt::format("name an entry of {}, or add '{}' there", section, name));
  }
}

void CheckDataInputs(const onnx_frontend::LoadedModel& model, const ir::Module& module,
                     const strategy::Strategy& strategy, Diagnostics* diagnostics) {
  if (!strategy.launch.data) return;
  const strategy::DataConfig& data = *strategy.launch.data;
  std::set<std::string> used;
  for (const ir::Function& function : module.functions) {
    const std::vector<std::vector<ir::NodeId>> users = function.ComputeUsers();
    for (const ir::Argument& argument : function.arguments()) {
      if (argument.kind != ir::ArgumentKind::kInput) continue;
      if (!users[static_cast<size_t>(argument.value.index)].empty()) used.insert(argument.name);
    }
  }
  for (const onnx::ValueInfoProto* input : model.inputs) {
    const std::string& name = input->name();
    if (strategy.model.bind.contains(name)) continue;
    const std::string section = SectionWithout(data, name);
    if (used.contains(name) && !section.empty()) {
      diagnostics->Error(strategy.LocationOf(section),
                         fmt::format("{} has no data for the model's input '{}'", section, name),
                         fmt::format("add '{}' there", name));
    } else if (!used.contains(name) && data.inputs.contains(name)) {
      diagnostics->Error(
          strategy.LocationOf("data.inputs." + name),
          fmt::format("nothing that is computed depends on the values of the model's "
                      "input '{}', so data cannot feed it",
                      name),
          fmt::format("remove '{}'", name));
    }
  }
}

}  // namespace hyper::tools
