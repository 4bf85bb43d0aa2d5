// mpirun hyperrun BUNDLE: connects the ranks, runs the job, exports the result.
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/status.h"
#include "codegen/manifest.h"
#include "frontend/onnx/export.h"
#include "runtime/agree.h"
#include "runtime/job.h"
#include "runtime/loopback_communicator.h"
#include "runtime/mpi_communicator.h"
#include "runtime/progress.h"
#include "tools/hyperrun/options.h"
#include "tools/hyperrun/stop_signals.h"

namespace hyper::tools {
namespace {

void WriteOut(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int TerminalWidth() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Whether people watch. Launchers put a pseudo-terminal between rank 0 and themselves, whatever
// their own output is: then the launcher's standard output counts, or none when it cannot be seen.
bool OnTerminal() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  if (!runtime::LaunchedByMpi()) return true;
  const std::string link = "/proc/" + std::to_string(getppid()) + "/fd/1";
  char target[64] = {};
  const ssize_t length = readlink(link.c_str(), target, sizeof(target) - 1);
  const std::string_view name(target, length > 0 ? static_cast<size_t>(length) : 0);
  return name.starts_with("/dev/pts/") || name.starts_with("/dev/tty");
}

// Alone without a launcher: one rank, no MPI start-up.
Result<std::unique_ptr<runtime::Communicator>> Connect() {
  if (runtime::LaunchedByMpi()) return runtime::MakeMpiCommunicator();
  return std::move(runtime::MakeLoopback(1).front());
}

Status Export(const RunOptions& options, const runtime::JobResult& result) {
  HYPER_RETURN_IF_ERROR(
      onnx_frontend::ExportTrained(result.text, result.tensors, options.export_path));
  WriteOut("exported " + options.export_path + "\n");
  return Status::Ok();
}

// `stop` as in JobOptions. `alone`: set when the failure may be this rank's alone.
Status Run(const RunOptions& options, runtime::Communicator* communicator,
           const std::atomic<bool>* stop, bool* alone) {
  runtime::TextReporterOptions text;
  text.terminal = OnTerminal();
  text.width = TerminalWidth;
  text.log_every = 0;  // as the launch keys say
  const std::unique_ptr<runtime::Reporter> reporter = runtime::MakeTextReporter(WriteOut, text);

  runtime::JobOptions job;
  job.communicator = communicator;
  job.reporter = reporter.get();
  job.overrides = options.overrides;
  if (options.steps) job.steps = *options.steps;
  job.eval_only = options.eval;
  job.outputs_dir = options.outputs;
  job.dry_run = options.dry_run;
  job.checkpoint = options.checkpoint;
  job.trace = options.trace;
  job.overwrite = options.overwrite;
  job.stop = stop;
  job.alone = alone;
  if (!options.export_path.empty()) {
    job.outputs = {options.export_path};
    job.keep_text = codegen::kModelFile;  // the bundle may be gone when the training is over
  }
  job.overlap = options.overlap;
  job.threads = options.threads;
  job.reference_kernels = options.kernels == "reference";
  HYPER_ASSIGN_OR_RETURN(const runtime::JobResult result, runtime::RunJob(options.bundle, job));

  Status exported;
  if (!options.export_path.empty() && communicator->rank() == 0 && !options.dry_run) {
    exported = Export(options, result);
  }
  return runtime::AgreeOn(communicator, exported);
}

int Main(int argc, char** argv) {
  RunOptions options;
  if (const std::optional<int> code = ParseRunOptions(argc, argv, &options)) return *code;
  // An evaluation has nothing to save: it ends at once. Before MPI makes threads of its own.
  Result<const std::atomic<bool>*> stop = nullptr;
  if (!options.eval && !options.dry_run && options.outputs.empty()) stop = CatchStopSignals();
  if (!stop.ok()) {
    std::fprintf(stderr, "hyperrun: %s\n", stop.status().ToString().c_str());
    return ExitCode(stop.status().code());
  }
  auto communicator = Connect();
  Status status = communicator.status();
  bool alone = false;
  if (status.ok()) {
    status = Guard([&]() -> Status {
      try {
        return Run(options, communicator->get(), *stop, &alone);
      } catch (const std::exception&) {
        alone = true;  // what is thrown up to here was agreed on with nobody
        throw;
      } catch (...) {
        return Internal("an exception that tells nothing");
      }
    });
  }
  if (status.ok()) return 0;
  const int rank = communicator.ok() ? (*communicator)->rank() : 0;
  const int code = ExitCode(status.code());
  if (status.code() == StatusCode::kCancelled) {
    if (rank == 0) std::fprintf(stderr, "hyperrun: %s\n", status.ToString().c_str());
    return code;
  }
  // An agreed failure is the same everywhere: one rank says it. A lost peer is seen by some only.
  alone = alone || IsCommunicationError(status.code()) || status.code() == StatusCode::kInternal;
  if (rank == 0 || alone) {
    std::fprintf(stderr, "hyperrun: rank %d: %s\n", rank, status.ToString().c_str());
  }
  if (alone) runtime::AbortMpi(code);
  return code;
}

}  // namespace
}  // namespace hyper::tools

int main(int argc, char** argv) { return hyper::tools::Main(argc, argv); }
