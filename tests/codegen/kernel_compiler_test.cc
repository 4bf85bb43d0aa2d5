#include "codegen/kernel_compiler.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/process.h"
#include "tests/codegen/codegen_fixture.h"

namespace hyper::codegen {
namespace {

using hyper::testing::TestFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPrelude[] =
    "#include <cstdint>\nstatic inline float twice(float x) {"
    " return x + x; }\n";

std::vector<KernelText> Kernels(int count) {
  std::vector<KernelText> kernels;
  for (int i = 0; i < count; ++i) {
    const std::string symbol = "k_" + std::to_string(i);
    kernels.push_back({symbol,
                       "extern \"C\" void " + symbol +
                           "(char* const* operands, int64_t task, int64_t) {\n"
                           "  if (task == 0) *(float*)operands[0] = twice(" +
                           std::to_string(i) + ");\n}\n",
                       {{0, 4}}});
  }
  return kernels;
}

TEST(KernelCompilerTest, NoKernelsNoObject) {
  const auto compiled = CompileKernelTexts(kPrelude, {}, {.compiler = "no-such-compiler"});
  ASSERT_TRUE(compiled.ok());
  EXPECT_TRUE(compiled->object.empty());
}

TEST(KernelCompilerTest, OneObjectWhateverJobsCacheAndOrder) {
  TestFolder folder;
  const CompileOptions plain{.march = "x86-64", .jobs = 1};
  const auto first = CompileKernelTexts(kPrelude, Kernels(20), plain);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_THAT(first->source, HasSubstr("k_19"));
  std::vector<KernelText> reversed = Kernels(20);
  std::reverse(reversed.begin(), reversed.end());
  const CompileOptions cached{.march = "x86-64", .cache_dir = folder / "cache", .jobs = 2};
  for (int round = 0; round < 2; ++round) {
    const auto again = CompileKernelTexts(kPrelude, reversed, cached);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(again->object == first->object, true);
    EXPECT_EQ(again->source, first->source);
  }
  // No trace of where it was built.
  EXPECT_EQ(first->object.find("hyperc-"), std::string::npos);
  EXPECT_EQ(first->object.find(std::filesystem::current_path().string()), std::string::npos);
}

TEST(KernelCompilerTest, TheCacheIsUsedAndDamageInItIsNot) {
  TestFolder folder;
  const CompileOptions options{.march = "x86-64", .cache_dir = folder / "cache"};
  const auto first = CompileKernelTexts(kPrelude, Kernels(1), options);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  std::vector<std::filesystem::path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "cache")) {
    entries.push_back(entry.path());
  }
  ASSERT_EQ(entries.size(), 1u);
  // A valid entry of other content is taken: proof that the compiler did not run.
  const std::string good = *RealFileSystem()->ReadAll(entries[0].string(), 1 << 30);
  const auto other =
      CompileKernelTexts(kPrelude, Kernels(2), {.march = "x86-64", .cache_dir = folder / "other"});
  ASSERT_TRUE(other.ok());
  for (const auto& entry : std::filesystem::directory_iterator(folder / "other")) {
    std::filesystem::copy_file(entry.path(), entries[0],
                               std::filesystem::copy_options::overwrite_existing);
  }
  const auto swapped = CompileKernelTexts(kPrelude, Kernels(1), options);
  ASSERT_TRUE(swapped.ok());
  EXPECT_TRUE(swapped->object == other->object);
  // A damaged one is built again.
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  std::ofstream(entries[0], std::ios::binary) << bad;
  const auto repaired = CompileKernelTexts(kPrelude, Kernels(1), options);
  ASSERT_TRUE(repaired.ok());
  EXPECT_TRUE(repaired->object == first->object);
  EXPECT_TRUE(*RealFileSystem()->ReadAll(entries[0].string(), 1 << 30) == good);
}

TEST(KernelCompilerTest, ACacheThatCannotBeWrittenIsANote) {
  TestFolder folder;
  std::ofstream(folder / "file") << "x";
  const auto plain = CompileKernelTexts(kPrelude, Kernels(20), {.march = "x86-64"});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->cache_note, "");
  const auto without = CompileKernelTexts(kPrelude, Kernels(20),
                                          {.march = "x86-64", .cache_dir = folder / "file/cache"});
  ASSERT_TRUE(without.ok()) << without.status().ToString();
  EXPECT_TRUE(without->object == plain->object);
  EXPECT_THAT(without->cache_note, HasSubstr("kernel cache is not used: cannot create folder"));
  EXPECT_THAT(without->cache_note, HasSubstr(folder / "file/cache"));
  const auto cached =
      CompileKernelTexts(kPrelude, Kernels(20), {.march = "x86-64", .cache_dir = folder / "cache"});
  ASSERT_TRUE(cached.ok());
  EXPECT_EQ(cached->cache_note, "");
}

TEST(KernelCompilerTest, CompilerErrorsAreOurFaultAndShown) {
  std::vector<KernelText> kernels = Kernels(1);
  kernels[0].text += "int x = undeclared_thing;\n";
  const auto compiled = CompileKernelTexts(kPrelude, kernels, {.march = "x86-64"});
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.status().code(), StatusCode::kInternal);
  EXPECT_THAT(compiled.status().message(), HasSubstr("undeclared_thing"));
}

