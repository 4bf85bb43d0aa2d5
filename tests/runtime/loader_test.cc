#include "runtime/data/batch_loader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/test_files.h"

namespace hyper::runtime {
namespace {

// Sample i of "id" is i itself, "label" is 1000 + i.
std::shared_ptr<const Dataset> Numbers(int64_t samples, int64_t batch) {
  const testing::TestFolder folder;
  std::vector<int64_t> ids, labels;
  for (int64_t i = 0; i < samples; ++i) {
    ids.push_back(i);
    labels.push_back(1000 + i);
  }
  const std::string shape = fmt::format("({},)", samples);
  folder.Write("id.npy", testing::NpyBytes("<i8", shape, testing::BytesOf(ids)));
  folder.Write("label.npy", testing::NpyBytes("<i8", shape, testing::BytesOf(labels)));
  strategy::DataSource source;
  source.kind = strategy::DataKind::kNpy;
  source.path = folder.path();
  source.inputs["id"].file = "id.npy";
  source.inputs["label"].file = "label.npy";
  auto dataset = Dataset::Create(
      source, {{"id", {ir::DType::kI64, {batch}}}, {"label", {ir::DType::kI64, {batch}}}}, {}, 0);
  HYPER_CHECK(dataset.ok(), dataset.status().ToString());
  return std::move(dataset).value();
}

std::vector<int64_t> Ints(std::span<const std::byte> bytes) {
  std::vector<int64_t> values(bytes.size() / 8);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// ids[step][global micro-batch] of all replicas together.
using Steps = std::vector<std::map<int64_t, std::vector<int64_t>>>;

Steps Load(int64_t samples, int64_t batch, int64_t micro_batches, int replicas, int64_t steps,
           LoaderOptions options = {}) {
  Steps result(static_cast<size_t>(steps));
  for (int replica = 0; replica < replicas; ++replica) {
    options.micro_batch = batch;
    options.micro_batches = micro_batches;
    options.replicas = replicas;
    options.replica = replica;
    options.count_inputs = {1};
    const auto loader = BatchLoader::Create(Numbers(samples, batch), options);
    for (int64_t s = 0; s < steps; ++s) {
      const auto labels = loader->BeginStep();
      EXPECT_TRUE(labels.ok());
      EXPECT_EQ(labels->size(), static_cast<size_t>(micro_batches));
      for (int64_t i = 0; i < micro_batches; ++i) {
        const auto micro = loader->NextMicroBatch();
        EXPECT_TRUE(micro.ok());
        const std::vector<int64_t> ids = Ints((*micro)[0]);
        std::vector<int64_t> expected;
        for (const int64_t id : ids) expected.push_back(1000 + id);
        EXPECT_EQ(Ints((*micro)[1]), expected);
        // What was handed out for counting are the labels of this very micro-batch.
        EXPECT_EQ(Ints((*labels)[static_cast<size_t>(i)]), expected);
        result[static_cast<size_t>(s)][replica * micro_batches + i] = ids;
      }
    }
  }
  return result;
}

TEST(BatchLoader, TheGlobalBatchDoesNotDependOnTheReplicas) {
  const Steps alone = Load(37, 3, 4, 1, 9);
  EXPECT_EQ(Load(37, 3, 2, 2, 9), alone);
  EXPECT_EQ(Load(37, 3, 1, 4, 9), alone);
}

TEST(BatchLoader, EveryEpochSeesEverySampleOnceAndTheTailMovesOn) {
  // 37 samples, 12 a step: epoch 0 ends inside step 4, whose rest is of epoch 1.
  std::vector<int64_t> stream;
  for (const auto& step : Load(37, 3, 2, 2, 10)) {
    for (const auto& [micro, ids] : step) stream.insert(stream.end(), ids.begin(), ids.end());
  }
  std::vector<std::vector<int64_t>> epochs;
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> ids(stream.begin() + static_cast<ptrdiff_t>(epoch * 37),
                             stream.begin() + static_cast<ptrdiff_t>(epoch * 37 + 37));
    epochs.push_back(ids);
    std::sort(ids.begin(), ids.end());
    for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(BatchLoader, UnshuffledWrapsAround) {
  LoaderOptions options;
  options.shuffle = false;
  const Steps steps = Load(5, 2, 1, 1, 4, options);
  EXPECT_THAT(steps[0].at(0), ::testing::ElementsAre(0, 1));
  EXPECT_THAT(steps[2].at(0), ::testing::ElementsAre(4, 0));
  EXPECT_THAT(steps[3].at(0), ::testing::ElementsAre(1, 2));
}

TEST(BatchLoader, PositionContinuesTheStream) {
  const Steps whole = Load(37, 3, 2, 2, 8);
  LoaderOptions options;
  options.position = 5 * 12;
  const Steps rest = Load(37, 3, 2, 2, 3, options);
  EXPECT_EQ(rest, Steps(whole.begin() + 5, whole.end()));
  // The same stream position reached with another replica count.
  EXPECT_EQ(Load(37, 3, 1, 4, 3, options), rest);
}

TEST(BatchLoader, InlineEqualsPrefetched) {
  LoaderOptions options;
  options.prefetch = 0;
  EXPECT_EQ(Load(37, 3, 2, 2, 8, options), Load(37, 3, 2, 2, 8));
  options.prefetch = 7;
  EXPECT_EQ(Load(37, 3, 2, 2, 8, options), Load(37, 3, 2, 2, 8));
}

TEST(BatchLoader, BytesStayWhileTheReaderRunsAhead) {
  LoaderOptions options;
  options.micro_batch = 3;
  options.shuffle = false;
  const auto loader = BatchLoader::Create(Numbers(37, 3), options);
  ASSERT_TRUE(loader->BeginStep().ok());
  const auto micro = loader->NextMicroBatch();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_THAT(Ints((*micro)[0]), ::testing::ElementsAre(0, 1, 2));
}

TEST(BatchLoader, ErrorsReachTheStepThatNeedsTheData) {
  const testing::TestFolder folder;
  std::vector<int64_t> values(10, 1);
  values[7] = int64_t{1} << 40;
  folder.Write("v.npy", testing::NpyBytes("<i8", "(10,)", testing::BytesOf(values)));
  strategy::DataSource source;
  source.kind = strategy::DataKind::kNpy;
  source.path = folder.path();
  source.inputs["v"].file = "v.npy";
  auto dataset = Dataset::Create(source, {{"v", {ir::DType::kI32, {2}}}}, {}, 0);
  ASSERT_TRUE(dataset.ok());
  LoaderOptions options;
  options.micro_batch = 2;
  options.shuffle = false;
  const auto loader = BatchLoader::Create(std::move(dataset).value(), options);
  for (int step = 0; step < 4; ++step) {
    ASSERT_TRUE(loader->BeginStep().ok());
    EXPECT_EQ(loader->NextMicroBatch().ok(), step != 3) << step;
  }
}

TEST(BatchLoader, IsDestroyedWhileReading) {
  for (int i = 0; i < 20; ++i) {
    LoaderOptions options;
    options.micro_batch = 3;
    const auto loader = BatchLoader::Create(Numbers(37, 3), options);
    if (i % 2 == 0) {
      ASSERT_TRUE(loader->BeginStep().ok());
    }
  }
}

}  // namespace
}  // namespace hyper::runtime
