#include "tests/e2e/harness.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "codegen/bundle.h"
#include "frontend/strategy/strategy.h"
#include "runtime/loopback_communicator.h"
#include "runtime/program_io.h"
#include "tools/driver/compile_job.h"

namespace hyper::e2e {
namespace {

std::vector<double> ToDoubles(const ir::HostTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.type().elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.ElementAsDouble(static_cast<int64_t>(i));
  }
  return values;
}

std::vector<double> ReadSlot(const runtime::Executor& executor, const program::Slot& slot) {
  const ir::TensorType type = runtime::TypeOf(slot.place());
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  executor.ReadOperand(slot.place(), bytes);
  return ToDoubles(ir::HostTensor(type, bytes));
}

// Keeps the numbers, prints nothing.
class Recorder : public runtime::Reporter {
 public:
  explicit Recorder(TrainResult* result) : result_(result) {}
  void OnStart(const runtime::StartInfo&) override {}
  void OnStep(const runtime::StepReport& report) override {
    result_->losses.push_back(report.loss);
    result_->grad_norms.push_back(report.grad_norm.value_or(0));
  }
  void OnEval(const runtime::EvalReport&) override {}
  void OnCheckpoint(int64_t, const std::string&) override {}
  void OnNote(const std::string&) override {}

 private:
  TrainResult* result_;
};

}  // namespace

Result<std::string> CompileToBundle(const std::string& name, const std::string& model_path,
                                    const std::string& strategy_yaml, bool reference_kernels,
                                    int64_t guard_bytes) {
  const std::string folder = fmt::format("{}/hyper_e2e_{}", testing::TempDir(), getpid());
  std::filesystem::create_directories(folder);
  HYPER_ASSIGN_OR_RETURN(const strategy::Strategy strategy,
                         strategy::ParseStrategy(strategy_yaml, name + ".yaml", nullptr));
  Diagnostics diagnostics;
  tools::CompileJobOptions options;
  options.reference_kernels = reference_kernels;
  options.guard_bytes = guard_bytes;
  options.threads = kPlannedThreads;
  options.kernels.cache_dir = std::string(HYPER_BINARY_DIR) + "/kernel-cache";
  HYPER_ASSIGN_OR_RETURN(tools::CompiledJob job,
                         tools::CompileJob(model_path, strategy, options, &diagnostics));
  const std::string path = folder + "/" + name + ".bundle";
  HYPER_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(path));
  HYPER_RETURN_IF_ERROR(WriteFileAtomic(RealFileSystem(), path + ".txt", job.lowered_text));
  HYPER_RETURN_IF_ERROR(codegen::WriteBundle(RealFileSystem(), path, std::move(job.content)));
  return path;
}

Result<std::vector<std::string>> WeightsOf(const std::string& model_path) {
  Diagnostics diagnostics;
  HYPER_ASSIGN_OR_RETURN(const auto model, onnx_frontend::LoadModel(model_path, {}, &diagnostics));
  std::vector<std::string> names;
  for (const auto& tensor : onnx_frontend::PlanParameters(*model, {}, &diagnostics).tensors) {
    if (!tensor.constant) names.push_back(tensor.name);
  }
  return names;
}

void ExpectEveryWeightTrains(const std::string& model_path,
                             const onnx_frontend::ImportOptions& options, const TrainResult& result,
                             const std::set<std::string>& zero) {
  Diagnostics diagnostics;
  const auto model = onnx_frontend::LoadModel(model_path, {}, &diagnostics);
  ASSERT_TRUE(model.ok()) << diagnostics.Render();
  int64_t trained = 0;
  for (const auto& tensor : onnx_frontend::PlanParameters(**model, options, &diagnostics).tensors) {
    EXPECT_FALSE(tensor.reason.empty()) << tensor.name;
    if (tensor.constant || tensor.kind != ir::ArgumentKind::kParameter || !tensor.needed) continue;
    const auto gradient = result.gradients.find(tensor.name);
    if (gradient == result.gradients.end()) {
      EXPECT_FALSE(tensor.cut_by.empty()) << tensor.name << " has no gradient: " << tensor.reason;
      continue;
    }
    ++trained;
    double largest = 0;
    for (const double value : gradient->second) {
      ASSERT_TRUE(std::isfinite(value)) << tensor.name;
      largest = std::max(largest, std::abs(value));
    }
    if (!zero.contains(tensor.name)) EXPECT_GT(largest, 0) << tensor.name;
  }
  EXPECT_EQ(trained, static_cast<int64_t>(result.gradients.size()));
  Figure("weights_with_gradient", trained);
}

