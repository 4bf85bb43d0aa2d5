// Meshes and layouts: who holds what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partition/layout.h"
#include "tests/partition/virtual_ranks.h"

namespace hyper::partition {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Mesh, TheLastAxisHoldsNeighbours) {
  const Mesh mesh = MakeMesh({{"dp", 2}, {"sp", 3}, {"tp", 4}});
  EXPECT_EQ(mesh.ranks(), 24);
  EXPECT_THAT(mesh.Coordinates(23), ElementsAre(1, 2, 3));
  EXPECT_THAT(mesh.Coordinates(6), ElementsAre(0, 1, 2));
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(mesh.Rank(mesh.Coordinates(rank)), rank);
  }
  const AxisId tp = mesh.Find("tp");
  const AxisId dp = mesh.Find("dp");
  EXPECT_THAT(mesh.Group(6, std::vector{tp}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.Group(6, std::vector{dp}), ElementsAre(6, 18));
  // The first axis given is the outer one, whatever its place in the mesh.
  EXPECT_THAT(mesh.Group(0, std::vector{tp, dp}), ElementsAre(0, 12, 1, 13, 2, 14, 3, 15));
  EXPECT_EQ(mesh.IndexAlong(13, std::vector{tp, dp}), 3);
  EXPECT_THAT(mesh.Group(6, {}), ElementsAre(6));
}

TEST(Mesh, Refusals) {
  const auto refused = [](std::vector<MeshAxis> axes) {
    return Mesh::Create(std::move(axes)).status().message();
  };
  EXPECT_THAT(refused({{"tp", 2}, {"tp", 2}}), HasSubstr("'tp' is given twice"));
  EXPECT_THAT(refused({{"tp", 0}}), HasSubstr("'tp' has 0 ranks"));
  EXPECT_THAT(refused({{"", 2}}), HasSubstr("expected a name"));
  EXPECT_THAT(refused({{"a", int64_t{1} << 20}, {"b", int64_t{1} << 20}}), HasSubstr("more than"));
}

// A 2x4 tensor on (dp, sp, mp) = (2, 2, 2), rows by mp, columns by sp and dp: row = mp, column =
// 2*sp + dp, so that a0, a1, a2, a3 lie on ranks 0, 4, 2, 6.
TEST(Layout, SeveralAxesOfADim) {
  const Mesh mesh = MakeMesh({{"dp", 2}, {"sp", 2}, {"mp", 2}});
  const Layout layout = MakeLayout(mesh, {"mp", "sp>dp"});
  const std::vector<int64_t> extents = {2, 4};
  ASSERT_TRUE(CheckLayout(mesh, layout, extents).ok());
  EXPECT_THAT(LocalExtents(mesh, layout, extents), ElementsAre(1, 1));
  const int64_t holders[] = {0, 4, 2, 6};
  for (int64_t column = 0; column < 4; ++column) {
    const Box box = SliceOf(mesh, layout, extents, holders[column]);
    EXPECT_EQ(box, (Box{{0, column}, {1, column + 1}})) << column;
  }
  EXPECT_EQ(SliceOf(mesh, layout, extents, 1).begin[0], 1);
  EXPECT_EQ(layout.ToString(mesh), "[mp, sp>dp]");
}

TEST(Layout, TextOfPartialAndReplicated) {
  const Mesh mesh = MakeMesh({{"dp", 2}, {"tp", 4}});
  Layout layout = Layout::Replicated(mesh, 2);
  EXPECT_TRUE(layout.IsReplicated());
  EXPECT_EQ(layout.ToString(mesh), "[-, -]");
  layout.partial[1] = Partial::kMax;
  EXPECT_FALSE(layout.IsReplicated());
  EXPECT_FALSE(layout.IsFree(1));
  EXPECT_EQ(layout.ToString(mesh), "[-, -] partial {tp: max}");
}

TEST(Layout, RefusalsSayWhatFits) {
  const Mesh mesh = MakeMesh({{"dp", 2}, {"tp", 4}});
  const auto parsed = [&](const std::vector<std::string>& dims) {
    return ParseLayout(mesh, dims).status().message();
  };
  EXPECT_THAT(parsed({"-", "tq"}), HasSubstr("'tq' is no axis of the mesh {dp: 2, tp: 4}"));
  EXPECT_THAT(parsed({"-", "tq"}), HasSubstr("did you mean 'tp'"));
  EXPECT_THAT(parsed({"dp>"}), HasSubstr("'' is no axis"));
  EXPECT_THAT(parsed({""}), HasSubstr("'' is no axis"));
  const auto checked = [&](const std::vector<std::string>& dims,
                           const std::vector<int64_t>& extents) {
    return CheckLayout(mesh, MakeLayout(mesh, dims), extents).message();
  };
  EXPECT_THAT(checked({"tp", "tp"}, {4, 4}), HasSubstr("uses axis 'tp' 2 times"));
  EXPECT_THAT(checked({"-", "dp>tp"}, {4, 12}),
              HasSubstr("dim 1 of extent 12 into 8 parts, which do not divide it; these do: 1, 2, "
                        "3, 4, 6, 12"));
  EXPECT_THAT(checked({"tp"}, {4, 4}), HasSubstr("has 1 entries, the tensor has 2 dims"));
  Layout both = MakeLayout(mesh, {"tp"});
  both.partial[1] = Partial::kSum;
  EXPECT_THAT(CheckLayout(mesh, both, std::vector<int64_t>{4}).message(), HasSubstr("is partial"));
}

}  // namespace
}  // namespace hyper::partition
