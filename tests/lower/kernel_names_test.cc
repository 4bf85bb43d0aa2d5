// The kernels that the op records name (hyperc ops, docs/ops.md) are those that lowering chooses,
// no more and no fewer, and the runtime prepares every library kernel among them.
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "ir/op_def.h"
#include "ir/text.h"
#include "lower/lowered.h"
#include "tests/codegen/emit_cases.h"
#include "tools/driver/workspace_query.h"

namespace hyper::lower {
namespace {

using Names = std::set<std::string>;

// What lowering chose for the ops of all cases. A generated kernel may compute several ops: an op
// counts as generated where it is in a case and has no other kernel there.
struct Chosen {
  std::map<std::string, Names> kernels;  // by core op
  int library_calls = 0;
};

void Count(const ir::Function& function, const LowerOptions& options, Chosen* chosen) {
  ir::Module module;
  module.functions.push_back(function);
  const Result<LoweredModule> lowered = Lower(module, options);
  ASSERT_TRUE(lowered.ok()) << lowered.status().ToString();
  std::map<std::string, Names> others;
  for (const LoweredOp& op : lowered->functions.at(0).ops) {
    if (const auto* library = std::get_if<LibraryKernel>(&op.kernel)) {
      others[library->op].insert(library->primitive);
      ++chosen->library_calls;
    } else if (const auto* reference = std::get_if<ReferenceKernel>(&op.kernel)) {
      others[reference->op].insert("reference");
    }
  }
  for (const ir::NodeId id : function.order()) {
    const std::string op(function.node(id).op->name);
    const auto it = others.find(op);
    if (it == others.end()) {
      if (!options.reference_kernels) chosen->kernels[op].insert("generated");
    } else {
      chosen->kernels[op].insert(it->second.begin(), it->second.end());
    }
  }
}

// What only training steps have.
constexpr std::string_view kUpdates = R"(module @updates {
  func @eval(
      %p: f32[4] input "p",
      %g: f32[4] input "g",
      %m: f32[4] input "m",
      %v: f32[4] input "v",
      %scale: i64[2] input "scale",
      %lr: f32[] scalar "lr",
      %clip: f32[] scalar "clip",
      %r: f64[] scalar "r",
      %step: i64[] scalar "step") {
    %0: f32[4] = accumulate(%p, %g)
    %1: f32[4] = accumulate_stat(%p, %g) {momentum = 0.9}
    %2: f32[4] = running_update(%p, %g, %scale) {momentum = 0.9}
    %3: f32[4] = stat_weight(%p, %scale) {momentum = 0.9}
    %4: f64[] = grad_norm_sq(%g)
    %5: f32[4] = sgd(%p, %g, %lr, %clip, %r)
    %6: f32[4], %7: f32[4] = momentum(%p, %g, %m, %lr, %clip, %r, %r, %step) {nesterov = false}
    %8, %9, %10 = adam(%p, %g, %m, %v, %lr, %clip, %r, %r, %r, %r, %step) {decoupled = true}
    return
      %0 as "r0",
      %1 as "r1",
      %2 as "r2",
      %3 as "r3",
      %4 as "r4",
      %5 as "r5",
      %6 as "r6",
      %7 as "r7",
      %8 as "r8",
      %9 as "r9",
      %10 as "r10"
  }
}
)";

// Over the emitter test's cases, which have every core op of models. The query fails where the
// runtime does not know the library kernel or cannot plan the call.
Chosen Choose(bool reference_kernels, WorkspaceQuery query) {
  Chosen chosen;
  LowerOptions options;
  options.reference_kernels = reference_kernels;
  options.workspace = std::move(query);
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kF64}) {
    for (const hyper::testing::EmitCase& c : hyper::testing::EmitCases(dtype)) {
      SCOPED_TRACE(c.name);
      Count(c.function, options, &chosen);
    }
  }
  const Result<ir::Module> updates = ir::Parse(kUpdates, "updates");
  EXPECT_TRUE(updates.ok()) << updates.status().ToString();
  if (updates.ok()) Count(*updates->Find("eval"), options, &chosen);
  return chosen;
}

TEST(KernelNames, RecordsNameWhatLoweringChooses) {
  const Chosen chosen = Choose(false, tools::MakeWorkspaceQuery(2));
  EXPECT_GT(chosen.library_calls, 4);
  for (const ir::OpDef* op : ir::CoreOps().ops()) {
    Names recorded(op->cpu_kernels.begin(), op->cpu_kernels.end());
    EXPECT_EQ(recorded.erase("reference"), 1U) << op->name;
    const auto it = chosen.kernels.find(std::string(op->name));
    if (it == chosen.kernels.end()) {
      ADD_FAILURE() << "no case has " << op->name;
      continue;
    }
    EXPECT_EQ(recorded, it->second) << op->name;
  }
}

TEST(KernelNames, ReferenceKernelsAreThereForEveryOpWhenAskedFor) {
  const Chosen chosen = Choose(true, {});
  for (const ir::OpDef* op : ir::CoreOps().ops()) {
    if (op->name == "constant") continue;  // filled at load
    const auto it = chosen.kernels.find(std::string(op->name));
    ASSERT_NE(it, chosen.kernels.end()) << op->name;
    EXPECT_EQ(it->second, Names{"reference"}) << op->name;
  }
}

// Every library kernel that is lowered is prepared: the query plans the very call that the runtime
// runs. A name that it does not have is refused.
TEST(KernelNames, TheRuntimePreparesEveryLibraryKernelOfTheRecords) {
  const WorkspaceQuery query = tools::MakeWorkspaceQuery(2);
  std::map<std::string, Names> prepared;
  int refused = 0;
  const Chosen chosen = Choose(
      false,
      [&](const LibraryKernel& kernel, std::span<const Operand> operands) -> Result<int64_t> {
        const Result<int64_t> bytes = query(kernel, operands);
        if (bytes.ok()) prepared[kernel.op].insert(kernel.primitive);
        LibraryKernel unknown = kernel;
        unknown.primitive = "onednn.pool";
        refused += query(unknown, operands).ok() ? 0 : 1;
        return bytes;
      });
  EXPECT_EQ(refused, chosen.library_calls);
  for (const ir::OpDef* op : ir::CoreOps().ops()) {
    for (const std::string_view name : op->cpu_kernels) {
      if (name.rfind("onednn.", 0) != 0) continue;
      EXPECT_TRUE(prepared[std::string(op->name)].count(std::string(name)))
          << op->name << " names " << name;
    }
  }
}

}  // namespace
}  // namespace hyper::lower