TEST(KernelCompilerTest, UnknownSymbolsFailAtLinkTime) {
  std::vector<KernelText> kernels = Kernels(1);
  kernels[0].text +=
      "extern \"C\" int nowhere();\nint f() { return nowhere(); }\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) int g() "
      "{ return f(); }\n";
  const auto compiled = CompileKernelTexts(kPrelude, kernels, {.march = "x86-64"});
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.status().message(), HasSubstr("nowhere"));
}

TEST(KernelCompilerTest, AMissingCompilerIsNamed) {
  const auto compiled =
      CompileKernelTexts(kPrelude, Kernels(1), {.march = "x86-64", .compiler = "no-such-c++"});
  EXPECT_EQ(compiled.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(compiled.status().message(), HasSubstr("no-such-c++"));
  EXPECT_EQ(ResolveMarch("native", "no-such-c++").status().code(), StatusCode::kFailedPrecondition);
}

TEST(MarchTest, NativeRunsHere) {
  const auto info = ResolveMarch("native", "c++");
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_NE(info->march, "native");
  EXPECT_THAT(MissingCpuFeatures(info->features), IsEmpty());
  // The resolved name stands for itself.
  const auto again = ResolveMarch(info->march, "c++");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->features, info->features);
}

// A compiler older than the processor gives it the name of an older one.
TEST(MarchTest, NativeIsTheLevelWhereTheNameLacksWhatIsThere) {
  TestFolder folder;
  const std::string compiler = folder / "old-c++";
  const auto write = [&](const std::string& name_macros) {
    std::ofstream(compiler) << "#!/bin/sh\n"
                               "case \"$*\" in\n"
                               "*--help=target*) echo '  -march=  older' ;;\n"
                               "*-march=older*) printf '" +
                                   name_macros +
                                   "' ;;\n"
                                   "*-march=x86-64-v2*) printf '#define __SSE3__ 1\\n"
                                   "#define __SSSE3__ 1\\n' ;;\n"
                                   "*-march=x86-64\\ *) ;;\n"
                                   "*) exit 1 ;;\nesac\n";
    std::filesystem::permissions(compiler, std::filesystem::perms::owner_all);
  };
  write("#define __SSE3__ 1\\n");
  const auto level = ResolveMarch("native", compiler);
  ASSERT_TRUE(level.ok()) << level.status().ToString();
  EXPECT_EQ(level->march, "x86-64-v2");
  EXPECT_THAT(level->features, ElementsAre("pni", "ssse3"));
  // With as many extensions the name stays.
  write("#define __SSE3__ 1\\n#define __SSSE3__ 1\\n");
  const auto name = ResolveMarch("native", compiler);
  ASSERT_TRUE(name.ok()) << name.status().ToString();
  EXPECT_EQ(name->march, "older");
}

TEST(MarchTest, NamesImplyFeatures) {
  const auto v3 = ResolveMarch("x86-64-v3", "c++");
  ASSERT_TRUE(v3.ok()) << v3.status().ToString();
  for (const char* feature : {"avx2", "fma", "bmi2", "f16c", "movbe", "abm"}) {
    EXPECT_THAT(v3->features, ::testing::Contains(feature));
  }
  EXPECT_THAT(v3->features, ::testing::Not(::testing::Contains("avx512f")));
  EXPECT_THAT(ResolveMarch("x86-64", "c++")->features, IsEmpty());
}

TEST(MarchTest, UnknownNamesGetASuggestion) {
  for (const char* name : {"haswel", "", "x86-64 -o /x", "-fplugin=x"}) {
    const auto info = ResolveMarch(name, "c++");
    ASSERT_FALSE(info.ok()) << name;
    EXPECT_EQ(info.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(info.status().message(), HasSubstr("haswell"));
  }
  EXPECT_THAT(ResolveMarch("haswel", "c++").status().message(), HasSubstr("did you mean"));
}

TEST(CpuFeaturesTest, ReadsTheFlagsOfACpuinfo) {
  const std::string text = "processor\t: 0\nflags\t\t: fpu sse2 avx2\n\nprocessor\t: 1\n";
  EXPECT_THAT(MissingCpuFeatures({"avx2", "avx512f", "sse"}, text),
              ::testing::ElementsAre("avx512f", "sse"));
  EXPECT_THAT(MissingCpuFeatures({"asimd"}, "Features\t: fp asimd\n"), IsEmpty());
  EXPECT_THAT(MissingCpuFeatures({"sse2"}, ""), ::testing::ElementsAre("sse2"));
}

TEST(ProcessTest, GivesOutputAndExitCode) {
  const auto output = RunProcess({"sh", "-c", "echo out; echo err >&2; exit 3"});
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->exit_code, 3);
  EXPECT_EQ(output->text, "out\nerr\n");
  EXPECT_EQ(RunProcess({"sh", "-c", "echo out; echo err >&2"}, "", false)->text, "out\n");
  EXPECT_EQ(RunProcess({"sh", "-c", "kill -9 $$"})->exit_code, 128 + 9);
  EXPECT_EQ(RunProcess({"pwd"}, "/")->text, "/\n");
  EXPECT_EQ(RunProcess({"no-such-program"}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace hyper::codegen
