#include "codegen/bundle.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/manifest.h"
#include "codegen/validate.h"
#include "tests/codegen/codegen_fixture.h"

namespace hyper::codegen {
namespace {

using hyper::testing::TestFolder;
using hyper::testing::ToyBundle;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::map<std::string, std::string> ReadFolder(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    files[std::filesystem::relative(entry.path(), path).string()] =
        *RealFileSystem()->ReadAll(entry.path().string(), 1 << 30);
  }
  return files;
}

// Fails the n-th call that writes.
class FailingFileSystem : public FileSystem {
 public:
  explicit FailingFileSystem(int fail_at) : left_(fail_at) {}
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (Fails()) return ResourceExhausted("disk full");
    return RealFileSystem()->Create(path);
  }
  Result<std::string> ReadAll(const std::string& path, int64_t limit) override {
    return RealFileSystem()->ReadAll(path, limit);
  }
  Status ReadAt(const std::string& path, int64_t offset, std::span<std::byte> out) override {
    return RealFileSystem()->ReadAt(path, offset, out);
  }
  Result<int64_t> Size(const std::string& path) override { return RealFileSystem()->Size(path); }
  bool Exists(const std::string& path) override { return RealFileSystem()->Exists(path); }
  Status MakeDirs(const std::string& path) override {
    if (Fails()) return ResourceExhausted("disk full");
    return RealFileSystem()->MakeDirs(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    if (Fails()) return ResourceExhausted("disk full");
    return RealFileSystem()->Rename(from, to);
  }
  Status RemoveAll(const std::string& path) override { return RealFileSystem()->RemoveAll(path); }
  Result<std::vector<std::string>> List(const std::string& path) override {
    return RealFileSystem()->List(path);
  }

 private:
  bool Fails() { return left_-- == 0; }
  int left_;
};

class BundleTest : public ::testing::Test {
 protected:
  Status Write(BundleContent content) {
    return WriteBundle(RealFileSystem(), path_, std::move(content));
  }
  Result<std::unique_ptr<BundleReader>> Open() {
    return BundleReader::Open(RealFileSystem(), path_);
  }
  TestFolder folder_;
  std::string path_ = folder_ / "job.bundle";
};

TEST_F(BundleTest, RoundTrips) {
  const BundleContent content = ToyBundle();
  const Status written = Write(content);
  ASSERT_TRUE(written.ok()) << written.ToString();
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const Manifest& manifest = (*reader)->manifest();
  EXPECT_EQ(manifest.producer, "hyperc test");
  EXPECT_EQ(manifest.model_name, "toy");
  EXPECT_EQ(manifest.march, "x86-64");
  EXPECT_THAT(manifest.cpu_features, ElementsAre("sse2"));
  EXPECT_EQ(*(*reader)->ReadText("strategy.yaml"), "version: 1\n");
  EXPECT_EQ((*reader)->ReadText("../job.bundle/strategy.yaml").status().code(),
            StatusCode::kNotFound);
  const program::Program& program = (*reader)->program();
  EXPECT_EQ(program.slots_size(), content.program.slots_size());
  int stored = 0;
  for (int i = 0; i < program.slots_size(); ++i) {
    const program::Slot& slot = program.slots(i);
    EXPECT_EQ(slot.data_offset() % 64, 0);
    if (slot.data_bytes() == 0) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(slot.data_bytes()));
    ASSERT_TRUE((*reader)->ReadSlot(slot, bytes).ok());
    const auto expected = content.slot_data[static_cast<size_t>(i)].bytes();
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
    EXPECT_EQ((*reader)->ReadSlot(slot, std::span(bytes).subspan(1)).code(),
              StatusCode::kInvalidArgument);
    ++stored;
  }
  EXPECT_EQ(stored, 3);  // two parameters, one constant
}

TEST_F(BundleTest, LoadedKernelsCompute) {
  ASSERT_TRUE(Write(ToyBundle()).ok());
  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  // Two at once: each lives in its own memory file.
  const auto first = (*reader)->LoadKernels();
  const auto second = (*reader)->LoadKernels();
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE((*first)->Find("k_other").ok());
  const auto kernel = (*first)->Find("k_toy");
  ASSERT_TRUE(kernel.ok()) << kernel.status().ToString();
  std::vector<float> x(24, 1.0f), c = {0, 1, 2, 3, 4, 5}, y(24);
  char* operands[] = {reinterpret_cast<char*>(x.data()), reinterpret_cast<char*>(c.data()),
                      reinterpret_cast<char*>(y.data())};
  for (int64_t task = 0; task < 3; ++task) (*kernel)(operands, task, 3);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], 1.0f + static_cast<float>(i % 6));
}

