// Compiles a model and trains it in this process, ranks as threads: what the end-to-end tests
// share.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "frontend/onnx/import.h"
#include "runtime/job.h"
#include "runtime/poison.h"

namespace hyper::e2e {

// Threads per rank that the tests' bundles are planned for, whatever machine compiles them.
inline constexpr int kPlannedThreads = 4;

// Compiles into a fresh folder below the test's temporary folder; returns the bundle's path. The
// text of the lowered, placed program (lower/print.h) lies beside it, as PATH.txt.
Result<std::string> CompileToBundle(const std::string& name, const std::string& model_path,
                                    const std::string& strategy_yaml,
                                    bool reference_kernels = false, int64_t guard_bytes = 0);

// Names of the float tensors of a model that can be trained or frozen.
Result<std::vector<std::string>> WeightsOf(const std::string& model_path);

struct TrainOptions {
  int replicas = 1;
  int64_t steps = 1;
  int threads = 1;
  std::vector<std::string> overrides;
  runtime::PlantedFault fault;
  bool reference_kernels = false;
  bool poison = false;
};

// What rank 0 saw.
struct TrainResult {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::map<std::string, std::vector<double>> gradients;  // of the last step, after the reduces
  std::map<std::string, std::vector<double>> tensors;    // parameters and states, row-major
  runtime::PoisonMarks touched;                          // with `poison`
};

Result<TrainResult> Train(const std::string& bundle, const TrainOptions& options);

// Every float tensor of the file that inspect would report as trained has a gradient in `result`,
// finite and with the exception of `zero` not all zeros; for every other one there is a reason.
void ExpectEveryWeightTrains(const std::string& model_path,
                             const onnx_frontend::ImportOptions& options, const TrainResult& result,
                             const std::set<std::string>& zero = {});

// The digest of tests/parity/README.md.
struct Digest {
  double norm = 0;
  std::vector<double> projections;
};
Digest DigestOf(const std::vector<double>& values, int projections = 8);
Digest DigestFromJson(const nlohmann::json& json);
// Largest difference of norm and projections, divided by `scale` (0: the expected norm).
double DigestError(const Digest& actual, const Digest& expected, double scale = 0);

// Prints `measured NAME VALUE` for scripts/claims.sh, which keeps the largest of a name.
void Measured(const std::string& name, double value);
// Prints `figure NAME VALUE`: a count that is the same on every machine; claims.sh adds them up.
void Figure(const std::string& name, int64_t value);

double RelativeError(double actual, double expected);
std::string ReadFileOrDie(const std::string& path);

}  // namespace hyper::e2e
