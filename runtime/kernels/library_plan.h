// What a call of the math library will do, decided without touching memory: which implementations
// run in which order and how they share the instruction's workspace. hyperc asks for the size of
// that workspace, hyperrun prepares the kernel from the same plan, so that the two cannot differ.
//
// A workspace holds, in this order: operands that are converted because the library does not take
// them as they lie, then the scratchpad that the primitives of the call use one after another.
// Thread safety: pure functions. Plans depend on the calling thread's OpenMP team size
// (omp_set_num_threads) and on the instruction set (runtime/kernels/instruction_set.h).
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/kernels/kernels.h"
#include "runtime/kernels/onednn_util.h"

namespace hyper::runtime {

struct LibraryPlan {
  // Memory of one argument: operand `operand` of the instruction, or (-1) the workspace at
  // `offset`.
  struct Place {
    dnnl::memory::desc desc;
    int operand = -1;
    int64_t offset = 0;
  };
  struct Call {
    std::function<dnnl::primitive()> make;
    std::vector<std::pair<int, Place>> arguments;
  };
  std::vector<Call> calls;  // run in order
  int64_t workspace_bytes = 0;
  bool reference = false;  // nothing to compute or to sum: left to the reference kernel
};

inline constexpr int64_t kAnyWorkspace = std::numeric_limits<int64_t>::max();

// The fastest plan within `cap` bytes of workspace or, when there is none, the one that needs least
// (the caller compares). `operands`: those of the instruction; only type, strides and access count.
// kDataLoss: unknown primitive or op.
Result<LibraryPlan> PlanLibraryCall(const std::string& primitive, const std::string& op,
                                    const ir::Attributes& attributes, Operands operands,
                                    int64_t cap);

// Addresses for a plan. `operands` as planned, with their offsets in `arena`; `workspace` has
// `plan.workspace_bytes` bytes (null when that is 0).
std::unique_ptr<PreparedKernel> Instantiate(const LibraryPlan& plan, Operands operands, char* arena,
                                            char* workspace);

// ---- For the kernel families.

Result<LibraryPlan> PlanMatmul(const ir::Attributes& attributes, Operands operands, int64_t cap);
Result<LibraryPlan> PlanConvolution(const std::string& op, const ir::Attributes& attributes,
                                    Operands operands, int64_t cap);

dnnl::primitive_attr UserScratchpad();

// Puts one primitive together with the reorders that its operands need.
class LibraryPlanner {
 public:
  explicit LibraryPlanner(Operands operands) : operands_(operands) {}

  // Operand `index` in layout `wanted`: itself when it lies so, else a buffer of the workspace that
  // a reorder fills before the primitive runs.
  LibraryPlan::Place Input(int index, const dnnl::memory::desc& have,
                           const dnnl::memory::desc& wanted);
  // The result in layout `wanted`. When it lies elsewhere, or is accumulated and the primitive
  // cannot add (`adds` false), it is reordered (and added) into place afterwards.
  LibraryPlan::Place Output(int index, const dnnl::memory::desc& have,
                            const dnnl::memory::desc& wanted, bool adds = false);

  LibraryPlan Finish(std::function<dnnl::primitive()> make,
                     std::vector<std::pair<int, LibraryPlan::Place>> arguments,
                     const dnnl::memory::desc& scratchpad);

 private:
  LibraryPlan::Place Buffer(const dnnl::memory::desc& desc);
  LibraryPlan::Call Reorder(const LibraryPlan::Place& from, const LibraryPlan::Place& to,
                            bool accumulate) const;

  Operands operands_;
  int64_t buffer_bytes_ = 0;
  std::vector<LibraryPlan::Call> before_;
  std::vector<LibraryPlan::Call> after_;
};

// True for the library's plain-loop implementations, which are never what we want on a hot path.
inline bool IsSlowImplementation(std::string_view name) {
  return name.find("ref") != std::string_view::npos;
}

// Chooses among implementations that are offered best first.
class PlanChoice {
 public:
  explicit PlanChoice(int64_t cap) : cap_(cap) {}

  // Walks the implementations of `desc` (a dnnl primitive_desc), planned by `plan(desc)`; true when
  // one fits. Plain loops are skipped.
  template <typename Desc, typename Plan>
  bool Offer(Desc desc, const Plan& plan) {
    do {
      if (IsSlowImplementation(desc.impl_info_str())) return false;
      // Stepping to the next implementation changes the description in place; plans keep theirs.
      dnnl_primitive_desc_t copy = nullptr;
      dnnl::error::wrap_c_api(dnnl_primitive_desc_clone(&copy, desc.get()), "cannot copy");
      Desc kept;
      kept.reset(copy);
      LibraryPlan candidate = plan(kept);
      const bool fits = candidate.workspace_bytes <= cap_;
      if (fits || best_.calls.empty() || candidate.workspace_bytes < best_.workspace_bytes) {
        best_ = std::move(candidate);
      }
      if (fits) return true;
    } while (desc.next_impl());
    return false;
  }
  bool empty() const { return best_.calls.empty(); }
  LibraryPlan Take() { return std::move(best_); }

 private:
  int64_t cap_;
  LibraryPlan best_;
};

}  // namespace hyper::runtime
