// Which folder a checkpoint lies in whatever it is called, who writes where, and what an inference
// tries before and leaves behind.
#include "runtime/run_folder.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/full_disk.h"
#include "tests/runtime/job_fixture.h"

namespace hyper::runtime {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::JobTest;
using testing::TestFolder;
namespace fs = std::filesystem;

std::vector<std::string> Names(const std::string& folder) {
  return *RealFileSystem()->List(folder);
}

RunFolderOptions Options(const std::string& dir, const std::string& checkpoint_dir) {
  RunFolderOptions options;
  options.dir = dir;
  options.checkpoint_dir = checkpoint_dir;
  return options;
}

// Names of one path: with slashes and dots, relative, through a link to a folder above it.
std::vector<std::string> SpellingsOf(const TestFolder& folder, const std::string& name) {
  const std::string path = folder.File(name);
  const std::string relative = fs::relative(path).string();
  return {path,
          path + "/",
          path + "//",
          path + "/.",
          relative,
          relative + "/",
          folder.File("link/" + name),
          folder.File("link/" + name) + "/",
          folder.File("run/./../" + name)};
}

TEST(RunFolder, OverwriteKeepsTheCheckpointThatIsContinuedWhateverItIsCalled) {
  const TestFolder folder;
  fs::create_directory_symlink(folder.path(), folder.File("link"));
  const std::string step = "run/checkpoints/step-00000004";
  for (const std::string& checkpoints : SpellingsOf(folder, "run/checkpoints")) {
    for (const std::string& start : SpellingsOf(folder, step)) {
      fs::create_directories(folder.File(step));
      fs::create_directories(folder.File("run/checkpoints/step-00000006"));
      RunFolderOptions options = Options(folder.File("run"), checkpoints);
      options.overwrite = true;
      options.start = start;
      options.start_step = 4;
      const auto run = RunFolder::Open(RealFileSystem(), options);
      ASSERT_TRUE(run.ok()) << run.status().ToString();
      EXPECT_EQ((*run)->kept_steps(), 4) << start << " in " << checkpoints;
      ASSERT_TRUE((*run)->Clear().ok());
      EXPECT_THAT(Names(folder.File("run/checkpoints")), ElementsAre("step-00000004", "train.lock"))
          << start << " in " << checkpoints;
    }
  }
  // A link of any other place to it means the same.
  fs::create_directory_symlink(folder.File(step), folder.File("newest"));
  RunFolderOptions options = Options(folder.File("run"), folder.File("run/checkpoints"));
  options.overwrite = true;
  options.start_step = 4;
  for (const std::string& start : {folder.File("newest"), folder.File("newest/")}) {
    options.start = start;
    const auto run = RunFolder::Open(RealFileSystem(), options);
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    EXPECT_EQ((*run)->kept_steps(), 4) << start;
  }
  // A checkpoint of another folder is not continued there.
  fs::create_directories(folder.File("other/step-00000004"));
  options.start = folder.File("other/step-00000004/");
  const auto run = RunFolder::Open(RealFileSystem(), options);
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ((*run)->kept_steps(), 0);
  ASSERT_TRUE((*run)->Clear().ok());
  EXPECT_THAT(Names(folder.File("run/checkpoints")), ElementsAre("train.lock"));
  EXPECT_TRUE(fs::exists(folder.File("other/step-00000004")));
}

TEST(RunFolder, OneJobAtATimeWritesCheckpointsWhateverTheRunFolders) {
  const TestFolder folder;
  fs::create_directory_symlink(folder.path(), folder.File("link"));
  const RunFolderOptions usual = Options(folder.File("a"), folder.File("a/checkpoints"));
  const RunFolderOptions elsewhere = Options(folder.File("b"), folder.File("a/checkpoints"));
  const RunFolderOptions linked = Options(folder.File("c"), folder.File("link/a/checkpoints/"));
  for (const auto& [first, second] : std::vector<std::pair<RunFolderOptions, RunFolderOptions>>{
           {usual, elsewhere}, {elsewhere, usual}, {usual, linked}, {linked, elsewhere}}) {
    auto holder = RunFolder::Open(RealFileSystem(), first);
    ASSERT_TRUE(holder.ok()) << holder.status().ToString();
    const auto refused = RunFolder::Open(RealFileSystem(), second);
    EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.status().message(),
                AllOf(HasSubstr("run.checkpoint.dir"), HasSubstr("in use by process")));
    holder->reset();
    EXPECT_TRUE(RunFolder::Open(RealFileSystem(), second).ok());
  }
  // One folder for both, under two names, does not lock itself out.
  EXPECT_TRUE(
      RunFolder::Open(RealFileSystem(), Options(folder.File("d"), folder.File("link/d/"))).ok());
}

TEST_F(JobTest, ATrailingSlashIsNoOtherCheckpoint) {
  strategy::LaunchConfig launch = Launch();
  launch.run.checkpoint_every = 2;
  launch.run.checkpoint_keep = 10;
  ASSERT_TRUE(Run(1, launch).ok());
  JobOptions options;
  options.checkpoint = folder_.File("run/checkpoints/step-00000004") + "//";
  const auto refused = Run(1, launch, options);
  EXPECT_THAT(refused.status().message(), HasSubstr("later checkpoints (up to step 6)"));
  options.overwrite = true;
  const auto result = Run(1, launch, options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(recorders_[0].start.checkpoint, folder_.File("run/checkpoints/step-00000004"));
  EXPECT_THAT(recorders_[0].steps, ElementsAre(5, 6));
  EXPECT_TRUE(fs::exists(folder_.File("run/checkpoints/step-00000004")));
  EXPECT_EQ(testing::Records(folder_.File("run/metrics.jsonl")).size(), 7u);  // an evaluation
}

TEST_F(JobTest, AnInferenceTriesItsOutputsFirstAndLeavesNoHalfOfThem) {
  const std::string file = folder_.Write("file", "x");
  const std::string out = folder_.File("out");
  JobOptions options;
  for (const bool dry_run : {false, true}) {
    options.dry_run = dry_run;
    options.outputs_dir = out;
    options.outputs = {file + "/x.onnx"};
    EXPECT_THAT(Run(1, Launch(), options).status().message(), HasSubstr("file/x.onnx"));
    options.outputs.clear();
    options.outputs_dir = file + "/out";
    EXPECT_THAT(Run(1, Launch(), options).status().message(), HasSubstr("file/out"));
    EXPECT_FALSE(fs::exists(out));
  }
  options.dry_run = false;
  options.outputs_dir = out;
  testing::FullDisk disk("logits", 2);
  options.fs = &disk;
  EXPECT_EQ(Run(1, Launch(), options).status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Names(out), ElementsAre());
  options.fs = RealFileSystem();
  ASSERT_TRUE(Run(1, Launch(), options).ok());
  EXPECT_THAT(Names(out), ElementsAre("logits.npy"));
  // What stands in the way of a file in a folder that is there.
  fs::remove(out + "/logits.npy");
  fs::create_directories(out + "/logits.npy/kept");
  EXPECT_THAT(Run(1, Launch(), options).status().message(),
              AllOf(HasSubstr("logits.npy"), HasSubstr("a folder")));
  EXPECT_TRUE(fs::exists(out + "/logits.npy/kept"));
}

}  // namespace
}  // namespace hyper::runtime
