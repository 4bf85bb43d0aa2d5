#include "offload/packing.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "offload/packing_sweep.h"

namespace hyper::offload {
namespace {

// Recomputed block by block, with nothing of the packer.
int64_t LowerBound(const std::vector<Block>& blocks) {
  int64_t bound = 0;
  for (const Block& at : blocks) {
    int64_t live = 0;
    for (const Block& b : blocks) {
      if (b.first <= at.first && at.first <= b.last) live += b.bytes;
    }
    bound = std::max(bound, live);
  }
  return bound;
}

void ExpectDisjoint(const std::vector<Block>& blocks, const Packing& packing) {
  ASSERT_EQ(packing.offsets.size(), blocks.size());
  int64_t peak = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_GE(packing.offsets[i], 0);
    peak = std::max(peak, packing.offsets[i] + blocks[i].bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool together = blocks[i].first <= blocks[j].last && blocks[j].first <= blocks[i].last;
      const bool overlap = packing.offsets[i] < packing.offsets[j] + blocks[j].bytes &&
                           packing.offsets[j] < packing.offsets[i] + blocks[i].bytes;
      EXPECT_FALSE(together && overlap) << "blocks " << i << " and " << j;
    }
  }
  EXPECT_EQ(packing.peak, peak);
}

TEST(PackingTest, NothingTakesNothing) { EXPECT_EQ(Pack({}).peak, 0); }

TEST(PackingTest, ReusesSpaceOfDeadBlocks) {
  const std::vector<Block> blocks = {{0, 1, 64}, {2, 3, 64}, {4, 5, 64}};
  EXPECT_EQ(Pack(blocks).peak, 64);
}

TEST(PackingTest, BlocksThatMeetInOneOpAreApart) {
  const std::vector<Block> blocks = {{0, 1, 64}, {1, 2, 64}};
  const Packing packing = Pack(blocks);
  ExpectDisjoint(blocks, packing);
  EXPECT_EQ(packing.peak, 128);
}

TEST(PackingTest, EmptyBlocksTakeNoSpace) {
  const std::vector<Block> blocks = {{0, 4, 0}, {0, 4, 128}, {1, 2, 0}};
  const Packing packing = Pack(blocks);
  ExpectDisjoint(blocks, packing);
  EXPECT_EQ(packing.peak, 128);
}

TEST(PackingTest, RandomLifetimesNeverOverlapAndRepeat) {
  std::mt19937 random(7);
  for (int round = 0; round < 8; ++round) {
    std::vector<Block> blocks;
    for (int i = 0; i < 120; ++i) {
      const int first = static_cast<int>(random() % 200);
      const int length = static_cast<int>(random() % (round % 2 == 0 ? 10 : 80));
      blocks.push_back({first, first + length, 64 * static_cast<int64_t>(random() % 50)});
    }
    const Packing packing = Pack(blocks);
    ExpectDisjoint(blocks, packing);
    EXPECT_GE(packing.peak, LowerBound(blocks));
    EXPECT_EQ(packing.offsets, Pack(blocks).offsets);
  }
}

TEST(PackingTest, SweepKeepsBlocksApart) {
  std::mt19937 random(11);
  for (int round = 0; round < 8; ++round) {
    std::vector<Block> blocks;
    int64_t pairs = 0;
    for (int i = 0; i < 300; ++i) {
      const int first = static_cast<int>(random() % 200);
      const int length = static_cast<int>(random() % (round % 2 == 0 ? 10 : 150));
      blocks.push_back({first, first + length, 64 * static_cast<int64_t>(random() % 20)});
      for (int j = 0; j < i; ++j) {
        const Block& other = blocks[static_cast<size_t>(j)];
        pairs += first <= other.last && other.first <= first + length ? 1 : 0;
      }
    }
    const Packing packing = PackBySweep(blocks);
    ExpectDisjoint(blocks, packing);
    EXPECT_GE(packing.peak, LowerBound(blocks));
    EXPECT_EQ(packing.offsets, PackBySweep(blocks).offsets);
    EXPECT_EQ(CountConflicts(blocks), pairs);
  }
}

// Forward keeps three sizes a layer until the mirrored step of backward: too many pairs for the
// orders of packing.cc.
TEST(PackingTest, AThousandLayersAreNearTheBound) {
  constexpr int kLayers = 1500;
  std::vector<Block> blocks;
  for (int layer = 0; layer < kLayers; ++layer) {
    const int at = 4 * layer;
    const int back = 8 * kLayers - at;
    for (int i = 0; i < 3; ++i) blocks.push_back({at + i, back - i, 256 * (i + 1)});
    blocks.push_back({at + 1, at + 3, 4096});
    blocks.push_back({back - 3, back - 1, 4096});
  }
  ASSERT_GT(CountConflicts(blocks), 8'000'000);
  const Packing packing = Pack(blocks);
  int64_t bound = 4096;
  for (int layer = 0; layer < kLayers; ++layer) bound += 256 * (1 + 2 + 3);
  EXPECT_LE(static_cast<double>(packing.peak), 1.05 * static_cast<double>(bound));
  EXPECT_EQ(packing.offsets, Pack(blocks).offsets);
}

// Attention blocks as in a transformer: within each, a burst of large short-lived scores beside
// activations kept until the mirrored step of backward.
TEST(PackingTest, TransformerStepIsNearTheBound) {
  for (const int layers : {4, 12, 24}) {
    std::vector<Block> blocks;
    const int ops = 10;  // per layer and direction
    const int end = 2 * layers * ops - 1;
    const int64_t unit = 4 * 256 * 768 * 4;
    for (int layer = 0; layer < layers; ++layer) {
      const int at = layer * ops;
      const auto saved = [&](int op, int64_t bytes) {
        blocks.push_back({at + op, end - at - op, bytes});
      };
      const auto brief = [&](int from, int length, int64_t bytes) {
        blocks.push_back({at + from, at + from + length, bytes});
        const int mirrored = end - at - from - length;
        blocks.push_back({mirrored, mirrored + length + 1, bytes});
      };
      saved(0, unit);      // layer norm
      saved(1, 3 * unit);  // q, k, v
      brief(2, 1, 4 * 12 * 256 * 256 * 4);
      saved(3, 4 * 12 * 256 * 256 * 4);
      saved(4, unit);
      brief(5, 1, unit);
      saved(6, unit);
      saved(7, 4 * unit);  // mlp
      brief(8, 1, 4 * unit);
      saved(9, unit);
      blocks.push_back({at + 1, at + 1, 1 << 20});  // workspace
    }
    const Packing packing = Pack(blocks);
    ExpectDisjoint(blocks, packing);
    EXPECT_LE(static_cast<double>(packing.peak), 1.1 * static_cast<double>(LowerBound(blocks)))
        << layers << " layers";
  }
}

}  // namespace
}  // namespace hyper::offload
