#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include "base/diagnostics.h"
#include "base/file.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/strings.h"

namespace hyper {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}

Result<int> Quarter(int x) {
  HYPER_ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

TEST(Status, ResultsCarryValuesOrErrors) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Quarter(6).status().WithContext("here").message(), "here: odd");
}

TEST(Status, GuardTurnsExceptionsIntoStatus) {
  EXPECT_EQ(Guard([]() -> Status { throw std::runtime_error("x"); }).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Guard([]() -> Status { throw std::bad_alloc(); }).code(),
            StatusCode::kResourceExhausted);
  const Status internal = Guard([]() -> Status {
    HYPER_CHECK(1 == 2, "detail");
    return Status::Ok();
  });
  EXPECT_EQ(internal.code(), StatusCode::kInternal);
  EXPECT_NE(internal.message().find("detail"), std::string::npos);
}

TEST(Status, ExitCodesAreTheDocumentedOnes) {
  EXPECT_EQ(ExitCode(StatusCode::kOk), 0);
  EXPECT_EQ(ExitCode(StatusCode::kDataLoss), 1);
  EXPECT_EQ(ExitCode(StatusCode::kInternal), 3);
  EXPECT_EQ(ExitCode(StatusCode::kResourceExhausted), 4);
  EXPECT_EQ(ExitCode(StatusCode::kUnavailable), 5);
  EXPECT_EQ(ExitCode(StatusCode::kCancelled), 75);
}

TEST(Diagnostics, QuotesTheLineWithACaret) {
  Diagnostics diagnostics;
  diagnostics.Error({"a.yaml", 2, 3}, "unknown key 'los'", "did you mean 'loss'?");
  EXPECT_EQ(diagnostics.Render("train:\n  los: 1\n"),
            "a.yaml:2:3: error: unknown key 'los'\n"
            "    los: 1\n"
            "    ^\n"
            "  help: did you mean 'loss'?\n");
  EXPECT_FALSE(diagnostics.ToStatus().ok());
}

TEST(Diagnostics, StopsAtTheLimit) {
  Diagnostics diagnostics;
  for (int i = 0; i < 25; ++i) diagnostics.Error({}, "e");
  EXPECT_NE(diagnostics.Render({}, 20).find("... and 5 more errors"), std::string::npos);
}

TEST(Strings, Globs) {
  EXPECT_TRUE(GlobMatch("*embed*", "model.embedding.weight"));
  EXPECT_TRUE(GlobMatch("conv?.weight", "conv1.weight"));
  EXPECT_FALSE(GlobMatch("conv?.weight", "conv10.weight"));
  EXPECT_TRUE(GlobMatch("*", ""));
  EXPECT_FALSE(GlobMatch("", "x"));
  EXPECT_FALSE(GlobMatch("a*a*a*a*a*b", std::string(2000, 'a')));
}

TEST(Strings, Suggestions) {
  const std::vector<std::string> names = {"logits", "labels", "loss"};
  EXPECT_EQ(DidYouMean("logit", names), "did you mean 'logits'?");
  EXPECT_EQ(DidYouMean("zzzzzz", names), "");
  // Neighbours swapped count as one mistake: short words are found too.
  EXPECT_EQ(EditDistance("modle", "model"), 1);
  EXPECT_EQ(EditDistance("ca", "abc"), 3);  // no letter moves twice
  EXPECT_EQ(EditDistance("ab", "ba"), 1);
  EXPECT_EQ(EditDistance("", "ab"), 2);
  EXPECT_EQ(DidYouMean("rl", std::vector<std::string>{"lr", "eps"}), "did you mean 'lr'?");
}

TEST(Strings, YamlScalars) {
  for (const char* plain : {"a", "layers.0.weight", "a/b-c_d"}) EXPECT_EQ(YamlScalar(plain), plain);
  for (const char* quoted : {"", "7", "null", "Yes", "a b", "a:b", "*", "#", "-a", "~", ".."}) {
    EXPECT_EQ(YamlScalar(quoted), "\"" + std::string(quoted) + "\"");
  }
  EXPECT_EQ(YamlScalar("a\"b\\c\n\x01"), R"("a\"b\\c\n\u0001")");
}

TEST(Strings, Sizes) {
  EXPECT_EQ(*ParseBytes("25MiB"), 25 << 20);
  EXPECT_EQ(*ParseBytes("1.5 GiB"), 3LL << 29);
  EXPECT_EQ(*ParseBytes("10MB"), 10000000);
  EXPECT_FALSE(ParseBytes("25 pounds").ok());
  EXPECT_FALSE(ParseBytes("-1").ok());
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
}