Result<TrainResult> Train(const std::string& bundle_path, const TrainOptions& options) {
  TrainResult result;
  const Status status =
      runtime::RunOnRanks(options.replicas, {}, [&](runtime::Communicator& communicator) -> Status {
        TrainResult ignored;
        Recorder recorder(communicator.rank() == 0 ? &result : &ignored);
        HYPER_ASSIGN_OR_RETURN(const auto bundle,
                               codegen::BundleReader::Open(RealFileSystem(), bundle_path));
        HYPER_ASSIGN_OR_RETURN(const std::string json, bundle->ReadText("launch.json"));
        HYPER_ASSIGN_OR_RETURN(strategy::LaunchConfig launch,
                               strategy::LaunchConfig::FromJson(json));
        runtime::ExecutorOptions executor_options;
        executor_options.threads = options.threads;
        executor_options.reference_kernels = options.reference_kernels;
        executor_options.poison = options.poison;
        HYPER_ASSIGN_OR_RETURN(const auto executor,
                               runtime::Executor::Create(*bundle, executor_options));
        runtime::JobOptions job;
        job.communicator = &communicator;
        job.reporter = &recorder;
        job.overrides = options.overrides;
        job.steps = options.steps;
        job.write_files = false;
        job.fault = options.fault;
        HYPER_ASSIGN_OR_RETURN(const runtime::JobResult done,
                               runtime::RunJobOn(executor.get(), bundle->manifest().model_name, 1,
                                                 std::move(launch), job));
        if (communicator.rank() != 0) return Status::Ok();
        for (const program::Slot& slot : executor->program().slots()) {
          if (slot.storage() == program::GRADIENT) {
            result.gradients[slot.name()] = ReadSlot(*executor, slot);
          } else if (slot.storage() == program::PARAMETER || slot.storage() == program::STATE) {
            result.tensors[slot.name()] = ReadSlot(*executor, slot);
          }
        }
        result.touched = executor->Touched();
        return Status::Ok();
      });
  if (!status.ok()) return status;
  return result;
}

Digest DigestOf(const std::vector<double>& values, int projections) {
  Digest digest;
  for (const double value : values) digest.norm += value * value;
  digest.norm = std::sqrt(digest.norm);
  for (int k = 0; k < projections; ++k) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      uint64_t z = ((static_cast<uint64_t>(k) << 40) | i) + 0x9E3779B97F4A7C15ULL;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
      z = z ^ (z >> 31);
      sum += (z >> 63) != 0 ? -values[i] : values[i];
    }
    digest.projections.push_back(sum);
  }
  return digest;
}

Digest DigestFromJson(const nlohmann::json& json) {
  return {json.at("norm").get<double>(), json.at("projections").get<std::vector<double>>()};
}

double DigestError(const Digest& actual, const Digest& expected, double scale) {
  if (scale == 0) scale = expected.norm;
  double error = std::abs(actual.norm - expected.norm);
  for (size_t k = 0; k < expected.projections.size(); ++k) {
    error = std::max(error, std::abs(actual.projections[k] - expected.projections[k]));
  }
  // A tensor of zeros must stay one.
  return scale == 0 ? error : error / scale;
}

void Measured(const std::string& name, double value) {
  fmt::print("measured {} {:.3g}\n", name, value);
  std::fflush(stdout);
}

void Figure(const std::string& name, int64_t value) {
  fmt::print("figure {} {}\n", name, value);
  std::fflush(stdout);
}

double RelativeError(double actual, double expected) {
  return std::abs(actual - expected) / std::max(std::abs(expected), 1e-300);
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw std::runtime_error("cannot read " + path);
  return text.str();
}

}  // namespace hyper::e2e
