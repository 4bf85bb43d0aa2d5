#include "offload/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/liveness.h"
#include "tests/offload/lowered_fixture.h"

namespace hyper::offload {
namespace {

using hyper::testing::LoweredBuilder;
using hyper::testing::TrainingModule;
using lower::Access;
using lower::Storage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlacedModule MustPlace(lower::LoweredModule module, const PlacementOptions& options = {}) {
  Result<PlacedModule> placed = Place(std::move(module), options);
  EXPECT_TRUE(placed.ok()) << placed.status().ToString();
  return placed.ok() ? *std::move(placed) : PlacedModule{};
}

std::string PlaceError(lower::LoweredModule module, const PlacementOptions& options = {}) {
  const Result<PlacedModule> placed = Place(std::move(module), options);
  return placed.ok() ? "" : placed.status().ToString();
}

int FindRoot(const PlacedModule& placed, Storage storage, const std::string& name,
             const std::string& slot = {}) {
  for (size_t i = 0; i < placed.module.roots.size(); ++i) {
    const lower::Root& root = placed.module.roots[i];
    if (root.storage == storage && root.name == name && root.slot == slot) {
      return static_cast<int>(i);
    }
  }
  ADD_FAILURE() << "no root '" << name << "'";
  return 0;
}

int64_t OffsetOf(const PlacedModule& placed, Storage storage, const std::string& name,
                 const std::string& slot = {}) {
  return placed.offsets[static_cast<size_t>(FindRoot(placed, storage, name, slot))];
}

const RegionPlan& Region(const PlacedModule& placed, Storage storage) {
  return *std::find_if(placed.regions.begin(), placed.regions.end(),
                       [&](const RegionPlan& region) { return region.storage == storage; });
}

// Live bytes at every op, straight from the definition: a temporary is alive at op t when an op at
// or before t and one at or after t touch it.
int64_t RecomputedBound(const lower::LoweredModule& module, const lower::LoweredFunction& f) {
  std::vector<int64_t> live(f.ops.size(), 0);
  for (size_t r = 0; r < module.roots.size(); ++r) {
    if (module.roots[r].storage != Storage::kTemporary) continue;
    std::vector<bool> touched(f.ops.size(), false);
    for (size_t op = 0; op < f.ops.size(); ++op) {
      for (const lower::Operand& operand : f.ops[op].operands) {
        if (operand.root.index == static_cast<int>(r)) touched[op] = true;
      }
    }
    for (size_t t = 0; t < f.ops.size(); ++t) {
      const auto at = touched.begin() + static_cast<ptrdiff_t>(t);
      const bool before = std::find(touched.begin(), at + 1, true) != at + 1;
      const bool after = std::find(at, touched.end(), true) != touched.end();
      if (before && after) {
        live[t] += module.roots[r].elements * ir::DTypeBytes(module.roots[r].dtype);
      }
    }
  }
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

// Pairs of temporaries that live together and share a byte.
void ExpectNoOverlap(const PlacedModule& placed) {
  for (const lower::LoweredFunction& f : placed.module.functions) {
    std::map<int, std::pair<int, int>> life;
    for (int op = 0; op < static_cast<int>(f.ops.size()); ++op) {
      for (const lower::Operand& operand : f.ops[static_cast<size_t>(op)].operands) {
        life.try_emplace(operand.root.index, op, op).first->second.second = op;
      }
    }
    for (const auto& [a, life_a] : life) {
      for (const auto& [b, life_b] : life) {
        if (a >= b) continue;
        const lower::Root& root_a = placed.module.roots[static_cast<size_t>(a)];
        const lower::Root& root_b = placed.module.roots[static_cast<size_t>(b)];
        const bool both_temporary =
            root_a.storage == Storage::kTemporary && root_b.storage == Storage::kTemporary;
        if (both_temporary && (life_a.second < life_b.first || life_b.second < life_a.first)) {
          continue;
        }
        const int64_t begin_a = placed.offsets[static_cast<size_t>(a)];
        const int64_t begin_b = placed.offsets[static_cast<size_t>(b)];
        const int64_t end_a = begin_a + root_a.elements * ir::DTypeBytes(root_a.dtype);
        const int64_t end_b = begin_b + root_b.elements * ir::DTypeBytes(root_b.dtype);
        EXPECT_TRUE(end_a <= begin_b || end_b <= begin_a)
            << f.name << ": " << root_a.name << " and " << root_b.name;
      }
    }
  }
}

std::vector<int64_t> Widths(int blocks, int kind) {
  std::vector<int64_t> widths = {96};
  for (int i = 0; i < blocks; ++i) {
    if (kind == 0) widths.push_back(128);
    if (kind == 1) widths.push_back(std::max<int64_t>(2048 >> (i / 6), 16));  // convolutional net
    if (kind == 2) widths.push_back(i % 4 == 1 ? 512 : 128);                  // transformer
    if (kind == 3) widths.push_back(17 + (i * 7919) % 301);                   // odd
  }
  return widths;
}

class PeakTest : public ::testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(PeakTest, IsNearTheRecomputedBound) {
  const auto [blocks, kind, residual] = GetParam();
  const PlacedModule placed = MustPlace(TrainingModule(Widths(blocks, kind), 16, residual));
  ASSERT_EQ(placed.functions.size(), placed.module.functions.size());
  ExpectNoOverlap(placed);
  for (size_t f = 0; f < placed.functions.size(); ++f) {
    const FunctionPlan& plan = placed.functions[f];
    const int64_t bound = RecomputedBound(placed.module, placed.module.functions[f]);
    EXPECT_EQ(plan.live_lower_bound, bound) << plan.name;
    EXPECT_LE(static_cast<double>(plan.temporary_peak), 1.1 * static_cast<double>(bound))
        << plan.name;
    EXPECT_GE(plan.temporary_peak, bound) << plan.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, PeakTest,
                         ::testing::Combine(::testing::Values(25, 100),
                                            ::testing::Values(0, 1, 2, 3), ::testing::Bool()));

TEST(PlacementTest, RegionsFollowStorageOrderWithoutGaps) {
  const PlacedModule placed = MustPlace(TrainingModule({8, 8, 8}, 4, false));
  ASSERT_EQ(placed.regions.size(), 11u);
  int64_t end = 0;
  for (size_t i = 0; i < placed.regions.size(); ++i) {
    EXPECT_EQ(placed.regions[i].storage, static_cast<Storage>(i));
    EXPECT_EQ(placed.regions[i].begin, end);
    end = placed.regions[i].end;
  }
  EXPECT_EQ(placed.arena_bytes, end);
  for (size_t i = 0; i < placed.offsets.size(); ++i) {
    const RegionPlan& region = Region(placed, placed.module.roots[i].storage);
    EXPECT_EQ(placed.offsets[i] % kAlignment, 0);
    EXPECT_GE(placed.offsets[i], region.begin);
    EXPECT_LE(placed.offsets[i] + RootBytes(placed.module.roots[i]), region.end);
  }
}

TEST(PlacementTest, ParameterRangesAreCongruentInParameterOrder) {
  lower::LoweredModule module = TrainingModule({7, 5, 3, 9}, 4, false);
  const std::vector<std::string> order = module.parameter_order;
  const PlacedModule placed = MustPlace(std::move(module));
  int64_t last = -1;
  for (const std::string& name : order) {
    const int64_t offset =
        OffsetOf(placed, Storage::kParameter, name) - Region(placed, Storage::kParameter).begin;
    EXPECT_GT(offset, last);
    last = offset;
    EXPECT_EQ(OffsetOf(placed, Storage::kGradient, name) - Region(placed, Storage::kGradient).begin,
              offset);
    EXPECT_EQ(OffsetOf(placed, Storage::kOptimizer, name, "momentum") -
                  Region(placed, Storage::kOptimizer).begin,
              offset);
  }
}

TEST(PlacementTest, EachOptimizerSlotIsARangeOfItsOwn) {
  LoweredBuilder b;
  lower::LoweredFunction f{.name = "update"};
  for (const char* name : {"a", "b"}) {
    for (const char* slot : {"m", "v"}) {
      const int root = b.Root(name, Storage::kOptimizer, {5}, ir::DType::kF32, slot);
      b.Call(f, "adam", {b.Whole(root, Access::kReadWrite)});
    }
  }
  b.module.functions.push_back(std::move(f));
  b.module.parameter_order = {"b", "a"};
  const PlacedModule placed = MustPlace(std::move(b.module));
  EXPECT_THAT((std::vector<int64_t>{OffsetOf(placed, Storage::kOptimizer, "b", "m"),
                                    OffsetOf(placed, Storage::kOptimizer, "a", "m"),
                                    OffsetOf(placed, Storage::kOptimizer, "b", "v"),
                                    OffsetOf(placed, Storage::kOptimizer, "a", "v")}),
              ElementsAre(0, 64, 128, 192));
}

TEST(PlacementTest, ParametersWithoutGradientLieBehindTheOthers) {
  LoweredBuilder b;
  const int plain = b.Root("plain", Storage::kParameter, {4});
  const int trained = b.Root("trained", Storage::kParameter, {4});
  const int out = b.Root("out", Storage::kResult, {4});
  b.Call(b.Function("eval"), "add", {b.Read(plain), b.Read(trained), b.Write(out)});
  b.module.parameter_order = {"trained"};
  const PlacedModule placed = MustPlace(std::move(b.module));
  EXPECT_EQ(OffsetOf(placed, Storage::kParameter, "trained"), 0);
  EXPECT_EQ(OffsetOf(placed, Storage::kParameter, "plain"), 64);
}

TEST(PlacementTest, UnusedRootsGetNoAddress) {
  lower::LoweredModule module = TrainingModule({8, 8}, 4, false);
  lower::Root unused = module.roots[0];
  unused.name = "unused";
  unused.storage = Storage::kFrozen;
  module.roots.push_back(unused);
  const PlacedModule placed = MustPlace(std::move(module));
  EXPECT_EQ(placed.offsets.back(), -1);
  EXPECT_EQ(Region(placed, Storage::kFrozen).begin, Region(placed, Storage::kFrozen).end);
}

TEST(PlacementTest, FunctionsShareOneTemporaryRegion) {
  const PlacedModule placed = MustPlace(TrainingModule({64, 64, 64, 64}, 16, false));
  int64_t peak = 0;
  for (const FunctionPlan& plan : placed.functions) peak = std::max(peak, plan.temporary_peak);
  const RegionPlan& region = Region(placed, Storage::kTemporary);
  EXPECT_GE(region.end - region.begin, peak);
  EXPECT_LT(region.end - region.begin, peak + kAlignment);
}

TEST(PlacementTest, ReturnedTemporariesBecomeResults) {
  LoweredBuilder b;
  const int x = b.Root("x", Storage::kInput, {16});
  const int y = b.Temporary({16});
  lower::LoweredFunction& f = b.Function("eval");
  b.Call(f, "op", {b.Read(x), b.Write(y)});
  f.results.push_back({"y", b.Read(y)});
  const PlacedModule placed = MustPlace(std::move(b.module));
  EXPECT_EQ(placed.module.roots[static_cast<size_t>(y)].storage, Storage::kResult);
  const RegionPlan& results = Region(placed, Storage::kResult);
  EXPECT_EQ(placed.offsets[static_cast<size_t>(y)], results.begin);
  EXPECT_EQ(results.end - results.begin, 64);
}

TEST(PlacementTest, GuardsSeparateAllRoots) {
  const PlacedModule placed = MustPlace(TrainingModule({8, 8, 8}, 4, false), {.guard_bytes = 100});
  ExpectNoOverlap(placed);
  std::vector<std::pair<int64_t, int64_t>> persistent;
  for (size_t i = 0; i < placed.offsets.size(); ++i) {
    if (placed.module.roots[i].storage == Storage::kTemporary) continue;
    persistent.emplace_back(placed.offsets[i],
                            placed.offsets[i] + RootBytes(placed.module.roots[i]));
  }
  std::sort(persistent.begin(), persistent.end());
  for (size_t i = 1; i < persistent.size(); ++i) {
    EXPECT_GE(persistent[i].first - persistent[i - 1].second, 100);
  }
}

TEST(PlacementTest, BucketsAreContiguousPiecesInOrder) {
  // Each gradient has 64*64*4 = 16 KiB.
  const PlacedModule placed =
      MustPlace(TrainingModule({64, 64, 64, 64, 64, 64}, 4, false), {.bucket_bytes = 40 << 10});
  ASSERT_EQ(placed.buckets.size(), 3u);
  const RegionPlan& region = Region(placed, Storage::kGradient);
  int64_t at = region.begin;
  std::vector<std::string> all;
  for (const GradientBucket& bucket : placed.buckets) {
    EXPECT_EQ(bucket.begin, at);
    EXPECT_LE(bucket.end - bucket.begin, 40 << 10);
    at = bucket.end;
    all.insert(all.end(), bucket.parameters.begin(), bucket.parameters.end());
  }
  EXPECT_EQ(at, region.end);
  EXPECT_EQ(all, placed.module.parameter_order);
}

TEST(PlacementTest, AGradientAboveTheBucketSizeIsABucketOfItsOwn) {
  const PlacedModule placed =
      MustPlace(TrainingModule({8, 64, 64, 8}, 4, false), {.bucket_bytes = 4 << 10});
  ASSERT_EQ(placed.buckets.size(), 3u);
  EXPECT_THAT(placed.buckets[1].parameters, ElementsAre("block1.weight"));
}

TEST(PlacementTest, OneMarkerPerBucketRightBehindItsLastGradient) {
  const PlacedModule placed =
      MustPlace(TrainingModule({64, 64, 64, 64, 64, 64}, 4, false), {.bucket_bytes = 40 << 10});
  for (const lower::LoweredFunction& f : placed.module.functions) {
    std::vector<std::vector<std::string>> markers;
    for (size_t op = 0; op < f.ops.size(); ++op) {
      const auto* marker = std::get_if<lower::MarkerKernel>(&f.ops[op].kernel);
      if (marker == nullptr) continue;
      markers.push_back(marker->parameters);
      ASSERT_GT(op, 0u);
      bool writes = false;  // the op before writes a gradient of this bucket
      for (const lower::Operand& operand : f.ops[op - 1].operands) {
        const lower::Root& root = placed.module.roots[static_cast<size_t>(operand.root.index)];
        writes = writes || (root.storage == Storage::kGradient && operand.access != Access::kRead &&
                            root.name == marker->parameters.back());
      }
      EXPECT_TRUE(writes) << f.name << " op " << op;
    }
    const bool step = f.name == "step_first" || f.name == "step_next";
    ASSERT_EQ(markers.size(), step ? placed.buckets.size() : 0u) << f.name;
    for (size_t i = 0; i < markers.size(); ++i) {
      EXPECT_EQ(markers[i], placed.buckets[i].parameters);
    }
  }
}

TEST(PlacementTest, EqualInputGivesEqualPlans) {
  const PlacedModule a = MustPlace(TrainingModule(Widths(60, 3), 16, true));
  const PlacedModule b = MustPlace(TrainingModule(Widths(60, 3), 16, true));
  EXPECT_EQ(a.offsets, b.offsets);
}

TEST(PlacementTest, InferenceHasNoBuckets) {
  LoweredBuilder b;
  const int x = b.Root("x", Storage::kInput, {4});
  const int y = b.Root("y", Storage::kResult, {4});
  b.Call(b.Function("eval"), "op", {b.Read(x), b.Write(y)});
  EXPECT_TRUE(MustPlace(std::move(b.module)).buckets.empty());
}

TEST(PlacementTest, RefusesBrokenModules) {
  lower::LoweredModule twice = TrainingModule({8, 8}, 4, false);
  twice.parameter_order.push_back(twice.parameter_order[0]);
  EXPECT_THAT(PlaceError(twice), HasSubstr("twice in the parameter order"));

  lower::LoweredModule unordered = TrainingModule({8, 8}, 4, false);
  unordered.parameter_order.clear();
  EXPECT_THAT(PlaceError(unordered), HasSubstr("no place in the parameter order"));

  lower::LoweredModule unequal = TrainingModule({8, 8}, 4, false);
  for (lower::Root& root : unequal.roots) {
    if (root.storage == Storage::kGradient) root.elements = 3;
  }
  EXPECT_THAT(PlaceError(unequal), HasSubstr("64 elements of f32 in one range and 3"));

  lower::LoweredModule unknown = TrainingModule({8, 8}, 4, false);
  unknown.functions[0].ops[0].operands[0].root.index = 999;
  EXPECT_THAT(PlaceError(unknown), HasSubstr("names root 999"));

  lower::LoweredModule silent = TrainingModule({8, 8}, 4, false);
  for (lower::LoweredOp& op : silent.functions[1].ops) {
    for (lower::Operand& operand : op.operands) operand.access = Access::kRead;
  }
  EXPECT_THAT(PlaceError(silent), HasSubstr("@step_next never writes the gradient"));

  LoweredBuilder shared;
  const int t = shared.Temporary({4});
  shared.Call(shared.Function("count"), "op", {shared.Write(t)});
  shared.Call(shared.Function("eval"), "op", {shared.Read(t)});
  EXPECT_THAT(PlaceError(shared.module), HasSubstr("is used by @count and @eval"));

  EXPECT_THAT(PlaceError(TrainingModule({8, 8}, 4, false), {.bucket_bytes = 0}),
              HasSubstr("bucket size"));
}

}  // namespace
}  // namespace hyper::offload
