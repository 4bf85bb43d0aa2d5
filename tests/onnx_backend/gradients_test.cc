// Every node test whose op ONNX marks differentiable, differentiated through the importer in double
// precision: old opsets from the distribution's ONNX, new ones from 1.22.0. Ops that pass no
// gradient stand in no_gradient.txt with the reason (HYPER_UPDATE_GOLDEN=1 rewrites it).
// HYPER_NODE_TEST=TEXT runs only the cases with TEXT in their names.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/onnx_backend/gradient_check.h"

namespace hyper::onnx_backend {
namespace {

const std::string kGolden = std::string(HYPER_SOURCE_DIR) + "/tests/onnx_backend/no_gradient.txt";

// Differentiable by ONNX, with a derivative that is zero wherever it exists.
const std::set<std::string> kZero = {"Hardmax"};

struct Checked {
  std::string folder;  // old or new
  NodeCase node_case;
  GradientResult result;
};

std::vector<Checked> CheckAll() {
  std::vector<std::pair<std::string, std::string>> places;  // root, name
  const char* only = std::getenv("HYPER_NODE_TEST");
  for (const char* root : {HYPER_NODE_TESTS_OLD, HYPER_NODE_TESTS}) {
    for (const std::string& name : CaseNames(root)) {
      if (only == nullptr || name.find(only) != std::string::npos) places.emplace_back(root, name);
    }
  }
  std::vector<Checked> all(places.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < places.size(); i = next++) {
      auto node_case = ReadCase(places[i].first, places[i].second);
      if (!node_case.ok()) {
        all[i].result.text = node_case.status().message();
        continue;
      }
      all[i].folder = places[i].first == HYPER_NODE_TESTS ? "new" : "old";
      all[i].node_case = *std::move(node_case);
      const NodeCase& c = all[i].node_case;
      if (IsDifferentiable(c.domain, c.op)) {
        all[i].result = CheckGradient(c);
      } else {
        all[i].result.kind = GradientResult::kNoFloats;
      }
    }
  };
  std::jthread other(work);
  work();
  other.join();
  return all;
}

std::set<std::string> ReadGolden() {
  std::set<std::string> lines;
  std::ifstream in(kGolden);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') lines.insert(line);
  }
  return lines;
}

TEST(Gradients, AgreeWithFiniteDifferences) {
  const std::vector<Checked> all = CheckAll();
  std::map<GradientResult::Kind, int> counts;
  std::set<std::string> none;
  std::map<std::string, int> by_op;
  for (const Checked& c : all) {
    ++counts[c.result.kind];
    const std::string where =
        fmt::format("{}/{} ({}-{})", c.folder, c.node_case.name, c.node_case.op, c.node_case.since);
    if (c.result.kind == GradientResult::kFailed) ADD_FAILURE() << where << ": " << c.result.text;
    if (c.result.kind == GradientResult::kNoGradient) {
      none.insert(fmt::format("{}\t{}", c.node_case.op, c.result.text));
    }
    if (c.result.kind == GradientResult::kChecked) ++by_op[c.node_case.op];
  }
  std::cout << fmt::format(
      "figure gradients_checked {}\ncount {}\tops with checked gradients\ncount {}\tcases whose op "
      "passes no gradient\ncount {}\tcases that are not imported\n",
      counts[GradientResult::kChecked], by_op.size(), counts[GradientResult::kNoGradient],
      counts[GradientResult::kNotImported]);
  if (std::getenv("HYPER_NODE_TEST") != nullptr) {
    for (const std::string& line : none) std::cout << line << "\n";
    return;
  }
  if (std::getenv("HYPER_UPDATE_GOLDEN") != nullptr) {
    std::ofstream out(kGolden);
    out << "# Ops that ONNX marks differentiable and that pass no gradient here: op, reason.\n";
    for (const std::string& line : none) out << line << "\n";
  }
  EXPECT_EQ(none, ReadGolden());

  // A gradient that is wrong by one percent is noticed, for every op.
  std::set<std::string> noticed = kZero;
  for (const Checked& c : all) {
    if (c.result.kind != GradientResult::kChecked || noticed.contains(c.node_case.op)) continue;
    if (CheckGradient(c.node_case, 1.01).kind == GradientResult::kFailed) {
      noticed.insert(c.node_case.op);
    }
  }
  for (const auto& [op, count] : by_op) {
    EXPECT_TRUE(noticed.contains(op)) << op << ": a wrong gradient went unnoticed in all cases";
  }
}

}  // namespace
}  // namespace hyper::onnx_backend
