// Runs under mpirun with 2 to 4 ranks. The whole binary shares one communicator, whose longest
// message is HYPER_TEST_MAX_MESSAGE bytes when that is set.
#include <cstdlib>

#include <gtest/gtest.h>

#include "runtime/async_reducer.h"
#include "runtime/mpi_communicator.h"
#include "tests/runtime/communicator_conformance.h"
#include "tests/runtime/toy_training.h"

namespace hyper::runtime {
namespace {

Communicator* g_communicator = nullptr;

TEST(Mpi, Conformance) {
  const Status status = testing::CheckConformance(*g_communicator);
  EXPECT_TRUE(status.ok()) << "rank " << g_communicator->rank() << ": " << status.ToString();
}

TEST(Mpi, ASecondCommunicatorIsRefused) { EXPECT_FALSE(MakeMpiCommunicator().ok()); }

TEST(Mpi, SixtyMegabytesOnTheReducersThread) {
  AsyncReducer reducer(g_communicator, 1);
  std::vector<float> values(15'000'000, 0.5f);
  reducer.Start(0, values.data(), static_cast<int64_t>(values.size()), ir::DType::kF32, 0);
  ASSERT_TRUE(reducer.Wait().ok());
  const float expected = 0.5f * static_cast<float>(g_communicator->size());
  for (const float value : values) ASSERT_EQ(value, expected);
}

TEST(Mpi, TrainingEqualsOneRank) {
  testing::ToyRun run;
  run.steps = 8;
  run.micro_batches = 12 / g_communicator->size();
  testing::ToyOutcome here;
  const Status status = testing::TrainToy(*g_communicator, run, &here);
  ASSERT_TRUE(status.ok()) << status.ToString();
  run.micro_batches = 12;
  const testing::ToyOutcome alone = testing::TrainToyOnLoopback(1, run);
  testing::ExpectNear(here, alone, 1e-12);
}

}  // namespace
}  // namespace hyper::runtime

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  hyper::runtime::MpiOptions options;
  if (const char* limit = std::getenv("HYPER_TEST_MAX_MESSAGE")) {
    options.max_message_bytes = std::atoll(limit);
  }
  auto communicator = hyper::runtime::MakeMpiCommunicator(options);
  if (!communicator.ok()) return 5;
  hyper::runtime::g_communicator = communicator->get();
  const int result = RUN_ALL_TESTS();
  // Ends the other ranks too: they may wait for this one.
  if (result != 0) hyper::runtime::AbortMpi(result);
  return result;
}
