// Paths between layouts: right on virtual ranks, and the cheapest.
#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partition/redistribute.h"
#include "tests/partition/virtual_ranks.h"

namespace hyper::partition {
namespace {

using ::testing::HasSubstr;

struct Fixture {
  Mesh mesh;
  std::vector<int64_t> extents;
  Local whole;

  Fixture(std::vector<MeshAxis> axes, std::vector<int64_t> dims)
      : mesh(MakeMesh(std::move(axes))), extents(std::move(dims)) {
    whole.extents = extents;
    for (size_t k = 0; k < Count(extents); ++k) whole.values.push_back(static_cast<double>(k + 1));
  }

  // Integers, so that sums are exact: the share of a rank along partial axes is the value times its
  // number plus one, and a last correction on the rank of number 0.
  std::vector<Local> Shares(const Layout& layout) const {
    std::vector<AxisId> partial;
    for (AxisId a = 0; a < mesh.rank_of_mesh(); ++a) {
      if (layout.partial[static_cast<size_t>(a)] != Partial::kNone) partial.push_back(a);
    }
    const double n = static_cast<double>(mesh.Size(partial));
    std::vector<Local> shares;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      Local share = Cut(whole, SliceOf(mesh, layout, extents, rank));
      const double i = static_cast<double>(mesh.IndexAlong(rank, partial));
      // Weights i + 1 sum to n(n+1)/2: rank 0 takes off what is too much.
      const double weight = i > 0 ? i + 1 : 2 - n * (n + 1) / 2;
      for (double& v : share.values) v *= weight;
      shares.push_back(std::move(share));
    }
    return shares;
  }

  std::vector<Step> Path(const Layout& from, const Layout& to) const {
    auto path = CheapestPath(mesh, extents, 4, from, to);
    EXPECT_TRUE(path.ok()) << path.status().ToString();
    return path.ok() ? *path : std::vector<Step>{};
  }

