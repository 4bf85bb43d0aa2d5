// hyperrun and hyperc with bundles that are damaged, foreign or made for another machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "codegen/cpu_features.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const char* const kRecipe = "fashion_mnist";

// Edits a bundle's manifest and signs it again, as someone would who makes bundles.
void EditManifest(const std::string& bundle, const std::function<void(Json&)>& edit) {
  Json json = Json::parse(ReadBytes(bundle + "/manifest.json"));
  edit(json);
  json["manifest_sha256"] = "";
  json["manifest_sha256"] = Sha256Hex(json.dump(2));
  WriteBytes(bundle + "/manifest.json", json.dump(2) + "\n");
}

// All commands that read a bundle refuse it with code 1 and these words.
void ExpectRefused(const std::string& bundle, const std::vector<std::string>& says) {
  const std::vector<CliRun> runs = {
      Hyperrun({bundle, "--dry-run"}), Hyperc({"show", bundle}),
      Hyperc({"export", bundle, "--checkpoint", "none", "-o", Scratch("never.onnx")})};
  for (const CliRun& run : runs) {
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_EQ(run.out, "");
    for (const std::string& part : says) EXPECT_THAT(run.err, HasSubstr(part));
  }
}

TEST(BadBundle, OneFlippedBitInAnyFile) {
  const std::string bundle = CopyOfBundle(kRecipe, "flipped.bundle");
  for (const std::string& file : FilesBelow(bundle)) {
    SCOPED_TRACE(file);
    const std::string path = bundle + "/" + file;
    const std::string good = ReadBytes(path);
    for (const size_t at : {size_t{0}, good.size() / 2, good.size() - 2}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 4);
      WriteBytes(path, bad);
      const CliRun run = Hyperrun({bundle, "--dry-run"});
      EXPECT_EQ(run.exit_code, 1) << at << ": " << run.err;
      EXPECT_THAT(run.err, AllOf(HasSubstr(bundle), HasSubstr(file))) << at;
    }
    WriteBytes(path, good);
  }
}

TEST(BadBundle, CutMissingAndAdditionalFiles) {
  const std::string bundle = CopyOfBundle(kRecipe, "files.bundle");
  for (const std::string& file : FilesBelow(bundle)) {
    SCOPED_TRACE(file);
    const std::string path = bundle + "/" + file;
    const std::string good = ReadBytes(path);
    WriteBytes(path, good.substr(0, good.size() / 2));
    ExpectRefused(bundle, {bundle, file});
    fs::remove(path);
    ExpectRefused(bundle, {bundle});
    WriteBytes(path, good);
  }
  WriteBytes(bundle + "/group0/extra.so", "x");
  ExpectRefused(bundle, {"group0/extra.so"});
}

TEST(BadBundle, NoBundleAtAll) {
  ExpectRefused(Scratch("nothing.bundle"), {Scratch("nothing.bundle")});
  fs::create_directories(Scratch("empty"));
  ExpectRefused(Scratch("empty"), {Scratch("empty"), "not a bundle"});
  WriteBytes(Scratch("afile"), "x");
  ExpectRefused(Scratch("afile"), {Scratch("afile")});
}

TEST(BadBundle, AnotherVersionNamesBoth) {
  const std::string bundle = CopyOfBundle(kRecipe, "version.bundle");
  EditManifest(bundle, [](Json& json) {
    json["format_version"] = 7;
    json["producer"] = "hyperc 9.1";
  });
  ExpectRefused(bundle, {"format version 7", "hyperc 9.1", "reads version 1"});
}

TEST(BadBundle, AProcessorThatLacksAFeatureIsRefusedNamingBoth) {
  const std::string bundle = CopyOfBundle(kRecipe, "future.bundle");
  EditManifest(bundle, [](Json& json) {
    json["march"] = "futurelake";
    json["cpu_features"].push_back("avx9000");
  });
  const CliRun run = Hyperrun({bundle, "--dry-run"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr(bundle), HasSubstr("'futurelake'"), HasSubstr("this one ("),
                             HasSubstr("lacks avx9000"), HasSubstr("--march")));
  // Looking at it needs no such processor.
  EXPECT_EQ(Hyperc({"show", bundle}).exit_code, 0);
}

// bdver4 has extensions that no processor after it has.
TEST(BadBundle, AnotherMarchIsCompiledHereAndRefusedHere) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the names are those of x86-64 processors";
#endif
  const bool is_bdver4 = codegen::MissingCpuFeatures({"xop"}).empty();
  const std::string march = is_bdver4 ? "skylake-avx512" : "bdver4";
  const std::string bundle = Scratch("march.bundle");
  const CliRun compiled =
      Hyperc({"compile", Recipe("fashion_mnist/model.onnx"), "-s",
              Recipe("fashion_mnist/train.yaml"), "-o", bundle, "--march", march});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  const CliRun run = Hyperrun({bundle, "--dry-run"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("'" + march + "'"), HasSubstr("lacks"),
                             HasSubstr(is_bdver4 ? "avx512f" : "xop")));
}

TEST(CheckProcessor, NamesWhatIsMissingAndThisProcessor) {
  codegen::Manifest manifest;
  manifest.march = "haswell";
  manifest.cpu_features = {"avx", "avx2", "fma"};
  const std::string cpuinfo = "processor\t: 0\nmodel name\t: Tiny 3000\nflags\t\t: sse avx fma\n";
  const Status status = codegen::CheckProcessor(manifest, cpuinfo);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("'haswell'"), HasSubstr("(Tiny 3000) lacks avx2;")));
  manifest.cpu_features = {"avx", "fma"};
  EXPECT_TRUE(codegen::CheckProcessor(manifest, cpuinfo).ok());
  EXPECT_THAT(codegen::CheckProcessor(manifest, "").message(),
              HasSubstr("of unknown name) lacks avx, fma"));
}

std::string StrategyWithBatch(const std::string& batch) {
  const std::string path = Scratch("batch_" + batch + ".yaml");
  const std::string text = Replaced(ReadBytes(Recipe("fashion_mnist/train.yaml")), "{batch: 64}",
                                    "{batch: " + batch + "}");
  WriteBytes(path, Replaced(text, "global_batch: 128", "micro_batches: 1"));
  return path;
}

CliRun CompileWithBatch(const std::string& batch, const std::string& bundle) {
  return Hyperc({"compile", Recipe("fashion_mnist/model.onnx"), "-s", StrategyWithBatch(batch),
                 "-o", bundle});
}

// Resources have a code of their own, and the message has the numbers.
TEST(Resources, APlanBeyondAnyMachineIsCodeFour) {
  const CliRun run = CompileWithBatch("1000000000", Scratch("huge.bundle"));
  EXPECT_EQ(run.exit_code, 4) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("would need 2"), HasSubstr("at most 64.00 TiB"),
                             HasSubstr("model.dims")));
  EXPECT_FALSE(fs::exists(Scratch("huge.bundle")));
}

TEST(Resources, AnArenaThatCannotBeMappedIsCodeFour) {
  if (ReadBytes("/proc/sys/vm/overcommit_memory").starts_with("1")) {
    GTEST_SKIP() << "this kernel maps memory that it does not have";
  }
  const std::string bundle = Scratch("large.bundle");
  const CliRun compiled = CompileWithBatch("200000000", bundle);
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  const CliRun run = Hyperrun({bundle, "--dry-run"});
  EXPECT_EQ(run.exit_code, 4) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("cannot map the arena of"), HasSubstr("TiB")));
}

}  // namespace
}  // namespace hyper::tools
