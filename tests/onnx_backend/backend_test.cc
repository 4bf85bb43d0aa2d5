// The node tests of ONNX on the cpu target with the default kernels. What is refused stands in
// refused.txt with its reason, what had to be bound in bound.txt; every other case must pass, a
// listed one must still be refused (HYPER_UPDATE_GOLDEN=1 rewrites the lines of the cases that
// ran). HYPER_NODE_TEST=TEXT runs only the cases with TEXT in their names.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/strings.h"
#include "tests/onnx_backend/lists.h"
#include "tests/onnx_backend/runner.h"

namespace hyper::onnx_backend {
namespace {

constexpr size_t kBatch = 60;

std::vector<std::string> Names() {
  std::vector<std::string> names = CaseNames(HYPER_NODE_TESTS);
  if (const char* only = std::getenv("HYPER_NODE_TEST")) {
    std::erase_if(names,
                  [&](const std::string& name) { return name.find(only) == std::string::npos; });
  }
  return names;
}

std::vector<size_t> Batches() {
  std::vector<size_t> batches;
  for (size_t first = 0; first < Names().size(); first += kBatch) batches.push_back(first);
  return batches;
}

void PrintTotals(const std::vector<Outcome>& outcomes) {
  std::map<std::string, int> counts;
  for (const Outcome& o : outcomes) {
    if (o.verdict == Verdict::kFailed) {
      ++counts["failed"];
    } else if (o.verdict == Verdict::kRefused) {
      ++counts["refused: " + o.reason];
    } else if (o.work == Work::kNoData) {
      ++counts["passed, no run-time data"];
    } else if (o.work == Work::kShapeOnly) {
      ++counts["passed, shapes only"];
    } else {
      ++counts["passed, executed"];
    }
  }
  for (const auto& [what, count] : counts) std::cout << fmt::format("count {}\t{}\n", count, what);
}

class NodeTests : public testing::TestWithParam<size_t> {};

TEST_P(NodeTests, PassOrAreRefusedAsListed) {
  const std::vector<std::string> names = Names();
  const size_t end = std::min(names.size(), GetParam() + kBatch);
  std::vector<NodeCase> cases;
  for (size_t i = GetParam(); i < end; ++i) {
    auto node_case = ReadCase(HYPER_NODE_TESTS, names[i]);
    ASSERT_TRUE(node_case.ok()) << node_case.status().message();
    cases.push_back(*std::move(node_case));
  }
  const std::string folder = fmt::format("{}/hyper_onnx_backend_{}", testing::TempDir(), getpid());
  std::filesystem::create_directories(folder);
  codegen::CompileOptions compile;
  compile.cache_dir = std::string(HYPER_BINARY_DIR) + "/kernel-cache";
  const std::vector<Outcome> outcomes = RunCases(cases, folder, compile);
  std::filesystem::remove_all(folder);
  PrintTotals(outcomes);
  Lists lists = ReadLists();
  const bool update = std::getenv("HYPER_UPDATE_GOLDEN") != nullptr;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    const std::string& name = cases[i].name;
    if (outcome.verdict == Verdict::kFailed) {
      ADD_FAILURE() << name << " (" << cases[i].op << "): " << outcome.text;
    }
    const std::string refusal =
        outcome.verdict == Verdict::kRefused ? outcome.reason + "\t" + outcome.text : "";
    const std::string work = outcome.verdict != Verdict::kPassed ? ""
                             : outcome.work == Work::kNoData     ? "no run-time data"
                             : outcome.work == Work::kShapeOnly  ? "shapes only"
                                                                 : "";
    const std::string bound = outcome.verdict == Verdict::kPassed ? Join(outcome.bound, ", ") : "";
    if (update) {
      lists.Set(name, refusal, work, bound);
      continue;
    }
    const auto listed = [&](const std::map<std::string, std::string>& list) {
      const auto found = list.find(name);
      return found == list.end() ? std::string() : found->second;
    };
    EXPECT_EQ(refusal, listed(lists.refused)) << name;
    EXPECT_EQ(work, listed(lists.not_executed)) << name;
    EXPECT_EQ(bound, listed(lists.bound)) << name;
  }
  if (update) WriteLists(lists);
}

INSTANTIATE_TEST_SUITE_P(Cases, NodeTests, testing::ValuesIn(Batches()));

TEST(Lists, NameCasesAndReasonsThatExist) {
  const std::vector<std::string> names = CaseNames(HYPER_NODE_TESTS);
  EXPECT_EQ(names.size(), 1765u);
  const Lists lists = ReadLists();
  const std::vector<std::string> allowed = Reasons();
  std::map<std::string, int> reasons;
  for (const auto& [name, line] : lists.refused) {
    EXPECT_TRUE(std::binary_search(names.begin(), names.end(), name)) << name;
    const std::string reason = line.substr(0, line.find('\t'));
    EXPECT_TRUE(reason == kNotImplemented ||
                std::find(allowed.begin(), allowed.end(), reason) != allowed.end())
        << name << ": " << reason;
    ++reasons[reason];
  }
  for (const auto& [name, work] : lists.not_executed) {
    EXPECT_TRUE(std::binary_search(names.begin(), names.end(), name)) << name;
  }
  EXPECT_GE(names.size() - lists.refused.size(), 1350u);
  std::cout << fmt::format("figure node_tests_passed {}\n", names.size() - lists.refused.size());
  for (const auto& [reason, count] : reasons) {
    std::cout << fmt::format("count {}\trefused: {}\n", count, reason);
  }
}

}  // namespace
}  // namespace hyper::onnx_backend
