#include "tests/onnx_backend/runner.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/strings.h"
#include "codegen/bundle.h"
#include "codegen/kernel_collection.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/load.h"
#include "frontend/onnx/refusal.h"
#include "frontend/strategy/strategy.h"
#include "runtime/executor.h"
#include "runtime/program_io.h"
#include "tests/onnx_backend/binding.h"
#include "tests/onnx_backend/random_outputs.h"
#include "tools/driver/compile_job.h"

namespace hyper::onnx_backend {
namespace {

// Their results are functions of shapes, not of data.
const std::set<std::string> kShapeOps = {"Shape", "Size", "EyeLike", "ConstantOfShape"};

constexpr int kThreads = 2;

strategy::BoundValue BoundValueOf(const ir::HostTensor& value) {
  strategy::BoundValue bound;
  bound.dims = value.type().dims;
  bound.truth_values = value.type().dtype == ir::DType::kBool;
  for (int64_t i = 0; i < value.type().elements(); ++i) {
    if (ir::IsFloat(value.type().dtype)) {
      bound.numbers.push_back(value.ElementAsDouble(i));
    } else {
      bound.integers.push_back(value.ElementAsInt(i));
    }
  }
  return bound;
}

using onnx_frontend::Refusal;

constexpr const char* kOldOpset = "opsets before 7";

bool IsReason(Refusal refusal) {
  return refusal != Refusal::kUnknownOperator && refusal != Refusal::kLimit;
}

std::string ReasonOf(const std::string& text) {
  if (text.find("opsets 7 to") != std::string::npos) return kOldOpset;
  const std::optional<Refusal> refusal = onnx_frontend::RefusalOf(text);
  if (!refusal.has_value() || !IsReason(*refusal)) return kNotImplemented;
  return std::string(onnx_frontend::RefusalText(*refusal));
}

// A case on its way.
struct Job {
  const NodeCase* node_case = nullptr;
  Outcome outcome;
  std::optional<tools::PlannedJob> planned;
  std::vector<std::vector<std::string>> symbols;

