#include "runtime/checkpoint.h"
#include "base/sha256.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/safetensors.h"
#include "tests/runtime/fake_executor.h"
#include "tests/runtime/test_files.h"

namespace hyper::runtime {
namespace {

using testing::FakeExecutor;
using ::testing::HasSubstr;
using testing::TestFolder;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Passes through to the real file system until the n-th change of it, which fails, as do all after
// it: the process has died there.
class DyingFileSystem final : public FileSystem {
 public:
  explicit DyingFileSystem(int64_t changes) : left_(changes) {}
  bool died() const { return left_ < 0; }

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    HYPER_RETURN_IF_ERROR(Change());
    HYPER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, real_->Create(path));
    return std::unique_ptr<WritableFile>(std::make_unique<File>(this, std::move(file)));
  }
  Result<std::string> ReadAll(const std::string& path, int64_t limit) override {
    return real_->ReadAll(path, limit);
  }
  Status ReadAt(const std::string& path, int64_t offset, std::span<std::byte> out) override {
    return real_->ReadAt(path, offset, out);
  }
  Result<int64_t> Size(const std::string& path) override { return real_->Size(path); }
  bool Exists(const std::string& path) override { return real_->Exists(path); }
  Status MakeDirs(const std::string& path) override {
    HYPER_RETURN_IF_ERROR(Change());
    return real_->MakeDirs(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    HYPER_RETURN_IF_ERROR(Change());
    return real_->Rename(from, to);
  }
  Status RemoveAll(const std::string& path) override {
    HYPER_RETURN_IF_ERROR(Change());
    return real_->RemoveAll(path);
  }
  Result<std::vector<std::string>> List(const std::string& path) override {
    return real_->List(path);
  }

 private:
  class File final : public WritableFile {
   public:
    File(DyingFileSystem* owner, std::unique_ptr<WritableFile> file)
        : owner_(owner), file_(std::move(file)) {}
    Status Append(std::span<const std::byte> data) override {
      const Status status = owner_->Change();
      // A death while writing leaves a part.
      if (!status.ok()) (void)file_->Append(data.first(data.size() / 2));
      return status.ok() ? file_->Append(data) : status;
    }
    Status Sync() override {
      HYPER_RETURN_IF_ERROR(owner_->Change());
      return file_->Sync();
    }
    Status Close() override {
      HYPER_RETURN_IF_ERROR(owner_->Change());
      return file_->Close();
    }

   private:
    DyingFileSystem* owner_;
    std::unique_ptr<WritableFile> file_;
  };

  Status Change() {
    if (left_ <= 0) left_ = -1;
    if (left_ < 0) return ResourceExhausted("disk full");
    --left_;
    return Status::Ok();
  }

  FileSystem* real_ = RealFileSystem();
  int64_t left_;
};

// Parameters with recognisable values.
void Fill(FakeExecutor* executor, double base) {
  std::vector<double> weight(12), bias(4), mean(3);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = base + static_cast<double>(i) / 3;
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = -base - static_cast<double>(i);
  for (size_t i = 0; i < mean.size(); ++i) mean[i] = base * 10 + static_cast<double>(i);
  executor->SetValues(program::PARAMETER, "weight", weight);
  executor->SetValues(program::PARAMETER, "bias", bias);
  executor->SetValues(program::STATE, "mean", mean);
}

CheckpointInfo Info(int64_t step) { return {"toy", step, step * 8, 42}; }

TEST(Checkpoint, RoundTrip) {
  const TestFolder folder;
  FakeExecutor executor({});
  Fill(&executor, 1);
  std::vector<double> sum(12, 2.5);
  const program::Slot* slot = executor.FindSlot(program::OPTIMIZER, "weight", "sum");
  executor.WriteOperand(slot->place(), std::as_bytes(std::span(sum)));
  const auto path = SaveCheckpoint(RealFileSystem(), folder.path(), Info(100), executor);
  ASSERT_TRUE(path.ok()) << path.status().ToString();
  EXPECT_EQ(*path, folder.File("step-00000100"));
  EXPECT_EQ(ReadText(folder.File("latest")), "step-00000100\n");

  // From the one checkpoint and from the folder of them.
  for (const std::string& from : {*path, folder.path()}) {
    const auto loaded = LoadCheckpoint(RealFileSystem(), from);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_EQ(loaded->info.step, 100);
    EXPECT_EQ(loaded->info.position, 800);
    EXPECT_EQ(loaded->info.seed, 42);
    EXPECT_EQ(loaded->info.model, "toy");
    FakeExecutor other({});
    ASSERT_TRUE(RestoreCheckpoint(*loaded, &other).ok());
    for (const auto& [storage, name] :
         {std::pair(program::PARAMETER, "weight"), std::pair(program::PARAMETER, "bias"),
          std::pair(program::STATE, "mean"), std::pair(program::FROZEN, "shift")}) {
      EXPECT_EQ(other.Values(storage, name), executor.Values(storage, name)) << name;
    }
    std::vector<double> restored(12);
    other.ReadOperand(slot->place(), std::as_writable_bytes(std::span(restored)));
    EXPECT_EQ(restored, sum);
  }
  const auto tensors = LoadTensors(RealFileSystem(), *path);
  ASSERT_TRUE(tensors.ok());
  EXPECT_EQ(*tensors, CollectTensors(executor));
  EXPECT_EQ(tensors->size(), 4u);
  EXPECT_EQ(tensors->at("weight").type().ToString(), "f64[3,4]");
}

// The layout, read by nothing but its published rules.
TEST(Checkpoint, FilesAreSafetensors) {
  const TestFolder folder;
  FakeExecutor executor({});
  Fill(&executor, 1);
  const auto path = SaveCheckpoint(RealFileSystem(), folder.path(), Info(1), executor);
  ASSERT_TRUE(path.ok());
  const std::string file = ReadText(*path + "/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  EXPECT_EQ(header["bias"]["dtype"], "F64");
  EXPECT_EQ(header["bias"]["shape"], nlohmann::json({4}));
  const size_t begin = header["bias"]["data_offsets"][0].get<size_t>();
  double value = 0;
  std::memcpy(&value, file.data() + 8 + length + begin + 2 * 8, 8);
  EXPECT_EQ(value, -3);
  // Entries cover the data without gap or overlap.
  size_t covered = 0;
  for (const auto& [name, entry] : header.items()) {
    covered += entry["data_offsets"][1].get<size_t>() - entry["data_offsets"][0].get<size_t>();
  }
  EXPECT_EQ(8 + length + covered, file.size());

  const auto manifest = nlohmann::json::parse(ReadText(*path + "/manifest.json"));
  EXPECT_EQ(manifest["version"], 1);
  EXPECT_EQ(manifest["files"]["model.safetensors"]["sha256"], Sha256Hex(file));
  EXPECT_EQ(manifest["files"]["model.safetensors"]["bytes"], file.size());
  const auto& tensors = manifest["tensors"];
  ASSERT_EQ(tensors.size(), 5u);
  EXPECT_EQ(tensors[4]["key"], "sum:weight");
  EXPECT_EQ(tensors[4]["box"], nlohmann::json::parse("[[0,3],[0,4]]"));
  EXPECT_EQ(tensors[4]["order"], nlohmann::json::parse("[0,1]"));
}

TEST(Checkpoint, EveryDamagedByteIsFound) {
  const TestFolder folder;
  FakeExecutor executor({});
  const auto path = SaveCheckpoint(RealFileSystem(), folder.path(), Info(1), executor);
  ASSERT_TRUE(path.ok());
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string file = *path + "/" + name;
    const std::string good = ReadText(file);
    for (size_t i = 0; i < good.size(); i += 37) {
      std::string bad = good;
      bad[i] ^= 0x10;
      WriteText(file, bad);
      const auto loaded = LoadCheckpoint(RealFileSystem(), *path);
      ASSERT_EQ(loaded.status().code(), StatusCode::kDataLoss) << name << " " << i;
      ASSERT_THAT(loaded.status().message(), HasSubstr(name));
    }
    WriteText(file, good.substr(0, good.size() - 3));
    EXPECT_EQ(LoadCheckpoint(RealFileSystem(), *path).status().code(), StatusCode::kDataLoss);
    std::filesystem::remove(file);
    EXPECT_FALSE(LoadCheckpoint(RealFileSystem(), *path).ok());
    WriteText(file, good);
    EXPECT_TRUE(LoadCheckpoint(RealFileSystem(), *path).ok());
  }
  // The manifest has no checksum of its own: whatever is changed must not crash, and what loads
  // must be the right values.
  const std::string manifest = *path + "/manifest.json";
  const std::string good = ReadText(manifest);
  const NamedTensors expected = CollectTensors(executor);
  for (size_t i = 0; i < good.size(); i += i + 40 < good.size() ? 13 : 1) {
    std::string bad = good;
    bad[i] ^= 0x04;
    WriteText(manifest, bad);
    const auto loaded = LoadCheckpoint(RealFileSystem(), *path);
    if (loaded.ok()) {
      EXPECT_EQ(loaded->tensors, expected) << i;
    }
    WriteText(manifest, good.substr(0, i));
    const bool only_newline_lost = i + 1 == good.size();
    EXPECT_EQ(LoadCheckpoint(RealFileSystem(), *path).ok(), only_newline_lost) << i;
  }
}

TEST(Checkpoint, ForeignVersionAndModel) {
  const TestFolder folder;
  FakeExecutor executor({});
  const auto path = SaveCheckpoint(RealFileSystem(), folder.path(), Info(1), executor);
  ASSERT_TRUE(path.ok());
  const auto loaded = LoadCheckpoint(RealFileSystem(), *path);
  testing::FakeOptions wider;
  wider.features = 5;
  FakeExecutor other(wider);
  const std::vector<double> before = other.Values(program::PARAMETER, "bias");
  const Status status = RestoreCheckpoint(*loaded, &other);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("'weight' is f64[3,4], the bundle has f64[5,4]"));

