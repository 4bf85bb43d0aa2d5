// Walks the registry for blanks, and checks rules that hold for every record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "ir/op_def.h"
#include "ir/ops_table.h"
#include "ir/reference/reference.h"

namespace hyper::ir {
namespace {

TEST(Registry, NoBlanks) {
  ASSERT_GE(CoreOps().ops().size(), 40u);
  for (const OpDef* op : CoreOps().ops()) {
    SCOPED_TRACE(op->name);
    EXPECT_FALSE(op->name.empty());
    EXPECT_FALSE(op->family.empty());
    EXPECT_FALSE(op->summary.empty());
    EXPECT_TRUE(op->max_inputs == -1 || op->max_inputs >= op->min_inputs);
    EXPECT_GE(op->outputs, 1);
    EXPECT_TRUE(op->infer);
    EXPECT_FALSE(std::holds_alternative<std::monostate>(op->gradient));
    EXPECT_FALSE(std::holds_alternative<std::monostate>(op->sharding));
    EXPECT_TRUE(op->cost);
    EXPECT_TRUE(op->saved.has_value());
    EXPECT_TRUE(op->in_place.has_value());
    for (const AttributeDef& a : op->attributes) {
      EXPECT_FALSE(a.name.empty());
      EXPECT_FALSE(a.doc.empty()) << a.name;
      if (!a.default_value) continue;
      EXPECT_EQ(KindOf(*a.default_value), a.kind) << a.name;
    }
    ASSERT_FALSE(op->cpu_kernels.empty());
    EXPECT_EQ(op->cpu_kernels.back(), "reference");
    EXPECT_TRUE(HasReference(op->name));
    if (const auto* zero = std::get_if<ZeroGradient>(&op->gradient)) {
      EXPECT_FALSE(zero->reason.empty());
    }
    if (const auto* refused = std::get_if<NotDifferentiable>(&op->gradient)) {
      EXPECT_FALSE(refused->reason.empty());
    }
    for (const InPlaceRule& rule : *op->in_place) {
      EXPECT_LT(rule.output, op->outputs);
      EXPECT_TRUE(op->max_inputs < 0 || rule.input < op->max_inputs);
    }
    for (int i : op->saved->inputs) EXPECT_TRUE(op->max_inputs < 0 || i < op->max_inputs);
    for (int i : op->saved->outputs) EXPECT_LT(i, op->outputs);
  }
}

TEST(Registry, UpdatesHaveSideEffectsAndAliases) {
  for (const OpDef* op : CoreOps().ops()) {
    if (op->family != "update" || op->name == "grad_norm_sq") continue;
    EXPECT_TRUE(op->has_side_effects) << op->name;
    EXPECT_EQ(static_cast<int>(op->in_place->size()), op->outputs) << op->name;
  }
}

TEST(Registry, MatchesTheNormativeList) {
  std::ifstream file(HYPER_SOURCE_DIR "/ir/core_ops.md");
  ASSERT_TRUE(file) << "ir/core_ops.md";
  std::stringstream text;
  text << file.rdbuf();
  for (const OpDef* op : CoreOps().ops()) {
    EXPECT_NE(text.str().find(std::string(op->name) + "("), std::string::npos) << op->name;
  }
}

TEST(OpsTable, ListsEveryOpInBothForms) {
  const std::string markdown = OpsMarkdown();
  const std::string json = OpsJson();
  for (const OpDef* op : CoreOps().ops()) {
    EXPECT_NE(markdown.find("### " + std::string(op->name) + "\n"), std::string::npos);
    EXPECT_NE(json.find("\"name\": \"" + std::string(op->name) + "\", \"family\""),
              std::string::npos);
  }
  // Brackets outside of strings balance; no string in the table holds an escape.
  int braces = 0;
  int brackets = 0;
  bool quoted = false;
  for (char c : json) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    braces += (c == '{') - (c == '}');
    brackets += (c == '[') - (c == ']');
    ASSERT_GE(braces, 0);
    ASSERT_GE(brackets, 0);
  }
  EXPECT_FALSE(quoted);
  EXPECT_EQ(braces, 0);
  EXPECT_EQ(brackets, 0);
}

TEST(OpsTable, TextFitsAHundredColumns) {
  std::istringstream text(OpsText());
  size_t lines = 0;
  for (std::string line; std::getline(text, line); ++lines) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_EQ(lines, CoreOps().ops().size() + 3);
}

TEST(OpsTable, DocsAreUpToDate) {
  const std::string path = HYPER_SOURCE_DIR "/docs/ops.md";
  if (const char* update = std::getenv("HYPER_UPDATE_GOLDEN"); update && *update == '1') {
    std::ofstream(path) << OpsMarkdown();
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), OpsMarkdown()) << "run this test with HYPER_UPDATE_GOLDEN=1";
}

}  // namespace
}  // namespace hyper::ir
