// Every recipe compiles, twice to the same bytes, and `hyperc show` can tell what is inside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
namespace fs = std::filesystem;

// "fashion_mnist/train.yaml"
std::vector<std::string> Strategies() {
  std::vector<std::string> found;
  for (const std::string& file : FilesBelow(Recipe(""))) {
    const fs::path path = file;
    if (path.extension() == ".yaml") found.push_back(file);
  }
  return found;
}

class RecipeTest : public testing::TestWithParam<std::string> {
 protected:
  std::string Model() const {
    return Recipe((fs::path(GetParam()).parent_path() / "model.onnx").string());
  }
};

TEST_P(RecipeTest, CompilesTwiceToTheSameBytes) {
  const std::string strategy = Recipe(GetParam());
  // Two empty caches, then a warm one.
  const std::vector<std::pair<std::string, std::string>> runs = {
      {"a.bundle", "cache_a"}, {"b.bundle", "cache_b"}, {"c.bundle", "cache_a"}};
  for (const auto& [bundle, cache] : runs) {
    const CliRun run =
        HypercWithCache(cache, {"compile", Model(), "-s", strategy, "-o", Scratch(bundle)});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("wrote " + Scratch(bundle)));
    EXPECT_FALSE(fs::exists(Scratch(bundle + ".tmp")));
  }
  const std::vector<std::string> files = FilesBelow(Scratch("a.bundle"));
  EXPECT_GE(files.size(), 9u);
  for (const auto& [bundle, cache] : runs) {
    ASSERT_EQ(FilesBelow(Scratch(bundle)), files) << bundle;
    for (const std::string& file : files) {
      EXPECT_TRUE(ReadBytes(Scratch(bundle + "/" + file)) == ReadBytes(Scratch("a.bundle/" + file)))
          << file << " of " << bundle << " differs";
    }
  }
  // Nothing of the place where it was compiled gets into it.
  for (const std::string& file : files) {
    EXPECT_EQ(ReadBytes(Scratch("a.bundle/" + file)).find(ScratchFolder()), std::string::npos)
        << file;
  }
}

TEST_P(RecipeTest, HasAHeaderAndTheSchemaLine) {
  const std::string text = ReadBytes(Recipe(GetParam()));
  EXPECT_TRUE(
      text.starts_with("# yaml-language-server: $schema=../../docs/strategy.schema.json\n#\n# "));
  EXPECT_THAT(text, HasSubstr("hyperc compile recipes/"));
  EXPECT_TRUE(fs::exists(fs::path(Model()).parent_path() / "export.py"));
}

TEST_P(RecipeTest, ExplainsWhatIsTrained) {
  const CliRun run = Hyperc({"compile", Model(), "-s", Recipe(GetParam()), "-o",
                             Scratch("explained.bundle"), "--explain"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("parameter: "));
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, RecipeTest, testing::ValuesIn(Strategies()), NameOf);

TEST(Recipes, ThereAreSome) { EXPECT_GE(Strategies().size(), 2u); }

TEST(Show, TablesFitInAHundredColumns) {
  for (const char* recipe : {"fashion_mnist", "bytes_gpt"}) {
    for (const std::vector<std::string>& choice :
         {std::vector<std::string>{}, {"--memory"}, {"--kernels"}}) {
      std::vector<std::string> arguments = {"show", RecipeBundle(recipe)};
      arguments.insert(arguments.end(), choice.begin(), choice.end());
      const CliRun run = Hyperc(arguments);
      ASSERT_EQ(run.exit_code, 0) << run.err;
      std::istringstream lines(run.out);
      int count = 0;
      for (std::string line; std::getline(lines, line); ++count)
        EXPECT_LE(line.size(), 100u) << line;
      EXPECT_GT(count, 8);
    }
  }
}

TEST(Show, JsonHasTheDocumentedNumbers) {
  for (const char* recipe : {"fashion_mnist", "bytes_gpt"}) {
    const CliRun memory = Hyperc({"show", RecipeBundle(recipe), "--memory", "--format", "json"});
    ASSERT_EQ(memory.exit_code, 0) << memory.err;
    const Json plan = Json::parse(memory.out)["memory"];
    EXPECT_GT(plan["peak_bytes"].get<int64_t>(), 1 << 20);
    const Json& group = plan["groups"][0];
    EXPECT_EQ(group["peak_bytes"], plan["peak_bytes"]);
    EXPECT_LE(group["tiers"]["arena"]["peak_bytes"], group["tiers"]["arena"]["allocated_bytes"]);
    EXPECT_FALSE(Json::parse(memory.out).contains("kernels"));

    const CliRun kernels = Hyperc({"show", RecipeBundle(recipe), "--kernels", "--format", "json"});
    ASSERT_EQ(kernels.exit_code, 0);
    const Json all = Json::parse(kernels.out)["kernels"];
    ASSERT_GT(all.size(), 10u);
    for (const Json& kernel : all) {
      EXPECT_GT(kernel["calls"].get<int64_t>(), 0);
      EXPECT_GE(kernel["bytes_moved"].get<int64_t>(), 0);
    }
    const Json both = Json::parse(Hyperc({"show", RecipeBundle(recipe), "--format", "json"}).out);
    EXPECT_EQ(both["memory"], plan);
    EXPECT_EQ(both["kernels"], all);
  }
}

TEST(Show, IrAndChart) {
  const std::string& bundle = RecipeBundle("fashion_mnist");
  const CliRun ir = Hyperc({"show", bundle, "--ir"});
  EXPECT_EQ(ir.exit_code, 0);
  EXPECT_EQ(ir.out, ReadBytes(bundle + "/module.hir"));
  const CliRun chart = Hyperc({"show", bundle, "--svg", Scratch("chart.svg")});
  EXPECT_EQ(chart.exit_code, 0) << chart.err;
  EXPECT_THAT(ReadBytes(Scratch("chart.svg")), HasSubstr("<svg"));
  const CliRun wrong = Hyperc({"show", bundle, "--svg", Scratch("x.svg"), "--subprogram", "stpe"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("stpe"));
}

}  // namespace
}  // namespace hyper::tools
