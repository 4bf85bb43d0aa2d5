// An Executor whose subprograms are C++ functions: a softmax classifier in f64 with a running mean
// of its inputs and a mask drawn from the rng key. Small enough to check the trainer by hand.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executor.h"

namespace hyper::runtime::testing {

struct FakeOptions {
  int64_t batch = 2;
  int64_t features = 3;
  int64_t classes = 4;
  bool counted = true;  // labels of kIgnore do not count; else every label does
  bool masked = true;   // zero half of the inputs, as dropout does
  bool clip = true;
  bool output_loss = false;  // the loss is a mean, as a model output would be
  double weight = 1;
  double momentum = 0.9;  // of the running mean
  // Duration of the backward part of each of the two parameters, before its marker.
  std::chrono::microseconds backward{0};
};

inline constexpr int64_t kIgnore = -100;

// Slots: parameters "weight" [F,C] and "bias" [C], frozen "shift" [F], state "mean" [F], inputs "x"
// [B,F] f64 and "labels" [B] i64. Bucket 0 is the bias (ready first), bucket 1 the weight.
class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(const FakeOptions& options);

  Status Run(const std::string& subprogram,
             const std::function<void(int bucket)>& on_marker) override;
  bool Has(const std::string& subprogram) const override;
  const program::Program& program() const override { return program_; }
  char* arena() override { return reinterpret_cast<char*>(arena_.data()); }
  int64_t arena_bytes() const override { return static_cast<int64_t>(arena_.size() * 8); }
  const Team& team() const override { return team_; }
  const program::Slot* FindSlot(program::Storage storage, const std::string& name,
                                const std::string& slot = {}) const override;
  void ReadOperand(const program::Operand& place, std::span<std::byte> row_major) const override;
  void WriteOperand(const program::Operand& place, std::span<const std::byte> row_major) override;
  void SetTimeSink(std::vector<InstructionTime>* sink) override { sink_ = sink; }

  // Elements of a slot.
  std::vector<double> Values(program::Storage storage, const std::string& name) const;
  void SetValues(program::Storage storage, const std::string& name,
                 const std::vector<double>& values);

 private:
  void AddSlot(program::Storage storage, const std::string& name, program::DType dtype,
               std::vector<int64_t> dims, const std::string& slot = {});
  program::Operand Place(const std::string& name, program::DType dtype, std::vector<int64_t> dims);
  double* Data(program::Storage storage, const std::string& name, const std::string& slot = {});
  int64_t* Ints(program::Storage storage, const std::string& name);
  void BuildProgram();
  void Count();
  void Forward(bool training, std::vector<double>* probabilities, double* loss);
  void Step(bool first, const std::function<void(int)>& on_marker);
  void Update();
  double* ResultData(const std::string& subprogram, const std::string& name);

  FakeOptions options_;
  Team team_{1};
  program::Program program_;
  std::vector<double> arena_;
  int64_t next_ = 0;            // bytes handed out
  std::vector<double> inputs_;  // masked inputs of the micro-batch
  std::vector<InstructionTime>* sink_ = nullptr;
};

}  // namespace hyper::runtime::testing
