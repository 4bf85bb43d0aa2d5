// Gradients in every version of every operator that ONNX marks differentiable: the node tests as
// they are, and rewritten to the other versions of their operator (other_versions.h), in double
// against finite differences. gradient_versions.txt lists for each operator and since-version how
// many cases were checked and the first of them, or why there is none (HYPER_UPDATE_GOLDEN=1
// rewrites it; a reason that is not in kReasons is none). HYPER_NODE_TEST=TEXT runs only the cases
// with TEXT in their names.
#include <algorithm>
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

#include "frontend/onnx/ops_table.h"
#include "tests/onnx_backend/gradient_check.h"
#include "tests/onnx_backend/graph_case.h"
#include "tests/onnx_backend/other_versions.h"

namespace hyper::onnx_backend {
namespace {

const std::string kGolden =
    std::string(HYPER_SOURCE_DIR) + "/tests/onnx_backend/gradient_versions.txt";

// Operators whose node tests hold integers or sequences only, or nothing at all.
std::vector<GraphCase> OwnCases() {
  return {
      {"global_lp_pool", 22,
       "g (float[2,2,3,4] x) => (float[a,b,c,d] y) { y = GlobalLpPool <p = 3> (x) }"},
      {"max_roi_pool", 22,
       "g (float[2,2,4,6] x) => (float[a,b,c,d] y) { rois = Constant <value = float[2,5] "
       "{1,1,0,4,3,0,3,2,9,3}> () y = MaxRoiPool <pooled_shape = [2,3]> (x, rois) }"},
      {"trilu", 14, "g (float[2,3,4] x) => (float[a,b,c] y) { y = Trilu <upper = 0> (x) }"},
      {"if", 16,
       "g (float[2,3] x, float[2,3] z) => (float[a,b] y) <bool c = {1}> { y = If (c) <then_branch "
       "= t () => (float[2,3] u) { u = Mul(x, z) }, else_branch = e () => (float[2,3] w) { w = "
       "Neg(x) }> }"},
      {"loop", 16,
       "g (float[3] x, float[3] z) => (float[a] y, float[b,c] s) <int64 n = {3}, bool k = {1}> { "
       "y, s = Loop (n, k, x) <body = b (int64 i, bool p, float[3] v) => (bool q, float[3] u, "
       "float[3] t) { q = Identity(p) u = Mul(v, z) t = Add(u, x) }> }"},
  };
}

// Why a version has no case, by operator, or by operator and version ("Upsample-7").
const std::map<std::string, std::string> kReasons = {};

using Version = std::pair<std::string, int>;  // operator, since-version

// Versions of differentiable operators that opsets from 7 on have and the importer reads.
std::vector<Version> Versions() {
  std::vector<Version> versions;
  for (const onnx_frontend::OnnxOpVersion& v : onnx_frontend::OnnxOpVersions()) {
    if (!v.domain.empty() || v.by.empty() || !IsDifferentiable(v.domain, v.op)) continue;
    if (OpsetOf(v.op, v.since) > 0) versions.emplace_back(v.op, v.since);
  }
  return versions;
}

struct Work {
  NodeCase node_case;
  GradientResult result;
};

// Every case at its own version and at the others that can say it.
std::vector<Work> AllWork(const std::vector<Version>& versions) {
  std::vector<Work> all;
  std::set<std::string> seen;
  const char* only = std::getenv("HYPER_NODE_TEST");
  const auto add = [&](const Result<NodeCase>& node_case) {
    if (!node_case.ok() || !node_case->domain.empty() || node_case->expanded) return;
    for (const auto& [op, since] : versions) {
      const std::string key = fmt::format("{} {}", node_case->name, since);
      if (op != node_case->op || seen.contains(key)) continue;
      auto at = since == node_case->since ? node_case : AtVersion(*node_case, since);
      if (!at.ok()) continue;
      seen.insert(key);
      all.push_back({*std::move(at), {}});
    }
  };
  for (const GraphCase& own : OwnCases()) {
    const auto built = CaseOf(own);
    EXPECT_TRUE(built.ok()) << own.name << ": " << built.status().message();
    if (only == nullptr || own.name.find(only) != std::string::npos) add(built);
  }
  for (const char* root : {HYPER_NODE_TESTS, HYPER_NODE_TESTS_OLD}) {
    for (const std::string& name : CaseNames(root)) {
      if (only != nullptr && name.find(only) == std::string::npos) continue;
      add(ReadCase(root, name));
    }
  }
  return all;
}

void CheckAll(std::vector<Work>& all) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      all[i].result = CheckGradient(all[i].node_case);
    }
  };
  std::jthread other(work);
  work();
}

