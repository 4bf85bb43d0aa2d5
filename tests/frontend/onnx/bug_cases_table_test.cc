// docs/bug-cases.md names a test for every case, and those tests exist.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

using Matches = std::sregex_iterator;

// "Suite.Name" of every test of the project.
std::set<std::string> AllTests() {
  static const std::regex test(R"(\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\))");
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(HYPER_SOURCE_DIR) / "tests")) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = ReadText(entry.path());
    for (Matches m(text.begin(), text.end(), test), end; m != end; ++m) {
      names.insert((*m)[1].str() + "." + (*m)[2].str());
    }
  }
  return names;
}

TEST(BugCasesTable, EveryCaseIsHeldByTestsThatExist) {
  const std::string table = ReadText(fs::path(HYPER_SOURCE_DIR) / "docs/bug-cases.md");
  static const std::regex row(R"(\n\| ([A-Z]{2}\d+) \|[^\n]*\| ([^|\n]*) \|)");
  static const std::regex quoted("`([^`]+)`");
  std::map<std::string, std::set<std::string>> tests_of;
  for (Matches m(table.begin(), table.end(), row), end; m != end; ++m) {
    const std::string tests = (*m)[2];
    for (Matches t(tests.begin(), tests.end(), quoted); t != end; ++t) {
      tests_of[(*m)[1]].insert((*t)[1]);
    }
  }
  std::set<std::string> cases;
  for (const auto& [group, count] : {std::pair("LV", 12), std::pair("OS", 6), std::pair("OP", 10),
                                     std::pair("AD", 11), std::pair("PX", 6)}) {
    for (int i = 1; i <= count; ++i) cases.insert(group + std::to_string(i));
  }
  const std::set<std::string> exist = AllTests();
  ASSERT_EQ(exist.count("BugCasesTable.EveryCaseIsHeldByTestsThatExist"), 1U);
  ASSERT_EQ(exist.count("BugCasesTable.NoSuchTest"), 0U);
  for (const std::string& id : cases) EXPECT_FALSE(tests_of[id].empty()) << id;
  for (const auto& [id, tests] : tests_of) {
    EXPECT_EQ(cases.count(id), 1U) << id;
    for (const std::string& test : tests) EXPECT_EQ(exist.count(test), 1U) << id << ": " << test;
  }
}

}  // namespace
