#include "runtime/kernels/workspace.h"

#include <algorithm>

#include <fmt/format.h>
#include <omp.h>

#include "runtime/kernels/instruction_set.h"
#include "runtime/kernels/library_plan.h"

namespace hyper::runtime {
namespace {

// The math library takes its team size from OpenMP's setting for the calling thread.
class TeamSizeScope {
 public:
  explicit TeamSizeScope(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~TeamSizeScope() { omp_set_num_threads(before_); }
  TeamSizeScope(const TeamSizeScope&) = delete;
  TeamSizeScope& operator=(const TeamSizeScope&) = delete;

 private:
  int before_;
};

}  // namespace

std::vector<int> PlannedThreadCounts(int max_threads) {
  std::vector<int> counts;
  for (int threads = 1; threads < max_threads; threads *= 2) counts.push_back(threads);
  counts.push_back(max_threads);
  return counts;
}

Result<int64_t> WorkspaceBytes(const std::string& primitive, const std::string& op,
                               const ir::Attributes& attributes, Operands operands, int threads) {
  const TeamSizeScope scope(threads);
  HYPER_ASSIGN_OR_RETURN(const LibraryPlan plan,
                         PlanLibraryCall(primitive, op, attributes, operands, kAnyWorkspace));
  return plan.workspace_bytes;
}

Result<int64_t> WorkspaceCap(const std::string& primitive, const std::string& op,
                             const ir::Attributes& attributes, Operands operands, int max_threads) {
  int64_t cap = 0;
  for (const int threads : PlannedThreadCounts(max_threads)) {
    HYPER_ASSIGN_OR_RETURN(const int64_t bytes,
                           WorkspaceBytes(primitive, op, attributes, operands, threads));
    cap = std::max(cap, bytes);
  }
  return cap;
}

Result<std::unique_ptr<PreparedKernel>> PrepareLibrary(const program::LibraryCall& call,
                                                       const ir::Attributes& attributes,
                                                       Operands operands,
                                                       const PrepareContext& context) {
  if (context.reference_kernels) {
    return PrepareReference(call.op(), attributes, -1, operands, context);
  }
  int64_t cap = 0;
  char* workspace = nullptr;
  for (const program::Operand& operand : operands) {
    if (operand.access() != program::WORKSPACE) continue;
    cap = operand.end() - operand.begin();
    workspace = context.arena + operand.begin();
  }
  const int threads = context.team->size();
  const TeamSizeScope scope(threads);
  HYPER_ASSIGN_OR_RETURN(const LibraryPlan plan,
                         PlanLibraryCall(call.primitive(), call.op(), attributes, operands, cap));
  if (plan.reference) return PrepareReference(call.op(), attributes, -1, operands, context);
  if (plan.workspace_bytes > cap) {
    return ResourceExhausted(fmt::format(
        "{} needs a workspace of {} bytes with {} threads and the instruction set {} of this "
        "processor; the bundle plans {} bytes for up to {} threads: start with one of --threads "
        "{}, or compile again on such a processor with --threads {}",
        call.primitive(), plan.workspace_bytes, threads, InstructionSetName(), cap,
        context.planned_threads,
        fmt::join(PlannedThreadCounts(std::max(context.planned_threads, 1)), ", "), threads));
  }
  return Guard([&]() -> Result<std::unique_ptr<PreparedKernel>> {
    return Instantiate(plan, operands, context.arena, workspace);
  });
}

}  // namespace hyper::runtime