TEST(File, ReadsWhatWasWrittenAndNothingMore) {
  const std::string path = testing::TempDir() + "/base_test_file";
  ASSERT_TRUE(WriteFileAtomic(RealFileSystem(), path, "hello").ok());
  EXPECT_EQ(*RealFileSystem()->ReadAll(path, 100), "hello");
  EXPECT_EQ(RealFileSystem()->ReadAll(path, 4).status().code(), StatusCode::kInvalidArgument);
  std::byte buffer[3];
  EXPECT_EQ(RealFileSystem()->ReadAt(path, 4, buffer).code(), StatusCode::kDataLoss);
  EXPECT_EQ(RealFileSystem()->Size("/nonexistent/x").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

// Reading or writing them could wait for ever, or take their place.
TEST(File, OnlyRegularFilesAreReadAndReplaced) {
  FileSystem* fs = RealFileSystem();
  const std::string pipe = testing::TempDir() + "/base_test_fifo";
  ::unlink(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, kind] : std::vector<std::pair<std::string, std::string>>{
           {pipe, "a named pipe"}, {"/dev/null", "a device"}, {testing::TempDir(), "a folder"}}) {
    const std::string says = "'" + path + "' is not a regular file but " + kind;
    std::byte buffer[3];
    EXPECT_EQ(fs->ReadAll(path, 100).status().message(), says);
    EXPECT_EQ(fs->ReadAt(path, 0, buffer).message(), says);
    EXPECT_EQ(MapFile(path).status().message(), says);
    EXPECT_EQ(WriteFileAtomic(fs, path, "x").message(), says);
  }
  EXPECT_FALSE(fs->Create(pipe).ok());  // nobody reads it
  ::unlink(pipe.c_str());
}

TEST(Sha256, MatchesTheStandardsExampleInOneAndInPieces) {
  // FIPS 180-4 example, one block.
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(Sha256Hex("abc"), abc);
  Sha256 pieces;
  const std::string_view text = "abc";
  for (const char& letter : text) pieces.Update(std::as_bytes(std::span(&letter, 1)));
  EXPECT_EQ(pieces.FinishHex(), abc);
  EXPECT_EQ(Sha256Hex(""), Sha256().FinishHex());
}

TEST(Sha256, OfAFileReadInPieces) {
  const std::string path = testing::TempDir() + "/base_test_hashed";
  const std::string text((size_t{2} << 20) + 7, 'x');  // three pieces
  ASSERT_TRUE(WriteFile(RealFileSystem(), path, text).ok());
  const int64_t bytes = static_cast<int64_t>(text.size());
  std::string seen;
  const auto hash = HashFile(RealFileSystem(), path, bytes, [&](std::span<const std::byte> piece) {
    seen.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return Status::Ok();
  });
  ASSERT_TRUE(hash.ok());
  EXPECT_EQ(*hash, Sha256Hex(text));
  EXPECT_TRUE(seen == text);
  EXPECT_EQ(HashFile(RealFileSystem(), path, bytes + 1).status().code(), StatusCode::kDataLoss);
}

TEST(MapFile, MapsFilesBeyondFourGigabytes) {
  const std::string path = testing::TempDir() + "/base_test_sparse";
  const size_t end = (size_t{5} << 30) + 3;
  {
    std::ofstream file(path, std::ios::binary);
    file.seekp(static_cast<std::streamoff>(end - 4));  // a hole costs no disk
    file << "tail";
  }
  const auto file = MapFile(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->bytes.size(), end);
  EXPECT_EQ(file->bytes[0], std::byte{0});
  EXPECT_EQ(file->bytes[end - 1], std::byte{'l'});
  std::filesystem::remove(path);
}

TEST(MapFile, EmptyFilesAndErrors) {
  const std::string path = testing::TempDir() + "/base_test_empty";
  ASSERT_TRUE(WriteFile(RealFileSystem(), path, "").ok());
  const auto empty = MapFile(path);
  ASSERT_TRUE(empty.ok()) << empty.status().message();
  EXPECT_TRUE(empty->bytes.empty());
  const Status missing = MapFile("/nonexistent/x").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "cannot open '/nonexistent/x': No such file or directory");
  const Status folder = MapFile(testing::TempDir()).status();
  EXPECT_EQ(folder.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(folder.message().find("is not a regular file"), std::string::npos);
  // A pipe is not waited for.
  const std::string pipe = testing::TempDir() + "/base_test_pipe";
  ::unlink(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MapFile(pipe).status().code(), StatusCode::kInvalidArgument);
  ::unlink(pipe.c_str());
}

}  // namespace
}  // namespace hyper
