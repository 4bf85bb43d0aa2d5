// Workspaces of library kernels: which thread counts a plan covers, what is refused at load and
// with which numbers, what is taken instead.
#include "runtime/kernels/workspace.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "runtime/kernels/library_plan.h"

namespace hyper::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The weight gradient of a 3x3 convolution over 16 samples: threads sum parts of their own, so that
// the need grows with their number.
struct Gradient {
  Gradient() {
    call.set_primitive("onednn.conv");
    call.set_op("conv_grad_weight");
    const ir::Dims activation = {16, 32, 16, 16};
    const ir::Dims weight = {32, 32, 3, 3};
    Add(activation, {32 * 256, 1, 32 * 16, 32}, program::READ);
    Add(activation, {32 * 256, 1, 32 * 16, 32}, program::READ);
    Add(weight, ir::RowMajorStrides(weight), program::WRITE);
    for (const char* name : {"strides", "dilations", "pads_low", "pads_high"}) {
      attributes.Set(name, ir::Dims{1, 1});
    }
    attributes.Set("groups", int64_t{1});
    attributes.Set("weight_shape", weight);
  }
  void Add(const ir::Dims& dims, const ir::Dims& strides, program::Access access,
           program::DType dtype = program::F32) {
    program::Operand& operand = operands.emplace_back();
    operand.set_dtype(dtype);
    operand.set_access(access);
    operand.mutable_dims()->Add(dims.begin(), dims.end());
    operand.mutable_strides()->Add(strides.begin(), strides.end());
    operand.set_offset(next);
    operand.set_begin(next);
    const int64_t bytes = ir::ElementCount(dims) * (dtype == program::F32 ? 4 : 1);
    operand.set_end(next + bytes);
    next += (bytes + 63) / 64 * 64;
  }
  int64_t Bytes(int threads) const {
    const auto bytes = WorkspaceBytes(call.primitive(), call.op(), attributes, operands, threads);
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    return bytes.ok() ? *bytes : -1;
  }
  Status Prepare(int threads, int64_t workspace) {
    if (workspace > 0) Add({workspace}, {1}, program::WORKSPACE, program::U8);
    const auto arena = Arena::Create(next);
    Team team(threads);
    PrepareContext context;
    context.arena = (*arena)->data();
    context.team = &team;
    context.planned_threads = 2;
    return PrepareLibrary(call, attributes, operands, context).status();
  }

  program::LibraryCall call;
  ir::Attributes attributes;
  std::vector<program::Operand> operands;
  int64_t next = 0;
};

TEST(Workspace, PlansLookAtPowersOfTwoAndTheLimit) {
  EXPECT_THAT(PlannedThreadCounts(1), ElementsAre(1));
  EXPECT_THAT(PlannedThreadCounts(2), ElementsAre(1, 2));
  EXPECT_THAT(PlannedThreadCounts(6), ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(PlannedThreadCounts(16), ElementsAre(1, 2, 4, 8, 16));
}

TEST(Workspace, TheCapIsTheLargestNeedAndLeavesTheTeamAlone) {
  const Gradient gradient;
  omp_set_num_threads(3);
  const auto cap =
      WorkspaceCap("onednn.conv", "conv_grad_weight", gradient.attributes, gradient.operands, 8);
  EXPECT_EQ(omp_get_max_threads(), 3);
  ASSERT_TRUE(cap.ok()) << cap.status().ToString();
  EXPECT_EQ(*cap,
            std::max({gradient.Bytes(1), gradient.Bytes(2), gradient.Bytes(4), gradient.Bytes(8)}));
  EXPECT_GT(gradient.Bytes(8), gradient.Bytes(1));
}

TEST(Workspace, ExactlyTheNeedIsEnough) {
  EXPECT_TRUE(Gradient().Prepare(2, Gradient().Bytes(2)).ok());
}

TEST(Workspace, RefusesWithTheNumbers) {
  // What the least demanding implementation needs.
  Gradient gradient;
  omp_set_num_threads(4);
  const auto least =
      PlanLibraryCall("onednn.conv", "conv_grad_weight", gradient.attributes, gradient.operands, 0);
  ASSERT_TRUE(least.ok());
  ASSERT_GT(least->workspace_bytes, 1);
  const Status status = gradient.Prepare(4, least->workspace_bytes - 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ExitCode(status.code()), 4);
  EXPECT_THAT(status.message(),
              HasSubstr(fmt::format("needs a workspace of {} bytes", least->workspace_bytes)));
  EXPECT_THAT(status.message(),
              HasSubstr(fmt::format("plans {} bytes for up to 2", least->workspace_bytes - 1)));
  EXPECT_THAT(status.message(), HasSubstr("one of --threads 1, 2, or compile again"));
  EXPECT_EQ(Gradient().Prepare(4, 0).code(), StatusCode::kResourceExhausted);
}

TEST(Workspace, TakesAnotherImplementationWithinTheCap) {
  const Gradient gradient;
  omp_set_num_threads(4);
  const auto plan = [&](int64_t cap) {
    return *PlanLibraryCall("onednn.conv", "conv_grad_weight", gradient.attributes,
                            gradient.operands, cap);
  };
  const int64_t best = plan(kAnyWorkspace).workspace_bytes;
  const int64_t least = plan(0).workspace_bytes;
  EXPECT_EQ(plan(best).workspace_bytes, best);
  EXPECT_LE(least, best);
  if (least < best) {
    EXPECT_LE(plan(best - 1).workspace_bytes, best - 1);
  }
}

TEST(Workspace, UnknownKernelsAreNamed) {
  const auto plan = PlanLibraryCall("onednn.sort", "sort", {}, {}, 0);
  EXPECT_EQ(plan.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(plan.status().message(), HasSubstr("onednn.sort"));
}

}  // namespace
}  // namespace hyper::runtime
