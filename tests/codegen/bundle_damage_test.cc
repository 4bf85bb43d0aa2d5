// Damaged, foreign and hostile bundles.
#include <cstring>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "codegen/bundle.h"
#include "codegen/manifest.h"
#include "codegen/validate.h"
#include "tests/codegen/codegen_fixture.h"

namespace hyper::codegen {
namespace {

using hyper::testing::TestFolder;
using hyper::testing::ToyBundle;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class BundleDamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = WriteBundle(RealFileSystem(), path_, ToyBundle());
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  std::string Read(const std::string& name) {
    return *RealFileSystem()->ReadAll(JoinPath(path_, name), 1 << 30);
  }
  void Overwrite(const std::string& name, const std::string& text) {
    std::ofstream(JoinPath(path_, name), std::ios::binary) << text;
  }
  Status OpenStatus() { return BundleReader::Open(RealFileSystem(), path_).status(); }

  // Makes the manifest fit the file again, as an attacker would.
  void FixChecksum(const std::string& name) {
    Manifest manifest = *ParseManifest(Read("manifest.json"), path_);
    const std::string text = Read(name);
    manifest.checksums[name] = Sha256Hex(text);
    manifest.sizes[name] = static_cast<int64_t>(text.size());
    Overwrite("manifest.json", PrintManifest(manifest));
  }
  // Edits the manifest's JSON and signs it again.
  template <typename Edit>
  void EditManifest(Edit edit) {
    Json json = Json::parse(Read("manifest.json"));
    edit(json);
    json["manifest_sha256"] = "";
    json["manifest_sha256"] = Sha256Hex(json.dump(2));
    Overwrite("manifest.json", json.dump(2) + "\n");
  }

  TestFolder folder_;
  std::string path_ = folder_ / "job.bundle";
};

TEST_F(BundleDamageTest, NamesTheDamagedFileAndBothHashes) {
  for (const BundleFile& file : BundleFiles()) {
    const std::string name(file.name);
    const std::string good = Read(name);
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
    Overwrite(name, bad);
    const Status status = OpenStatus();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << name;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr(Sha256Hex(good).substr(0, 12)),
                                        HasSubstr(Sha256Hex(bad).substr(0, 12))));
    Overwrite(name, good.substr(1));
    EXPECT_THAT(OpenStatus().message(), HasSubstr("bytes, expected")) << name;
    Overwrite(name, good);
  }
  EXPECT_TRUE(OpenStatus().ok());
}

TEST_F(BundleDamageTest, MissingAndExtraFiles) {
  for (const BundleFile& file : BundleFiles()) {
    const std::string name(file.name);
    const std::string good = Read(name);
    std::filesystem::remove(path_ + "/" + name);
    EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss) << name;
    EXPECT_THAT(OpenStatus().message(), HasSubstr("lacks its file '" + name)) << name;
    Overwrite(name, good);
  }
  for (const char* name : {"extra.txt", "group0/extra.so"}) {
    Overwrite(name, "x");
    EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss);
    EXPECT_THAT(OpenStatus().message(), HasSubstr(name));
    std::filesystem::remove(path_ + "/" + name);
  }
  EXPECT_TRUE(OpenStatus().ok());
}

TEST_F(BundleDamageTest, LinksAreRefused) {
  std::filesystem::rename(path_ + "/group0", folder_ / "moved");
  std::filesystem::create_directory_symlink(folder_ / "moved", path_ + "/group0");
  EXPECT_THAT(OpenStatus().message(), HasSubstr("symbolic link"));
}

TEST_F(BundleDamageTest, ForeignFolders) {
  EXPECT_EQ(BundleReader::Open(RealFileSystem(), folder_ / "nothing").status().code(),
            StatusCode::kNotFound);
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_EQ(BundleReader::Open(RealFileSystem(), folder_ / "empty").status().code(),
            StatusCode::kInvalidArgument);
  Overwrite("manifest.json", "{\"name\": \"a web page\"}");
  EXPECT_EQ(OpenStatus().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(OpenStatus().message(), HasSubstr("not a bundle"));
  Overwrite("manifest.json", "[1, 2]");
  EXPECT_EQ(OpenStatus().code(), StatusCode::kInvalidArgument);
  Overwrite("manifest.json", "not json");
  EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss);
}

TEST_F(BundleDamageTest, AnotherVersionIsRefusedNamingBoth) {
  EditManifest([](Json& json) {
    json["format_version"] = 7;
    json["producer"] = "hyperc 9.1";
  });
  const Status status = OpenStatus();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("format version 7"), HasSubstr("hyperc 9.1"),
                                      HasSubstr("reads version 1")));
}

TEST_F(BundleDamageTest, ManifestTricks) {
  const std::string good = Read("manifest.json");
  const Json entry = Json::parse(good)["files"]["plan.json"];
  for (const char* name : {"../../etc/passwd", "/etc/passwd", "group0/../plan.json", "",
                           "group1/program.pb", "plan.json\n"}) {
    EditManifest([&](Json& json) { json["files"][name] = entry; });
    EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss) << name;
    EXPECT_THAT(OpenStatus().message(), HasSubstr("does not have")) << name;
    Overwrite("manifest.json", good);
  }
  const std::vector<Json> sizes = {-1, int64_t{1} << 62, 1e300, "12", nullptr, UINT64_MAX};
  for (const Json& size : sizes) {
    EditManifest([&](Json& json) { json["files"]["plan.json"]["bytes"] = size; });
    EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss) << size;
    Overwrite("manifest.json", good);
  }
  EditManifest([](Json& json) { json["files"]["plan.json"]["sha256"] = "00"; });
  EXPECT_THAT(OpenStatus().message(), HasSubstr("no SHA-256"));
  Overwrite("manifest.json", good);
  EditManifest([](Json& json) { json["files"].erase("group0/tensors.bin"); });
  EXPECT_THAT(OpenStatus().message(), HasSubstr("does not name 'group0/tensors.bin'"));
  Overwrite("manifest.json", std::string(1 << 20, '['));
  EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss);
  Overwrite("manifest.json", good);
  EXPECT_TRUE(OpenStatus().ok());
}

