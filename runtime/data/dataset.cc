#include "runtime/data/dataset.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/file.h"
#include "base/strings.h"
#include "runtime/data/tensor_file.h"

namespace hyper::runtime {
namespace {

using strategy::DataKind;

std::string FilePath(const strategy::DataSource& source, const std::string& file) {
  if (source.path.empty() || file.starts_with('/')) return file;
  return JoinPath(source.path, file);
}

Result<std::unique_ptr<InputReader>> MakeReader(const strategy::DataSource& source,
                                                const InputSpec& spec,
                                                const strategy::InputSource& input,
                                                const LabelRange* labels, int64_t seed) {
  switch (source.kind) {
    case DataKind::kIdx: {
      const std::string path = FilePath(source, input.file);
      HYPER_ASSIGN_OR_RETURN(ir::HostTensor tensor, ReadIdxFile(path));
      return MakeTensorReader(spec, input, std::move(tensor), path, labels);
    }
    case DataKind::kNpy: {
      const std::string path = FilePath(source, input.file);
      HYPER_ASSIGN_OR_RETURN(ir::HostTensor tensor, ReadNpyFile(path));
      return MakeTensorReader(spec, input, std::move(tensor), path, labels);
    }
    case DataKind::kTokens: return MakeTokenReader(spec, input, source.dtype, source.path);
    case DataKind::kSynthetic: return MakeSyntheticReader(spec, input, seed);
  }
  return Internal("data kind");
}

Status CheckNames(const strategy::DataSource& source, const std::vector<InputSpec>& inputs) {
  std::vector<std::string> names;
  for (const InputSpec& spec : inputs) names.push_back(spec.name);
  for (const InputSpec& spec : inputs) {
    if (!source.inputs.contains(spec.name)) {
      return InvalidArgument(fmt::format("no data for input '{}' {}: add it to data.inputs",
                                         spec.name, spec.type.ToString()));
    }
  }
  for (const auto& [name, input] : source.inputs) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string hint = DidYouMean(name, names);
    return InvalidArgument(
        fmt::format("data.inputs names '{}', which is no input; inputs are "
                    "{}{}{}",
                    name, Join(names, ", "), hint.empty() ? "" : "; ", hint));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Dataset>> Dataset::Create(const strategy::DataSource& source,
                                                 std::vector<InputSpec> inputs,
                                                 const std::map<std::string, LabelRange>& labels,
                                                 int64_t seed) {
  HYPER_RETURN_IF_ERROR(CheckNames(source, inputs));
  std::unique_ptr<Dataset> dataset(new Dataset());
  dataset->inputs_ = std::move(inputs);
  for (const InputSpec& spec : dataset->inputs_) {
    if (spec.type.rank() < 1) {
      return InvalidArgument(
          fmt::format("input '{}' is {}: data feeds inputs whose first dim is "
                      "the batch",
                      spec.name, spec.type.ToString()));
    }
    const auto range = labels.find(spec.name);
    const LabelRange* label_range = range == labels.end() ? nullptr : &range->second;
    HYPER_ASSIGN_OR_RETURN(
        std::unique_ptr<InputReader> reader,
        MakeReader(source, spec, source.inputs.at(spec.name), label_range, seed));
    if (!dataset->readers_.empty() && reader->samples() != dataset->samples_) {
      return InvalidArgument(
          fmt::format("'{}' has {} samples for input '{}' but '{}' has {} for input '{}'",
                      dataset->readers_[0]->source(), dataset->samples_, dataset->inputs_[0].name,
                      reader->source(), reader->samples(), spec.name));
    }
    dataset->samples_ = reader->samples();
    if (label_range != nullptr) HYPER_RETURN_IF_ERROR(reader->CheckLabels(*label_range));
    dataset->readers_.push_back(std::move(reader));
  }
  if (dataset->inputs_.empty()) return InvalidArgument("the program has no data inputs");
  return dataset;
}

int Dataset::FindInput(const std::string& name) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace hyper::runtime
