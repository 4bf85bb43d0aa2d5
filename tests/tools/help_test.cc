// What every command says about itself, and exit codes of a command line that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

TEST(Help, LinesFitIntoAHundredColumns) {
  std::vector<std::string> texts = {Hyperc({"--help"}).out, Hyperrun({"--help"}).out};
  for (const char* command : {"inspect", "check", "compile", "show", "ops", "schema", "export"}) {
    texts.push_back(Hyperc({command, "--help"}).out);
  }
  for (const std::string& text : texts) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      EXPECT_LE(end - at, 100u) << text.substr(at, end - at);
      at = end + 1;
    }
  }
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
      {{"compile", "m.onnx", "-s", "s.yaml", "-o", "b", "--jobs", "0"},
       "--jobs: '0' is not accepted; a whole number from 1 to 1024 is"},
      {{"compile", "m.onnx", "-s", "s.yaml", "-o", "b", "--threads", "100000"},
       "--threads: '100000' is not accepted; a whole number from 1 to 4096 is"},
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
      {{"b", "--steps", "-1"}, "--steps: '-1' is not accepted; a whole number from 0 to 90"},
      {{"b", "--steps", "many"}, "--steps: 'many' is not accepted; a whole number from 0 to 90"},
      {{"b", "--steps", "99999999999999999999"}, "from 0 to 9007199254740992 is"},
      {{"b", "--steps", "1e10"}, "--steps: '1e10' is not accepted"},
      {{"b", "--threads", "0"}, "--threads: '0' is not accepted; a whole number from 1 to "},
      {{"b", "--threads", "100000000"}, "a whole number from 1 to "},
      {{"b", "--set", "no equals"}, "--set: 'no equals' is not of the form KEY=VALUE"},
      {{"b", "--set", "=1"}, "'=1' is not of the form KEY=VALUE"},
      {{"b", "--eval", "--trace", "t.json"}, "--trace: has no effect with --eval"},
      {{"b", "--eval", "--overwrite"}, "--overwrite: has no effect with --eval"},
      {{"b", "--eval", "--steps", "3"}, "--steps: has no effect with --eval"},
      {{"b", "--eval", "--overlap", "true"}, "--overlap: has no effect with --eval"},
      {{"b", "--outputs", "o", "--eval"}, "--outputs: has no effect with --eval"},
      {{"b", "--outputs", "o", "--trace", "t"}, "--trace: has no effect with --outputs"},
      {{"b", "--outputs", "o", "--overwrite"}, "--overwrite: has no effect with --outputs"},
      {{"b", "--outputs", "o", "--steps", "3"}, "--steps: has no effect with --outputs"},
      {{"b", "--outputs", "o", "--overlap", "true"}, "--overlap: has no effect with --outputs"},
      {{"b", "--overlap", "maybe"}, "--overlap: maybe not in {true,false}"},
      {{"b", "--kernels", "fast"}, "--kernels: fast not in {auto,reference}"},
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
    EXPECT_THAT("\n" + text.out, HasSubstr("\n" + op["name"].get<std::string>() + " "));
  }
}

TEST(Ops, OnnxOperatorsInBothForms) {
  const CliRun text = Hyperc({"ops", "--onnx"});
  const CliRun json = Hyperc({"ops", "--onnx", "--format", "json"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(json.exit_code, 0);
  const nlohmann::json ops = nlohmann::json::parse(json.out)["operators"];
  EXPECT_GT(ops.size(), 100u);
  for (const nlohmann::json& op : ops) {
    EXPECT_THAT(text.out, HasSubstr(op["op"].get<std::string>() + " "));
  }
}

}  // namespace
}  // namespace hyper::tools