std::vector<std::string> ReadGolden() {
  std::vector<std::string> lines;
  std::ifstream in(kGolden);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

struct Coverage {
  std::vector<std::string> cases;  // checked
  std::set<std::string> refusals;  // what autodiff said where the operator passes no gradient
};

std::string ReasonFor(const Version& v, const Coverage& coverage) {
  const auto exact = kReasons.find(fmt::format("{}-{}", v.first, v.second));
  if (exact != kReasons.end()) return exact->second;
  const auto by_op = kReasons.find(v.first);
  if (by_op != kReasons.end()) return by_op->second;
  return coverage.refusals.empty() ? "" : *coverage.refusals.begin();
}

TEST(GradientVersions, EveryVersionOfADifferentiableOperatorHasACase) {
  const std::vector<Version> versions = Versions();
  std::vector<Work> all = AllWork(versions);
  CheckAll(all);
  std::map<Version, Coverage> coverage;
  int checked = 0;
  int rewritten = 0;
  std::map<std::string, int> not_imported;
  for (const Work& w : all) {
    Coverage& c = coverage[{w.node_case.op, w.node_case.since}];
    switch (w.result.kind) {
      case GradientResult::kChecked:
        c.cases.push_back(w.node_case.name);
        ++checked;
        rewritten += w.node_case.name.find(" at ") != std::string::npos ? 1 : 0;
        break;
      case GradientResult::kNoGradient: c.refusals.insert(w.result.text); break;
      case GradientResult::kFailed:
        ADD_FAILURE() << w.node_case.name << " (" << w.node_case.op << "-" << w.node_case.since
                      << "): " << w.result.text;
        break;
      case GradientResult::kNotImported:
        if (std::getenv("HYPER_NODE_TEST") != nullptr) {
          std::cout << w.node_case.name << ": " << w.result.text << "\n";
        }
        break;
      case GradientResult::kNoFloats: break;
    }
  }
  std::vector<std::string> lines;
  int covered = 0;
  for (const Version& v : versions) {
    Coverage& c = coverage[v];
    std::sort(c.cases.begin(), c.cases.end());
    if (!c.cases.empty()) {
      ++covered;
      lines.push_back(
          fmt::format("{}\t{}\t{}\t{}", v.first, v.second, c.cases.size(), c.cases.front()));
      continue;
    }
    const std::string reason = ReasonFor(v, c);
    lines.push_back(fmt::format("{}\t{}\t0\t{}", v.first, v.second, reason));
    if (std::getenv("HYPER_NODE_TEST") != nullptr) continue;
    EXPECT_FALSE(reason.empty()) << v.first << "-" << v.second
                                 << ": no case checks its gradient and no reason is given";
  }
  std::cout << fmt::format(
      "figure gradient-versions {}\nfigure gradient-versions-covered {}\nfigure "
      "gradient-version-cases {}\ncount {}\trewritten to another version\n",
      versions.size(), covered, checked, rewritten);
  if (std::getenv("HYPER_NODE_TEST") != nullptr) return;
  if (std::getenv("HYPER_UPDATE_GOLDEN") != nullptr) {
    std::ofstream out(kGolden);
    out << "# Gradients by operator and since-version: cases that agree with finite differences "
           "and the first of\n# them, or why there is none.\n";
    for (const std::string& line : lines) out << line << "\n";
  }
  EXPECT_EQ(lines, ReadGolden());
}

// What a rewritten node says: "op inputs attributes", or why there is none.
std::string NodeText(const std::string& name, int since) {
  const auto node_case = ReadCase(HYPER_NODE_TESTS, name);
  if (!node_case.ok()) return node_case.status().message();
  const auto rewritten = AtVersion(*node_case, since);
  if (!rewritten.ok()) return rewritten.status().message();
  std::string text = rewritten->op;
  for (const std::string& input : rewritten->node.input()) text += " " + input;
  for (const onnx::AttributeProto& a : rewritten->node.attribute()) {
    std::vector<double> values(a.ints().begin(), a.ints().end());
    if (a.type() == onnx::AttributeProto::INT) values.push_back(static_cast<double>(a.i()));
    if (a.type() == onnx::AttributeProto::FLOAT) values.push_back(static_cast<double>(a.f()));
    text += fmt::format(" {}={}", a.name(), fmt::join(values, ","));
  }
  return text;
}

TEST(GradientVersions, OperandsAndAttributesChangePlaces) {
  EXPECT_EQ(NodeText("test_slice", 1), "Slice x starts=0,0 ends=3,10 axes=0,1");
  EXPECT_EQ(NodeText("test_top_k", 1), "TopK x axis=1 k=3");
  EXPECT_EQ(NodeText("test_clip_example", 6), "Clip x min=-1 max=1");
  EXPECT_EQ(NodeText("test_split_equal_parts_1d_opset18", 2), "Split input axis=0");
  // The default axis of Softmax became another one.
  EXPECT_EQ(NodeText("test_softmax_default_axis", 11), "Softmax x axis=-1");
  // What a version cannot say.
  EXPECT_EQ(NodeText("test_relu", 15), "no opset from 7 on has version 15 of 'Relu'");
  EXPECT_EQ(NodeText("test_softmax_axis_1_expanded", 11),
            "the operator's own node is not in the model");
}

// The check of a rewritten case notices a wrong gradient.
TEST(GradientVersions, AWrongGradientOfARewrittenCaseIsNoticed) {
  for (const auto& [name, since] :
       std::vector<std::pair<std::string, int>>{{"test_reduce_l2_keep_dims_random", 1},
                                                {"test_softmax_axis_1", 11},
                                                {"test_slice", 1},
                                                {"test_batchnorm_epsilon", 9}}) {
    const auto node_case = ReadCase(HYPER_NODE_TESTS, name);
    ASSERT_TRUE(node_case.ok()) << node_case.status().ToString();
    const auto rewritten = AtVersion(*node_case, since);
    ASSERT_TRUE(rewritten.ok()) << name << ": " << rewritten.status().ToString();
    EXPECT_EQ(CheckGradient(*rewritten).kind, GradientResult::kChecked) << name;
    EXPECT_EQ(CheckGradient(*rewritten, 1.01).kind, GradientResult::kFailed) << name;
  }
}

}  // namespace
}  // namespace hyper::onnx_backend