  void Fail(std::string text) {
    outcome.verdict = Verdict::kFailed;
    outcome.text = std::move(text);
    planned.reset();
  }
  void Refuse(std::string text) {
    outcome.reason = ReasonOf(text);
    outcome.verdict = Verdict::kRefused;
    std::replace(text.begin(), text.end(), '\n', ' ');
    outcome.text = std::move(text);
  }
};

// No element arrives, or none leaves.
bool IsEmpty(const NodeCase& node_case, const std::vector<std::string>& bound) {
  const auto elements = [](const onnx::TensorProto& tensor) {
    return ir::ElementCount(std::vector<int64_t>(tensor.dims().begin(), tensor.dims().end()));
  };
  int64_t in = 0;
  int64_t out = 0;
  for (const auto& [name, tensor] : node_case.inputs) {
    if (std::find(bound.begin(), bound.end(), name) == bound.end()) in += elements(tensor);
  }
  for (const onnx::TensorProto& tensor : node_case.outputs) out += elements(tensor);
  return in == 0 || out == 0;
}

// By the text that a user would write.
Result<strategy::Strategy> StrategyWith(const NodeCase& node_case,
                                        const std::set<std::string>& bound) {
  HYPER_ASSIGN_OR_RETURN(strategy::Strategy strategy,
                         strategy::ParseStrategy("version: 1", "", nullptr));
  for (const onnx::ValueInfoProto& input : node_case.model.graph().input()) {
    const auto data = node_case.inputs.find(input.name());
    const auto& shape = input.type().tensor_type().shape();
    for (int i = 0; data != node_case.inputs.end() && i < shape.dim_size(); ++i) {
      const std::string& dim = shape.dim(i).dim_param();
      if (!dim.empty()) strategy.model.dims[dim] = data->second.dims(i);
    }
  }
  for (const std::string& name : bound) {
    HYPER_ASSIGN_OR_RETURN(const ir::HostTensor value, TensorOf(node_case.inputs.at(name)));
    strategy.model.bind[name] = BoundValueOf(value);
  }
  return strategy::ParseStrategy(strategy::PrintStrategy(strategy), node_case.name + ".yaml",
                                 nullptr);
}

void Plan(Job* job, const tools::CompileJobOptions& options, const codegen::MarchInfo& march) {
  const NodeCase& node_case = *job->node_case;
  Diagnostics loading;
  const auto model =
      onnx_frontend::LoadModelProto(node_case.model, node_case.name, node_case.folder, &loading);
  if (!model.ok()) return job->Refuse(FirstError(loading, model.status()));
  std::set<std::string> bound;
  std::string message;
  const auto imported = ImportBinding(
      node_case, **model,
      [&](const std::set<std::string>& names) -> Result<onnx_frontend::ImportOptions> {
        HYPER_ASSIGN_OR_RETURN(const strategy::Strategy strategy, StrategyWith(node_case, names));
        Diagnostics diagnostics;
        onnx_frontend::ImportOptions import = tools::ImportOptionsOf(strategy, &diagnostics);
        import.literal_modes = true;
        return import;
      },
      &bound, &message);
  if (!imported.ok()) return job->Refuse(message);
  job->outcome.bound.assign(bound.begin(), bound.end());
  const auto strategy = StrategyWith(node_case, bound);
  Diagnostics diagnostics;
  auto planned = tools::PlanJob(**model, *strategy, options, march, &diagnostics);
  if (!planned.ok()) return job->Fail("plan: " + planned.status().message());
  job->planned = *std::move(planned);
}

bool ReadsData(const program::Program& program) {
  const program::SubProgram* eval = runtime::FindSubProgram(program, "eval");
  if (eval == nullptr) return false;
  for (const program::Slot& slot : program.slots()) {
    if (slot.storage() != program::INPUT) continue;
    for (const program::Instruction& instruction : eval->instructions()) {
      for (const program::Operand& operand : instruction.operands()) {
        if (operand.access() == program::READ && operand.begin() < slot.place().end() &&
            slot.place().begin() < operand.end()) {
          return true;
        }
      }
    }
  }
  return false;
}

// "" or what is wrong with the outputs.
Result<std::string> Execute(const NodeCase& node_case, runtime::Executor* executor) {
  for (const auto& [name, proto] : node_case.inputs) {
    const program::Slot* slot = executor->FindSlot(program::INPUT, name);
    if (slot == nullptr) continue;  // bound, or only its shape counts
    HYPER_ASSIGN_OR_RETURN(ir::HostTensor value, TensorOf(proto));
    const ir::TensorType type = runtime::TypeOf(slot->place());
    if (value.type() != type) {
      return fmt::format("the data of input '{}' is {}, its slot {}", name, value.type().ToString(),
                         type.ToString());
    }
    executor->WriteOperand(slot->place(), value.bytes());
  }
  const std::vector<int64_t> key = {1, 1, 0};
  runtime::FindRng(executor).Set(key);
  HYPER_RETURN_IF_ERROR(executor->Run("eval", {}));
  std::vector<ir::HostTensor> got;
  std::vector<ir::HostTensor> want;
  for (int i = 0; i < node_case.model.graph().output_size(); ++i) {
    const std::string& name = node_case.model.graph().output(i).name();
    const program::Operand* place = runtime::FindResult(executor->program(), "eval", name);
    if (place == nullptr) return fmt::format("output '{}' is not there", name);
    const ir::TensorType type = runtime::TypeOf(*place);
    std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
    executor->ReadOperand(*place, bytes);
    got.emplace_back(type, bytes);
    HYPER_ASSIGN_OR_RETURN(want.emplace_back(),
                           TensorOf(node_case.outputs[static_cast<size_t>(i)]));
  }
  if (HasRandomOutputs(node_case)) return RandomDifference(node_case, got, want);
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string difference =
        Difference(got[i], want[i], AbsoluteTolerance(node_case, want[i]));
    if (!difference.empty()) return fmt::format("output {}: {}", i, difference);
  }
  return std::string();
}

Status RunBundle(Job* job, const codegen::CompiledKernels& kernels, const std::string& path) {
  const NodeCase& node_case = *job->node_case;
  Diagnostics diagnostics;
  HYPER_ASSIGN_OR_RETURN(
      tools::CompiledJob compiled,
      tools::FinishJob(*std::move(job->planned), job->symbols, kernels, &diagnostics));
  HYPER_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(path));
  HYPER_RETURN_IF_ERROR(codegen::WriteBundle(RealFileSystem(), path, std::move(compiled.content)));
  HYPER_ASSIGN_OR_RETURN(const auto bundle, codegen::BundleReader::Open(RealFileSystem(), path));
  runtime::ExecutorOptions options;
  options.threads = kThreads;
  HYPER_ASSIGN_OR_RETURN(const auto executor, runtime::Executor::Create(*bundle, options));
  Outcome& outcome = job->outcome;
  if (ReadsData(executor->program())) {
    outcome.work = Work::kExecuted;
  } else if (IsEmpty(node_case, outcome.bound)) {
    outcome.work = Work::kNoData;
  } else if (kShapeOps.contains(node_case.op)) {
    outcome.work = Work::kShapeOnly;
  } else {
    job->Fail("no instruction reads the data of the inputs");
    return Status::Ok();
  }
  HYPER_ASSIGN_OR_RETURN(const std::string difference, Execute(node_case, executor.get()));
  if (!difference.empty()) {
    job->Fail(difference);
  } else {
    outcome.verdict = Verdict::kPassed;
  }
  return RealFileSystem()->RemoveAll(path);
}

}  // namespace