TEST_F(BundleTest, WithoutGeneratedKernelsThereIsNoLibrary) {
  BundleContent content = ToyBundle();
  content.kernels_object.clear();
  content.kernels_source.clear();
  for (program::SubProgram& sub : *content.program.mutable_subprograms()) {
    if (sub.name() == "count") sub.clear_instructions();
  }
  ASSERT_TRUE(Write(std::move(content)).ok());
  EXPECT_FALSE(std::filesystem::exists(path_ + "/group0/kernels.so"));
  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const auto kernels = (*reader)->LoadKernels();
  ASSERT_TRUE(kernels.ok());
  EXPECT_EQ(*kernels, nullptr);
}

TEST_F(BundleTest, EqualContentGivesEqualBytes) {
  ASSERT_TRUE(Write(ToyBundle()).ok());
  const auto first = ReadFolder(path_);
  path_ = folder_ / "elsewhere/";
  ASSERT_TRUE(Write(ToyBundle()).ok());
  EXPECT_EQ(ReadFolder(path_), first);
  EXPECT_EQ(first.size(), 10u);
}

TEST_F(BundleTest, ReplacesABundleAndAnEmptyFolder) {
  std::filesystem::create_directory(path_);
  ASSERT_TRUE(Write(ToyBundle()).ok());
  BundleContent other = ToyBundle();
  other.manifest.model_name = "other";
  ASSERT_TRUE(Write(std::move(other)).ok());
  const auto reader = Open();
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->manifest().model_name, "other");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".old"));
}

TEST_F(BundleTest, NeverReplacesWhatIsNotABundle) {
  std::filesystem::create_directory(path_);
  ASSERT_TRUE(WriteFile(RealFileSystem(), path_ + "/thesis.tex", "years").ok());
  EXPECT_EQ(Write(ToyBundle()).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(path_ + "/thesis.tex"));
  std::filesystem::remove_all(path_);

  ASSERT_TRUE(WriteFile(RealFileSystem(), path_, "a file").ok());
  EXPECT_EQ(Write(ToyBundle()).code(), StatusCode::kFailedPrecondition);
  std::filesystem::remove(path_);

  std::filesystem::create_directory(path_ + ".tmp");
  ASSERT_TRUE(WriteFile(RealFileSystem(), path_ + ".tmp/thesis.tex", "years").ok());
  EXPECT_EQ(Write(ToyBundle()).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(path_ + ".tmp/thesis.tex"));
  std::filesystem::remove_all(path_ + ".tmp");

  ASSERT_TRUE(Write(ToyBundle()).ok());
  ASSERT_TRUE(WriteFile(RealFileSystem(), path_ + "/notes.txt", "mine").ok());
  EXPECT_THAT(Write(ToyBundle()).message(), HasSubstr("notes.txt"));
}

TEST_F(BundleTest, AFailedWriteLeavesTheOldBundle) {
  ASSERT_TRUE(Write(ToyBundle()).ok());
  BundleContent other = ToyBundle();
  other.manifest.model_name = "other";
  int failures = 0;
  for (int n = 0; n < 40; ++n) {
    FailingFileSystem fs(n);
    const Status status = WriteBundle(&fs, path_, other);
    const auto reader = Open();
    ASSERT_TRUE(reader.ok()) << n << ": " << reader.status().ToString();
    EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
    if (status.ok()) break;
    ++failures;
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ((*reader)->manifest().model_name, "toy") << n;
  }
  EXPECT_GE(failures, 12);  // a folder, ten files, two renames
  EXPECT_EQ((*Open())->manifest().model_name, "other");
}

TEST_F(BundleTest, RefusesAProgramThatLeavesTheArena) {
  BundleContent content = ToyBundle();
  content.program.set_arena_bytes(64);
  const Status status = Write(std::move(content));
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(BundleTest, RefusesDataOfAnotherType) {
  BundleContent content = ToyBundle();
  content.slot_data[0] = hyper::testing::Ramp({3}, 1.0f);
  EXPECT_THAT(Write(std::move(content)).message(), HasSubstr("f32[3]"));
}

TEST_F(BundleTest, RefusesNamesThatAreNoText) {
  BundleContent content = ToyBundle();
  content.program.mutable_slots(0)->set_name("\xff\xfe");
  EXPECT_EQ(Write(std::move(content)).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace hyper::codegen
