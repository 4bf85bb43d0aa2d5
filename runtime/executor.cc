#include "runtime/executor.h"

#include <chrono>
#include <cstring>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <omp.h>

#include "runtime/kernels/instruction_set.h"
#include "runtime/kernels/kernels.h"
#include "runtime/poison.h"

namespace hyper::runtime {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Step {
  std::unique_ptr<PreparedKernel> kernel;  // null for markers
  int bucket = -1;
  int index = 0;  // of the instruction, for messages
};

struct PreparedProgram {
  const program::SubProgram* program = nullptr;
  std::vector<Step> steps;
  std::unique_ptr<PoisonGuard> poison;
};

class ProgramExecutor : public Executor {
 public:
  ProgramExecutor(const ExecutorOptions& options) : options_(options), team_(options.threads) {}

  Status Load(const codegen::BundleReader& bundle) {
    program_ = bundle.program();
    HYPER_RETURN_IF_ERROR(CheckThreads());
    if (UsesLibrary()) {
      HYPER_RETURN_IF_ERROR(CapInstructionSet(bundle.manifest().cpu_features));
    }
    HYPER_ASSIGN_OR_RETURN(arena_, Arena::Create(program_.arena_bytes()));
    HYPER_ASSIGN_OR_RETURN(library_, bundle.LoadKernels());
    HYPER_RETURN_IF_ERROR(LoadSlots(bundle));
    // The math library asks OpenMP for its team size on the calling thread.
    omp_set_num_threads(team_.size());
    const PrepareContext context{arena_->data(),     &team_,
                                 library_.get(),     options_.reference_kernels,
                                 program_.threads(), &staging_bytes_};
    for (const program::SubProgram& sub : program_.subprograms()) {
      PreparedProgram prepared;
      prepared.program = &sub;
      for (int i = 0; i < sub.instructions_size(); ++i) {
        const program::Instruction& instruction = sub.instructions(i);
        Step step;
        step.index = i;
        if (instruction.has_marker()) {
          step.bucket = instruction.marker().bucket();
        } else {
          auto kernel = PrepareInstruction(instruction, context);
          if (!kernel.ok()) {
            return kernel.status().WithContext(
                fmt::format("{} instruction {} ({})", sub.name(), i, instruction.source()));
          }
          step.kernel = std::move(kernel).value();
        }
        prepared.steps.push_back(std::move(step));
      }
      if (options_.poison) {
        prepared.poison = std::make_unique<PoisonGuard>(program_, sub, arena_->data());
      }
      prepared_.emplace(sub.name(), std::move(prepared));
    }
    return Status::Ok();
  }

  Status Run(const std::string& subprogram, const std::function<void(int)>& on_marker) override {
    const auto found = prepared_.find(subprogram);
    if (found == prepared_.end()) {
      return Internal(fmt::format("the bundle has no subprogram '{}'", subprogram));
    }
    PreparedProgram& prepared = found->second;
    omp_set_num_threads(team_.size());
    if (prepared.poison) prepared.poison->Begin();
    if (sink_ != nullptr) sink_->resize(prepared.steps.size());
    for (Step& step : prepared.steps) {
      if (step.kernel == nullptr) {
        if (on_marker) on_marker(step.bucket);
        continue;
      }
      const int64_t begin = sink_ != nullptr ? NowNs() : 0;
      if (Status status = step.kernel->Run(team_); !status.ok()) {
        return status.WithContext(fmt::format("{} instruction {} ({})", subprogram, step.index,
                                              prepared.program->instructions(step.index).source()));
      }
      if (sink_ != nullptr) (*sink_)[static_cast<size_t>(step.index)] = {begin, NowNs()};
      if (prepared.poison) HYPER_RETURN_IF_ERROR(prepared.poison->After(step.index));
    }
    return Status::Ok();
  }

  bool Has(const std::string& subprogram) const override { return prepared_.count(subprogram) > 0; }
  const program::Program& program() const override { return program_; }
  char* arena() override { return arena_->data(); }
  int64_t arena_bytes() const override { return program_.arena_bytes(); }
  int64_t staging_bytes() const override { return staging_bytes_; }
  const Team& team() const override { return team_; }

  const program::Slot* FindSlot(program::Storage storage, const std::string& name,
                                const std::string& slot) const override {
    const auto found = slots_.find({storage, name, slot});
    return found == slots_.end() ? nullptr : found->second;
  }
  void ReadOperand(const program::Operand& place, std::span<std::byte> row_major) const override {
    HYPER_CHECK(static_cast<int64_t>(row_major.size()) == TypeOf(place).bytes(), place.name());
    CopyToDense(place, arena_->data(), row_major.data());
  }
  void WriteOperand(const program::Operand& place, std::span<const std::byte> row_major) override {
    HYPER_CHECK(static_cast<int64_t>(row_major.size()) == TypeOf(place).bytes(), place.name());
    CopyFromDense(place, row_major.data(), arena_->data());
  }
  void SetTimeSink(std::vector<InstructionTime>* sink) override { sink_ = sink; }
  PoisonMarks Touched() const override {
    PoisonMarks all;
    for (const auto& [name, prepared] : prepared_) {
      if (!prepared.poison) continue;
      const PoisonMarks& marks = prepared.poison->marks();
      all.written = std::max(all.written, marks.written);
      all.written_by_results = std::max(all.written_by_results, marks.written_by_results);
      all.planned_touch = std::max(all.planned_touch, marks.planned_touch);
      all.workspaces.insert(all.workspaces.end(), marks.workspaces.begin(), marks.workspaces.end());
    }
    return all;
  }

 private:
  // Workspaces of library kernels grow with the number of threads.
  Status CheckThreads() const {
    if (program_.threads() == 0 || team_.size() <= program_.threads()) return Status::Ok();
    return ResourceExhausted(fmt::format(
        "this rank would use {0} threads, the bundle's memory is planned for up to {1}: start with "
        "--threads {1}, or compile again with --threads {0}",
        team_.size(), program_.threads()));
  }

  bool UsesLibrary() const {
    if (options_.reference_kernels) return false;
    for (const program::SubProgram& sub : program_.subprograms()) {
      for (const program::Instruction& instruction : sub.instructions()) {
        if (instruction.has_library()) return true;
      }
    }
    return false;
  }

  Status LoadSlots(const codegen::BundleReader& bundle) {
    std::vector<std::byte> staging;
    for (const program::Slot& slot : program_.slots()) {
      slots_.emplace(std::tuple(slot.storage(), slot.name(), slot.slot()), &slot);
      if (slot.data_bytes() == 0) continue;
      staging.resize(static_cast<size_t>(TypeOf(slot.place()).bytes()));
      HYPER_RETURN_IF_ERROR(bundle.ReadSlot(slot, staging));
      CopyFromDense(slot.place(), staging.data(), arena_->data());
    }
    return Status::Ok();
  }

  ExecutorOptions options_;
  Team team_;
  program::Program program_;
  std::unique_ptr<Arena> arena_;
  int64_t staging_bytes_ = 0;
  std::unique_ptr<codegen::KernelLibrary> library_;
  std::map<std::string, PreparedProgram> prepared_;
  std::map<std::tuple<program::Storage, std::string, std::string>, const program::Slot*> slots_;
  std::vector<InstructionTime>* sink_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Executor>> Executor::Create(const codegen::BundleReader& bundle,
                                                   const ExecutorOptions& options) {
  auto executor = std::make_unique<ProgramExecutor>(options);
  HYPER_RETURN_IF_ERROR(Guard([&] { return executor->Load(bundle); }));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace hyper::runtime