std::vector<std::string> Reasons() {
  std::vector<std::string> reasons = {kOldOpset};
  for (const Refusal reason : onnx_frontend::AllRefusals()) {
    if (IsReason(reason)) reasons.emplace_back(onnx_frontend::RefusalText(reason));
  }
  return reasons;
}

std::vector<Outcome> RunCases(const std::vector<NodeCase>& cases, const std::string& folder,
                              const codegen::CompileOptions& compile) {
  std::vector<Job> jobs(cases.size());
  tools::CompileJobOptions options;
  options.kernels = compile;
  options.threads = kThreads;
  options.literal_modes = true;
  const auto march = codegen::ResolveMarch(compile.march, compile.compiler);
  codegen::KernelCollection kernels;
  for (size_t i = 0; i < cases.size(); ++i) {
    Job& job = jobs[i];
    job.node_case = &cases[i];
    if (!march.ok()) {
      job.Fail(march.status().message());
      continue;
    }
    const Status status = Guard([&] {
      Plan(&job, options, *march);
      return job.planned ? kernels.Add(job.planned->placed, &job.symbols) : Status::Ok();
    });
    if (status.code() == StatusCode::kUnimplemented) {
      job.Refuse(status.message());
      job.planned.reset();
    } else if (!status.ok()) {
      job.Fail("kernels: " + status.message());
    }
  }
  codegen::CompileOptions resolved = compile;
  if (march.ok()) resolved.march = march->march;
  const auto compiled = kernels.Compile(resolved);
  for (Job& job : jobs) {
    if (!job.planned) continue;
    if (!compiled.ok()) {
      job.Fail(compiled.status().message());
      continue;
    }
    const std::string path = JoinPath(folder, job.node_case->name + ".bundle");
    const Status status = Guard([&] { return RunBundle(&job, *compiled, path); });
    if (!status.ok()) job.Fail("run: " + status.message());
  }
  std::vector<Outcome> outcomes;
  for (Job& job : jobs) outcomes.push_back(std::move(job.outcome));
  return outcomes;
}

}  // namespace hyper::onnx_backend
