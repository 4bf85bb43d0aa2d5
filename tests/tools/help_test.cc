// What every command says about itself, and exit codes of a command line that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::HasSubstr;

TEST(Help, IsGolden) {
  const CliRun all = Hyperc({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_EQ(all.err, "");
  ExpectGolden("hyperc.txt", all.out);
  for (const char* command : {"inspect", "check", "compile", "show", "ops", "schema", "export"}) {
    EXPECT_THAT(all.out, HasSubstr(std::string("\n  ") + command + " ")) << command;
    const CliRun one = Hyperc({command, "--help"});
    EXPECT_EQ(one.exit_code, 0) << command;
    EXPECT_EQ(one.err, "") << command;
    ExpectGolden(std::string("hyperc_") + command + ".txt", one.out);
  }
  const CliRun run = Hyperrun({"--help"});
  EXPECT_EQ(run.exit_code, 0);
  ExpectGolden("hyperrun.txt", run.out);
}

TEST(Help, Versions) {
  EXPECT_THAT(Hyperc({"--version"}).out, HasSubstr("hyperc 0.1.0"));
  EXPECT_THAT(Hyperrun({"--version"}).out, HasSubstr("hyperrun 0.1.0"));
}

// Exit code 2, a word about what is wrong, nothing on stdout.
TEST(Usage, WrongCommandLinesAreCodeTwo) {
  struct Case {
    std::vector<std::string> arguments;
    std::string says;
  };
  const std::vector<Case> hyperc = {
      {{}, "subcommand is required"},
      {{"chekc"}, "there is no command 'chekc'"},
      {{"inspec", "m.onnx"}, "did you mean 'inspect'?"},
      {{"inspect"}, "MODEL"},
      {{"inspect", "m.onnx", "--fromat", "json"}, "--fromat"},
      {{"inspect", "m.onnx", "--format", "xml"}, "xml"},
      {{"compile", "m.onnx", "-o", "b"}, "--strategy"},
      {{"compile", "m.onnx", "-s", "s.yaml"}, "--output"},
      {{"compile", "m.onnx", "-s", "s.yaml", "-o", "b", "--jobs", "0"}, "--jobs"},
      {{"compile", "m.onnx", "-s", "s.yaml", "-o", "b", "--kernels", "fast"}, "fast"},
      {{"export", "b", "-o", "o.onnx"}, "--checkpoint"},
  };
  for (const Case& c : hyperc) {
    const CliRun run = Hyperc(c.arguments);
    EXPECT_EQ(run.exit_code, 2) << c.says;
    EXPECT_EQ(run.out, "") << c.says;
    EXPECT_THAT(run.err, HasSubstr(c.says));
  }
  const std::vector<Case> hyperrun = {
      {{}, "BUNDLE"},
      {{"b", "--steps", "-1"}, "--steps"},
      {{"b", "--steps", "many"}, "many"},
      {{"b", "--threads", "0"}, "--threads"},
      {{"b", "--overlap", "perhaps"}, "perhaps"},
      {{"b", "c"}, "c"},
  };
  for (const Case& c : hyperrun) {
    const CliRun run = Hyperrun(c.arguments);
    EXPECT_EQ(run.exit_code, 2) << c.says;
    EXPECT_EQ(run.out, "") << c.says;
    EXPECT_THAT(run.err, HasSubstr(c.says));
  }
}

// docs/strategy.schema.json is what recipes point editors to.
TEST(Schema, TheDocumentIsWhatTheCommandPrints) {
  const CliRun run = Hyperc({"schema"});
  EXPECT_EQ(run.exit_code, 0);
  ExpectGolden("../../../docs/strategy.schema.json", run.out);
  EXPECT_EQ(nlohmann::json::parse(run.out)["type"], "object");
}

TEST(Ops, TextAndJsonNameTheSameOperators) {
  const CliRun text = Hyperc({"ops"});
  const CliRun json = Hyperc({"ops", "--format", "json"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(json.exit_code, 0);
  const nlohmann::json parsed = nlohmann::json::parse(json.out);
  const nlohmann::json& ops = parsed.is_array() ? parsed : parsed["ops"];
  EXPECT_GT(ops.size(), 20u);
  for (const nlohmann::json& op : ops) {
    EXPECT_THAT(text.out, HasSubstr("`" + op["name"].get<std::string>() + "`"));
  }
}

}  // namespace
}  // namespace hyper::tools