  void Check(const Layout& from, const Layout& to) const {
    SCOPED_TRACE(mesh.ToString() + " " + from.ToString(mesh) + " -> " + to.ToString(mesh));
    std::vector<Local> have = Shares(from);
    Layout at = from;
    for (const Step& step : Path(from, to)) {
      have = Apply(mesh, extents, step, at, have);
      at = step.after;
      ASSERT_TRUE(CheckLayout(mesh, at, extents).ok());
    }
    EXPECT_EQ(at, to);
    if (to.IsPartial()) return;  // shares are not comparable one by one
    EXPECT_EQ(have, Shares(to));
  }
};

std::string Kinds(const std::vector<Step>& path) {
  std::string text;
  for (const Step& step : path) {
    if (!text.empty()) text += " ";
    text += StepKindName(step.kind);
  }
  return text;
}

double Seconds(const std::vector<Step>& path) {
  double sum = 0;
  for (const Step& step : path) sum += step.seconds;
  return sum;
}

TEST(Redistribute, OneStepEach) {
  const Fixture f({{"dp", 2}, {"tp", 4}}, {8, 16});
  const auto layout = [&](const std::vector<std::string>& dims) {
    return MakeLayout(f.mesh, dims);
  };
  const auto kinds = [&](const Layout& from, const Layout& to) {
    f.Check(from, to);
    return Kinds(f.Path(from, to));
  };
  EXPECT_EQ(kinds(layout({"-", "-"}), layout({"-", "-"})), "");
  EXPECT_EQ(kinds(layout({"-", "-"}), layout({"tp", "-"})), "slice");
  EXPECT_EQ(kinds(layout({"tp", "-"}), layout({"-", "-"})), "all_gather");
  EXPECT_EQ(kinds(layout({"tp", "-"}), layout({"-", "tp"})), "all_to_all");
  EXPECT_EQ(kinds(layout({"dp>tp", "-"}), layout({"-", "-"})), "all_gather");
  EXPECT_EQ(kinds(layout({"dp>tp", "-"}), layout({"tp>dp", "-"})), "permute");
  Layout partial = layout({"dp", "-"});
  partial.partial[1] = Partial::kSum;
  EXPECT_EQ(kinds(partial, layout({"dp", "-"})), "all_reduce");
  // Dim 0 is a dim: no all-reduce with a slice behind it.
  EXPECT_EQ(kinds(partial, layout({"dp>tp", "-"})), "reduce_scatter");
  EXPECT_EQ(kinds(partial, layout({"dp", "tp"})), "reduce_scatter");
  // The same partial value on both ends: only the rest changes.
  Layout gathered = layout({"-", "-"});
  gathered.partial[1] = Partial::kSum;
  EXPECT_EQ(kinds(partial, gathered), "all_gather");
}

TEST(Redistribute, PayloadIsWhatARankHandsIn) {
  const Fixture f({{"tp", 4}}, {8, 16});
  const auto bytes = [&](const std::vector<std::string>& from, const std::vector<std::string>& to) {
    return f.Path(MakeLayout(f.mesh, from), MakeLayout(f.mesh, to)).at(0).payload_bytes;
  };
  EXPECT_EQ(bytes({"tp", "-"}, {"-", "-"}), 8 * 16 * 4 / 4);
  EXPECT_EQ(bytes({"tp", "-"}, {"-", "tp"}), 8 * 16 * 4 / 4);
  EXPECT_EQ(bytes({"-", "-"}, {"-", "tp"}), 0);
  Layout partial = MakeLayout(f.mesh, {"-", "-"});
  partial.partial[0] = Partial::kSum;
  EXPECT_EQ(f.Path(partial, MakeLayout(f.mesh, {"-", "-"})).at(0).payload_bytes, 8 * 16 * 4);
}

// Where greedy planners gather: two all-to-alls move less. Dim 0 is cut by a and b, dims 1 and 2
// are wanted to be.
TEST(Redistribute, TwoAllToAllsInsteadOfAGather) {
  const Fixture f({{"a", 4}, {"b", 4}}, {64, 64, 64});
  const Layout from = MakeLayout(f.mesh, {"a>b", "-", "-"});
  const Layout to = MakeLayout(f.mesh, {"-", "a", "b"});
  f.Check(from, to);
  EXPECT_EQ(Kinds(f.Path(from, to)), "all_to_all all_to_all");
  // The outer axis has to leave while the inner one stays.
  const Layout inner = MakeLayout(f.mesh, {"b", "a", "-"});
  f.Check(from, inner);
  EXPECT_EQ(Kinds(f.Path(from, inner)).find("all_gather"), std::string::npos);
}

// What is sent less of is done first: combined and cut, then gathered.
TEST(Redistribute, ReducesBeforeItGathers) {
  const Fixture f({{"dp", 2}, {"tp", 2}}, {256, 256});
  Layout from = MakeLayout(f.mesh, {"dp", "-"});
  from.partial[1] = Partial::kSum;
  const Layout to = MakeLayout(f.mesh, {"-", "-"});
  f.Check(from, to);
  const std::vector<Step> path = f.Path(from, to);
  EXPECT_NE(path.at(0).kind, StepKind::kAllGather);
}

TEST(Redistribute, RefusesToMakePartial) {
  const Fixture f({{"tp", 2}}, {4});
  Layout to = MakeLayout(f.mesh, {"-"});
  to.partial[0] = Partial::kSum;
  const auto path = CheapestPath(f.mesh, f.extents, 4, MakeLayout(f.mesh, {"-"}), to);
  EXPECT_EQ(path.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(path.status().message(), HasSubstr("not made partial"));
}

Layout RandomLayout(const Mesh& mesh, const std::vector<int64_t>& extents, bool partial,
                    std::mt19937& random) {
  Layout layout = Layout::Replicated(mesh, static_cast<int>(extents.size()));
  std::vector<AxisId> axes;
  for (AxisId a = 0; a < mesh.rank_of_mesh(); ++a) axes.push_back(a);
  std::shuffle(axes.begin(), axes.end(), random);
  for (const AxisId axis : axes) {
    const size_t place = random() % (extents.size() + 2);
    Layout next = layout;
    if (place < extents.size()) {
      next.dims[place].push_back(axis);
    } else if (partial && place == extents.size()) {
      next.partial[static_cast<size_t>(axis)] = Partial::kSum;
    }
    if (CheckLayout(mesh, next, extents).ok()) layout = next;
  }
  return layout;
}

TEST(Redistribute, RandomPairsOnVirtualRanks) {
  const std::vector<Fixture> fixtures = {
      Fixture({{"a", 2}, {"b", 2}}, {4, 6}),
      Fixture({{"a", 2}, {"b", 3}}, {6, 12}),
      Fixture({{"a", 2}, {"b", 2}, {"c", 2}}, {8, 4, 8}),
      Fixture({{"a", 4}, {"b", 2}}, {8}),
      Fixture({{"a", 2}, {"b", 1}, {"c", 2}}, {4, 4}),
      Fixture({{"a", 2}, {"b", 2}}, {4, 3, 2}),
  };
  std::mt19937 random(7);
  for (int round = 0; round < 600; ++round) {
    const Fixture& f = fixtures[random() % fixtures.size()];
    const Layout from = RandomLayout(f.mesh, f.extents, true, random);
    const Layout to = RandomLayout(f.mesh, f.extents, false, random);
    f.Check(from, to);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
    // Never dearer than making it whole first, and the same again.
    const std::vector<Step> path = f.Path(from, to);
    const Layout whole = Layout::Replicated(f.mesh, static_cast<int>(f.extents.size()));
    EXPECT_LE(Seconds(path), Seconds(f.Path(from, whole)) + Seconds(f.Path(whole, to)) + 1e-15);
    EXPECT_EQ(Kinds(path), Kinds(f.Path(from, to)));
  }
}

}  // namespace
}  // namespace hyper::partition
