// Text in, text out: every <folder>/*.hir is parsed, run through its RUN pipeline and compared with
// its CHECK lines.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "ir/pass.h"
#include "ir/text.h"
#include "tests/support/check_lines.h"

namespace hyper::ir {
namespace {

std::vector<std::string> Files() {
  std::vector<std::string> files;
  const std::string root = std::string(HYPER_SOURCE_DIR) + "/tests/ir";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".hir") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class HirTest : public ::testing::TestWithParam<std::string> {};

TEST_P(HirTest, Checks) {
  const std::string text = ReadFile(GetParam());
  const auto file = testing::ReadTestFile(text);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->runs.size(), 1u) << "one RUN line";
  ASSERT_TRUE(!file->checks.empty() || !file->errors.empty()) << "nothing is checked";
  auto module = Parse(text, GetParam());
  Status status = module.status();
  if (status.ok()) status = RunPipeline(file->runs[0], *module, {}, nullptr);
  if (!file->errors.empty()) {
    ASSERT_FALSE(status.ok()) << "an error was expected";
    const Status found = testing::CheckErrors(file->errors, status.message());
    EXPECT_TRUE(found.ok()) << found.message();
    return;
  }
  ASSERT_TRUE(status.ok()) << status.ToString();
  const std::string output = Print(*module);
  const Status checks = testing::RunChecks(file->checks, output);
  EXPECT_TRUE(checks.ok()) << checks.message();
  // What a pass wrote reads back as the same.
  const auto again = Parse(output);
  ASSERT_TRUE(again.ok()) << again.status().ToString() << output;
  EXPECT_EQ(Print(*again), output);
}

INSTANTIATE_TEST_SUITE_P(Files, HirTest, ::testing::ValuesIn(Files()), [](const auto& info) {
  const std::filesystem::path path(info.param);
  std::string name = path.parent_path().filename().string() + "_" + path.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace hyper::ir
