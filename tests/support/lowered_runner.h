// Runs a lowered module in the test's own process: one buffer per root (poisoned, with guards),
// generated kernels compiled by the host compiler, library kernels through the reference kernels.
// Thread safety: none.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/types.h"
#include "lower/lowered.h"

namespace hyper::testing {

// Collects generated kernels of any number of modules and compiles them into one shared object.
class KernelSet {
 public:
  KernelSet();
  ~KernelSet();
  Status Add(const lower::LoweredModule& module);
  Status Compile();
  using Function = void (*)(char* const*, int64_t, int64_t);
  Function Find(const std::string& symbol) const;
  const std::string& folder() const { return folder_; }
  size_t size() const { return texts_.size(); }

 private:
  std::string folder_;
  std::map<std::string, std::string> texts_;
  std::vector<void*> handles_;
};

class LoweredRunner {
 public:
  LoweredRunner(const lower::LoweredModule& module, const KernelSet& kernels);
  // An argument's content (row-major); false when no root has that name.
  bool Set(lower::Storage storage, const std::string& name, const ir::HostTensor& value,
           const std::string& slot = {});
  ir::HostTensor Get(lower::Storage storage, const std::string& name,
                     const std::string& slot = {}) const;
  // Runs with every kernel cut into `tasks` tasks, run one after another in reverse order.
  Status Run(const std::string& function, int tasks);
  Result<ir::HostTensor> Result_(const std::string& function, const std::string& name) const;
  // Overwrites temporaries and results with a NaN pattern.
  void Poison();

 private:
  std::byte* Address(const lower::Operand& operand) const;
  Status RunReferenceOp(const std::string& op, const ir::Attributes& attributes, int64_t op_id,
                        const lower::LoweredOp& lowered);
  Status CheckGuards(const std::string& where) const;

  const lower::LoweredModule& module_;
  const KernelSet& kernels_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> base_;
};

}  // namespace hyper::testing