  std::string manifest = ReadText(*path + "/manifest.json");
  manifest.replace(manifest.find("\"version\": 1"), 12, "\"version\": 2");
  WriteText(*path + "/manifest.json", manifest);
  const Status newer = LoadCheckpoint(RealFileSystem(), *path).status();
  EXPECT_EQ(newer.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(newer.message(), HasSubstr("version 2; this release reads version 1"));
  EXPECT_EQ(LoadCheckpoint(RealFileSystem(), folder.File("none")).status().code(),
            StatusCode::kNotFound);
  const TestFolder empty;
  EXPECT_EQ(LoadCheckpoint(RealFileSystem(), empty.path()).status().code(), StatusCode::kNotFound);
}

TEST(Checkpoint, FallsBackToTheLastGoodOne) {
  const TestFolder folder;
  FakeExecutor executor({});
  for (const int64_t step : {10, 20, 30}) {
    Fill(&executor, static_cast<double>(step));
    ASSERT_TRUE(SaveCheckpoint(RealFileSystem(), folder.path(), Info(step), executor).ok());
  }
  EXPECT_EQ(LoadCheckpoint(RealFileSystem(), folder.path())->info.step, 30);
  WriteText(folder.File("step-00000030/model.safetensors"), "damaged");
  const auto loaded = LoadCheckpoint(RealFileSystem(), folder.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->info.step, 20);
  ASSERT_EQ(loaded->notes.size(), 1u);
  EXPECT_THAT(loaded->notes[0], HasSubstr("step-00000030"));
  // A shorter run started anew in the same folder: the latest is the one written last.
  ASSERT_TRUE(SaveCheckpoint(RealFileSystem(), folder.path(), Info(5), executor).ok());
  EXPECT_EQ(LoadCheckpoint(RealFileSystem(), folder.path())->info.step, 5);
}

// The save of step 20 dies after every possible number of changes: what loads afterwards is always
// whole, and is step 10 until the save got far enough.
TEST(Checkpoint, InterruptedSaveLeavesAWholeState) {
  bool completed = false;
  bool saw_old = false;
  for (int64_t changes = 0; !completed; ++changes) {
    const TestFolder folder;
    FakeExecutor executor({});
    Fill(&executor, 10);
    const NamedTensors old_tensors = CollectTensors(executor);
    ASSERT_TRUE(SaveCheckpoint(RealFileSystem(), folder.path(), Info(10), executor).ok());
    Fill(&executor, 20);
    const NamedTensors new_tensors = CollectTensors(executor);
    DyingFileSystem dying(changes);
    const auto saved = SaveCheckpoint(&dying, folder.path(), Info(20), executor);
    EXPECT_EQ(saved.ok(), !dying.died());
    completed = saved.ok();
    const auto loaded = LoadCheckpoint(RealFileSystem(), folder.path());
    ASSERT_TRUE(loaded.ok()) << changes << " " << loaded.status().ToString();
    if (loaded->info.step == 10) {
      saw_old = true;
      EXPECT_EQ(loaded->tensors, old_tensors);
      EXPECT_FALSE(completed);
    } else {
      EXPECT_EQ(loaded->info.step, 20);
      EXPECT_EQ(loaded->tensors, new_tensors);
    }
    EXPECT_TRUE(loaded->notes.empty());
    // The next save cleans up and succeeds.
    ASSERT_TRUE(SaveCheckpoint(RealFileSystem(), folder.path(), Info(20), executor).ok());
    EXPECT_EQ(LoadCheckpoint(RealFileSystem(), folder.path())->info.step, 20);
    ASSERT_LT(changes, 100);
  }
  EXPECT_TRUE(saw_old);
}

TEST(Checkpoint, SameStepTwiceReplaces) {
  const TestFolder folder;
  FakeExecutor executor({});
  Fill(&executor, 1);
  ASSERT_TRUE(SaveCheckpoint(RealFileSystem(), folder.path(), Info(10), executor).ok());
  Fill(&executor, 2);
  ASSERT_TRUE(SaveCheckpoint(RealFileSystem(), folder.path(), Info(10), executor).ok());
  EXPECT_EQ(LoadCheckpoint(RealFileSystem(), folder.path())->tensors, CollectTensors(executor));
  EXPECT_EQ(RealFileSystem()->List(folder.path())->size(), 2u);  // the state and `latest`
}

TEST(Safetensors, HostileHeaders) {
  const auto parse = [](const std::string& header, size_t data_bytes) {
    const uint64_t length = header.size();
    std::string file(reinterpret_cast<const char*>(&length), 8);
    file += header + std::string(data_bytes, 'x');
    return ParseSafetensors(std::make_shared<const std::string>(file), "f").status();
  };
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_TRUE(parse(good, 8).ok());
  EXPECT_EQ(parse(good, 7).code(), StatusCode::kDataLoss);
  for (const char* header :
       {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})",
        R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", R"({"a":1})", "[]", "{", ""}) {
    EXPECT_EQ(parse(header, 8).code(), StatusCode::kDataLoss) << header;
  }
  const uint64_t huge = ~uint64_t{0} - 3;
  EXPECT_EQ(ParseSafetensors(std::make_shared<const std::string>(
                                 std::string(reinterpret_cast<const char*>(&huge), 8)),
                             "f")
                .status()
                .code(),
            StatusCode::kDataLoss);
}

// Every single bit and every cut of a file, and headers that nest: refused, or tensors inside it.
TEST(Safetensors, EveryBitAndEveryCut) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"I8","shape":[2,2],"data_offsets":[8,12]}})";
  const uint64_t length = header.size();
  const std::string good =
      std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(12, 'x');
  const auto parse = [](const std::string& file) {
    const auto tensors = ParseSafetensors(std::make_shared<const std::string>(file), "f");
    if (!tensors.ok()) {
      EXPECT_EQ(tensors.status().code(), StatusCode::kDataLoss);
      return false;
    }
    for (const auto& [name, tensor] : *tensors) {
      for (int64_t i = 0; i < tensor.type().elements(); ++i) (void)tensor.ElementAsDouble(i);
    }
    return true;
  };
  ASSERT_TRUE(parse(good));
  int refused = 0;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    refused += !parse(bad);
  }
  EXPECT_GT(refused, 400);
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(parse(good.substr(0, size)));
  const std::string deep = R"({"a":)" + std::string(200000, '[');
  const uint64_t deep_length = deep.size();
  EXPECT_FALSE(parse(std::string(reinterpret_cast<const char*>(&deep_length), 8) + deep));
  const std::string closed = deep + std::string(200000, ']') + "}";
  const uint64_t closed_length = closed.size();
  EXPECT_FALSE(parse(std::string(reinterpret_cast<const char*>(&closed_length), 8) + closed));
}

}  // namespace
}  // namespace hyper::runtime