TEST_F(BundleDamageTest, EveryBitOfTheManifestCounts) {
  const std::string good = Read("manifest.json");
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    char& c = bad[random() % bad.size()];
    c = static_cast<char>(c ^ (1 << random() % 8));
    Overwrite("manifest.json", bad);
    // White space between tokens is not content.
    const Json parsed = Json::parse(bad, nullptr, false);
    if (!parsed.is_discarded() && parsed.dump(2) == Json::parse(good).dump(2)) continue;
    EXPECT_FALSE(OpenStatus().ok()) << bad;
  }
  for (size_t length = 0; length < good.size() - 1; length += 7) {
    Overwrite("manifest.json", good.substr(0, length));
    EXPECT_FALSE(OpenStatus().ok()) << length;
  }
}

// What an executor relies on, recomputed here for every operand.
void ExpectInsideArena(const program::Program& program) {
  const auto check = [&](const program::Operand& o) {
    __int128 low = o.offset();
    __int128 high = o.offset();
    bool empty = false;
    for (int d = 0; d < o.dims_size(); ++d) {
      ASSERT_GE(o.dims(d), 0);
      if (o.dims(d) == 0) {
        empty = true;
        break;
      }
      const __int128 reach =
          static_cast<__int128>(o.strides(d)) * (o.dims(d) - 1) * DTypeBytes(o.dtype());
      (reach < 0 ? low : high) += reach;
    }
    if (empty) return;
    EXPECT_TRUE(low >= 0 && high + DTypeBytes(o.dtype()) <= program.arena_bytes())
        << o.ShortDebugString();
    EXPECT_TRUE(low >= o.begin() && high + DTypeBytes(o.dtype()) <= o.end());
  };
  for (const program::Slot& slot : program.slots()) check(slot.place());
  for (const program::SubProgram& sub : program.subprograms()) {
    for (const program::Instruction& instruction : sub.instructions()) {
      for (const program::Operand& o : instruction.operands()) check(o);
      if (instruction.has_marker()) {
        EXPECT_GE(instruction.marker().bucket(), 0);
        EXPECT_LT(instruction.marker().bucket(), program.buckets_size());
      }
    }
    for (const program::Operand& o : sub.results()) check(o);
  }
  for (const program::Bucket& bucket : program.buckets()) {
    EXPECT_LE(0, bucket.begin());
    EXPECT_LE(bucket.begin(), bucket.end());
    EXPECT_LE(bucket.end(), program.arena_bytes());
  }
}

// Random damage of program.pb with checksums put right: refused, or still inside the arena.
TEST_F(BundleDamageTest, HostileProgramsStayInsideTheArena) {
  const std::string good = Read("group0/program.pb");
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bad = good;
    if (round % 4 == 0) {
      bad.resize(random() % bad.size());
    } else {
      for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
        bad[random() % bad.size()] = static_cast<char>(random() % (round % 2 == 0 ? 256 : 2) * 255);
      }
    }
    Overwrite("group0/program.pb", bad);
    FixChecksum("group0/program.pb");
    const auto reader = BundleReader::Open(RealFileSystem(), path_);
    if (!reader.ok()) {
      ++refused;
      continue;
    }
    ExpectInsideArena((*reader)->program());
    if (const auto kernels = (*reader)->LoadKernels(); !kernels.ok()) ++refused;
  }
  EXPECT_GT(refused, 750);
}

TEST_F(BundleDamageTest, AKernelIsNeverGivenLessThanItTouches) {
  program::Program program;
  ASSERT_TRUE(program.ParseFromString(Read("group0/program.pb")));
  for (program::SubProgram& sub : *program.mutable_subprograms()) {
    if (sub.name() != "count") continue;
    program::Operand* y = sub.mutable_instructions(0)->mutable_operands(2);
    y->set_dims(0, 3);
    y->set_end(y->end() - 24);
  }
  Overwrite("group0/program.pb", program.SerializeAsString());
  FixChecksum("group0/program.pb");
  const auto reader = BundleReader::Open(RealFileSystem(), path_);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const auto kernels = (*reader)->LoadKernels();
  ASSERT_FALSE(kernels.ok());
  EXPECT_EQ(kernels.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(kernels.status().message(),
              HasSubstr("kernel 'k_toy' touches bytes [0, 96) of operand 2"));
}

TEST_F(BundleDamageTest, KernelsThatAreNoLibraryAreRefused) {
  Overwrite("group0/kernels.so", "#!/bin/sh\necho no library\n");
  FixChecksum("group0/kernels.so");
  const auto reader = BundleReader::Open(RealFileSystem(), path_);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->LoadKernels().status().code(), StatusCode::kDataLoss);
}

// Changed between Open and LoadKernels.
TEST_F(BundleDamageTest, KernelsAreHashedAgainWhenLoaded) {
  const auto reader = BundleReader::Open(RealFileSystem(), path_);
  ASSERT_TRUE(reader.ok());
  std::string bytes = Read("group0/kernels.so");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  Overwrite("group0/kernels.so", bytes);
  EXPECT_THAT((*reader)->LoadKernels().status().message(), HasSubstr("is damaged"));
}

}  // namespace
}  // namespace hyper::codegen
