#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/diagnostics.h"
#include "base/file.h"
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

TEST(File, Sha256MatchesTheStandardsExample) {
  // FIPS 180-4 example, one block.
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace hyper
