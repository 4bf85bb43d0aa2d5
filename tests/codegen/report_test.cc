#include "codegen/report.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/codegen/codegen_fixture.h"

namespace hyper::codegen {
namespace {

using hyper::testing::MakeToy;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// A network whose names are too long for a table.
program::Program LongNames() {
  program::Program program = MakeToy().program;
  for (program::SubProgram& sub : *program.mutable_subprograms()) {
    for (program::Instruction& instruction : *sub.mutable_instructions()) {
      instruction.set_source("/model/" + std::string(300, 'x') + instruction.source());
      instruction.set_bytes_moved(int64_t{1} << 45);
    }
  }
  return program;
}

TEST(ReportTest, MemoryHasPeaksPerGroupAndTier) {
  const hyper::testing::Toy toy = MakeToy();
  const Json json = Json::parse(MemoryJson(toy.program));
  const Json& memory = json["memory"];
  const Json& group = memory["groups"][0];
  EXPECT_EQ(memory["peak_bytes"], group["peak_bytes"]);
  EXPECT_EQ(group["tiers"]["arena"]["peak_bytes"], group["peak_bytes"]);
  EXPECT_EQ(group["tiers"]["arena"]["allocated_bytes"], toy.program.arena_bytes());
  EXPECT_LE(group["peak_bytes"].get<int64_t>(), toy.program.arena_bytes());
  EXPECT_GT(group["peak_bytes"].get<int64_t>(), toy.program.arena_bytes() - 64);
  int64_t sum = 0;
  for (const auto& [name, bytes] : group["storage_bytes"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, toy.program.arena_bytes());
  EXPECT_GT(group["storage_bytes"]["parameter"].get<int64_t>(), 0);
  ASSERT_EQ(group["subprograms"].size(), toy.placed.functions.size());
  for (size_t f = 0; f < toy.placed.functions.size(); ++f) {
    const Json& sub = group["subprograms"][f];
    EXPECT_EQ(sub["name"], toy.placed.functions[f].name);
    EXPECT_EQ(sub["temporary_peak_bytes"], toy.placed.functions[f].temporary_peak);
    EXPECT_EQ(sub["live_lower_bound_bytes"], toy.placed.functions[f].live_lower_bound);
  }
}

TEST(ReportTest, WorkspacesAreAClassOfTheirOwn) {
  program::Program program = MakeToy().program;
  program.set_threads(6);
  constexpr int64_t kWorkspace = 8 * hyper::testing::kRows;  // of every matmul that has one
  const Json group = Json::parse(MemoryJson(program))["memory"]["groups"][0];
  EXPECT_EQ(group["workspace_bytes"], kWorkspace);
  EXPECT_EQ(group["threads"], 6);
  for (const Json& sub : group["subprograms"]) {
    const std::string name = sub["name"];
    const bool has = name.starts_with("step") || name == "eval";
    EXPECT_EQ(sub["workspace_bytes"], has ? kWorkspace : 0) << name;
  }
  int with_workspace = 0;
  const Json kernels = Json::parse(KernelsJson(program))["kernels"];
  for (const Json& kernel : kernels) {
    if (kernel["workspace_bytes"] != 0) ++with_workspace;
    for (const Json& operand : kernel["operands"]) {
      EXPECT_FALSE(operand.get<std::string>().starts_with("u8")) << "a workspace is no operand";
    }
  }
  EXPECT_GT(with_workspace, 0);
  EXPECT_THAT(MemoryTable(program), HasSubstr("largest of a call, for up to 6 threads"));
}

TEST(ReportTest, KernelsAreCountedOnce) {
  const program::Program program = MakeToy().program;
  const Json json = Json::parse(KernelsJson(program));
  int64_t calls = 0;
  int64_t instructions = 0;
  for (const Json& kernel : json["kernels"]) calls += kernel["calls"].get<int64_t>();
  for (const program::SubProgram& sub : program.subprograms()) {
    for (const program::Instruction& instruction : sub.instructions()) {
      if (!instruction.has_marker()) ++instructions;
    }
  }
  EXPECT_EQ(calls, instructions);
  EXPECT_LT(json["kernels"].size(), static_cast<size_t>(instructions));
  int generated = 0;
  for (const Json& kernel : json["kernels"]) {
    if (kernel["kind"] != "generated") {
      EXPECT_TRUE(kernel["ratio"].is_null());
      continue;
    }
    ++generated;
    EXPECT_EQ(kernel["kernel"], "k_toy");
    EXPECT_EQ(kernel["bytes_moved"], 3 * 96);
    EXPECT_EQ(kernel["lower_bound_bytes"], 2 * 96 + 24);
    EXPECT_NEAR(kernel["ratio"].get<double>(), 288.0 / 216.0, 1e-12);
    EXPECT_EQ(kernel["sources"], Json::array({"add"}));
  }
  EXPECT_EQ(generated, 1);
  EXPECT_EQ(json["generated"]["bytes_moved"], 288);
}

// Two calls of one group: the ratio is that of both together, in the group and at each kernel.
TEST(ReportTest, TheRatioIsOfTheFusedGroup) {
  program::Program program = MakeToy().program;
  program::SubProgram& sub = *program.mutable_subprograms(0);
  const int first = sub.instructions_size();
  for (int i = 0; i < 3; ++i) {
    program::Instruction& call = *sub.add_instructions();
    call.mutable_generated()->set_symbol(i == 2 ? "k_alone" : i == 1 ? "k_second" : "k_first");
    call.set_bytes_moved(i == 0 ? 1000 : 100);
    call.set_lower_bound_bytes(i == 0 ? 900 : i == 1 ? 10 : 100);
    call.set_fused_group(i == 2 ? 6 : 5);
    call.set_source("sum");
  }
  ASSERT_GT(first, 0);
  const Json json = Json::parse(KernelsJson(program));
  int found = 0;
  for (const Json& group : json["fused_groups"]) {
    if (group["subprogram"] != sub.name() || group["id"] < 5) continue;
    ++found;
    const bool pair = group["id"] == 5;
    EXPECT_EQ(group["kernels"],
              pair ? Json::array({"k_first", "k_second"}) : Json::array({"k_alone"}));
    EXPECT_EQ(group["bytes_moved"], pair ? 1100 : 100);
    EXPECT_EQ(group["lower_bound_bytes"], pair ? 910 : 100);
    EXPECT_NEAR(group["ratio"].get<double>(), pair ? 1100.0 / 910 : 1, 1e-12);
    EXPECT_EQ(group["sources"], Json::array({"sum"}));
  }
  EXPECT_EQ(found, 2);
  for (const Json& kernel : json["kernels"]) {
    if (kernel["kernel"] != "k_second") continue;
    EXPECT_NEAR(kernel["ratio"].get<double>(), 1100.0 / 910, 1e-12);
    EXPECT_EQ(kernel["lower_bound_bytes"], 10);
  }
  EXPECT_EQ(json["generated"]["bytes_moved"], 288 + 1200);
  EXPECT_EQ(json["generated"]["lower_bound_bytes"], 216 + 1010);
  EXPECT_NEAR(json["generated"]["worst_group_ratio"].get<double>(), 288.0 / 216, 1e-12);
}

TEST(ReportTest, PlanHoldsEverythingAndRepeats) {
  const program::Program program = MakeToy().program;
  const PlanNotes notes{{{"step_first", {"a | b: different shapes"}}}};
  const std::string text = PlanJson(program, notes);
  EXPECT_EQ(text, PlanJson(MakeToy().program, notes));
  const Json json = Json::parse(text);
  EXPECT_EQ(json["format_version"], 1);
  EXPECT_EQ(json["memory"], Json::parse(MemoryJson(program))["memory"]);
  EXPECT_EQ(json["buckets"][0]["parameters"].size(), 2u);
  EXPECT_EQ(json["unfused"]["step_first"][0], "a | b: different shapes");
}

TEST(ReportTest, TablesFitAHundredColumns) {
  for (const program::Program& program : {MakeToy().program, LongNames()}) {
    for (const std::string& table : {MemoryTable(program), KernelTable(program)}) {
      std::istringstream lines(table);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    }
  }
  EXPECT_THAT(MemoryTable(MakeToy().program), HasSubstr("live lower bound"));
  EXPECT_THAT(KernelTable(MakeToy().program), HasSubstr("k_toy"));
}

TEST(ReportTest, LiveBytesReachTheLowerBound) {
  const program::Program program =
      hyper::testing::MakeToy(hyper::testing::TrainingModule({32, 48, 16, 32, 16}, 8, false))
          .program;
  for (const program::SubProgram& sub : program.subprograms()) {
    const std::vector<int64_t> live = LiveBytes(program, sub);
    ASSERT_EQ(live.size(), static_cast<size_t>(sub.instructions_size()));
    EXPECT_EQ(*std::max_element(live.begin(), live.end()), sub.live_lower_bound()) << sub.name();
  }
}

TEST(ReportTest, ChartIsAnSvgOfOneSubprogram) {
  const program::Program program = MakeToy().program;
  const auto svg = MemoryChartSvg(program, "step_next");
  ASSERT_TRUE(svg.ok());
  EXPECT_TRUE(svg->starts_with("<svg "));
  EXPECT_TRUE(svg->ends_with("</svg>\n"));
  EXPECT_THAT(*svg, HasSubstr("planned peak"));
  const auto unknown = MemoryChartSvg(program, "other");
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.status().message(), HasSubstr("step_first"));
}

}  // namespace
}  // namespace hyper::codegen
