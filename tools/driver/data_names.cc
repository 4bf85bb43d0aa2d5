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
    wanted.names.push_back(input->name());
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

}  // namespace

void CheckDataNames(const onnx_frontend::LoadedModel& model, const strategy::Strategy& strategy,
                    Diagnostics* diagnostics) {
  if (!strategy.launch.data) return;
  const strategy::DataConfig& data = *strategy.launch.data;
  const WantedData wanted = WantedBy(model, strategy);
  const auto check_known = [&](const std::string& section, const auto& inputs) {
    for (const auto& [name, input] : inputs) {
      if (wanted.Has(name)) continue;
      diagnostics->Error(strategy.LocationOf(section + "." + name),
                         fmt::format("{} names '{}', which is no input of the model and no label "
                                     "of a loss; there are {}",
                                     section, name,
                                     wanted.names.empty() ? "none" : Join(wanted.names, ", ")),
                         DidYouMean(name, wanted.names));
    }
  };
  check_known("data.inputs", data.inputs);
  if (data.eval) check_known("data.eval.inputs", data.eval->inputs);

  const strategy::DataSource train = strategy::TrainSource(data);
  const std::optional<strategy::DataSource> eval = strategy::EvalSource(data);
  for (const std::string& name : wanted.names) {
    const bool for_training = train.inputs.contains(name);
    if (for_training && (!eval || eval->inputs.contains(name))) continue;
    const std::string section = for_training ? "data.eval.inputs" : "data.inputs";
    const auto key = wanted.loss_keys.find(name);
    if (key != wanted.loss_keys.end()) {
      diagnostics->Error(strategy.LocationOf(key->second),
                         fmt::format("'{}' is no tensor of the model and {} has no data for it",
                                     name, section),
                         fmt::format("name an entry of {}, or add '{}' there", section, name));
    } else {
      diagnostics->Error(strategy.LocationOf(section),
                         fmt::format("{} has no data for the model's input '{}'", section, name),
                         fmt::format("add '{}' there", name));
    }
  }
}

}  // namespace hyper::tools
