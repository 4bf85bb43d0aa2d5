// The checker of text tests must be able to fail.
#include "gtest/gtest.h"
#include "tests/support/check_lines.h"

namespace hyper::testing {
namespace {

constexpr std::string_view kOutput = "alpha 1\nbeta %7 = f(%3)\ngamma %7\ndelta\n";

bool Passes(std::string_view checks, std::string_view output = kOutput) {
  const auto file = ReadTestFile(checks);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return RunChecks(file->checks, output).ok();
}

TEST(Checker, PlainAndNext) {
  EXPECT_TRUE(Passes("// CHECK: alpha\n// CHECK-NEXT: beta\n// CHECK: delta\n"));
  EXPECT_FALSE(Passes("// CHECK: alpha\n// CHECK-NEXT: gamma\n"));
  EXPECT_FALSE(Passes("// CHECK: gamma\n// CHECK: beta\n"));
  EXPECT_FALSE(Passes("// CHECK: delta\n// CHECK-NEXT: {{.*}}x\n"));
}

TEST(Checker, SameAndNot) {
  EXPECT_TRUE(Passes("// CHECK: beta\n// CHECK-SAME: f(%3)\n"));
  EXPECT_FALSE(Passes("// CHECK: alpha\n// CHECK-SAME: beta\n"));
  EXPECT_TRUE(Passes("// CHECK: alpha\n// CHECK-NOT: delta\n// CHECK: gamma\n"));
  EXPECT_FALSE(Passes("// CHECK: alpha\n// CHECK-NOT: beta\n// CHECK: gamma\n"));
  EXPECT_FALSE(Passes("// CHECK: gamma\n// CHECK-NOT: delta\n"));
  EXPECT_FALSE(Passes("// CHECK-NOT: alpha\n// CHECK: beta\n"));
}

TEST(Checker, RegexAndVariables) {
  EXPECT_TRUE(Passes("// CHECK: beta [[v:%[0-9]+]] = f\n// CHECK: gamma [[v]]\n"));
  EXPECT_FALSE(Passes("// CHECK: f([[v:%[0-9]+]])\n// CHECK: gamma [[v]]\n"));
  EXPECT_FALSE(Passes("// CHECK: gamma [[unset]]\n"));
  EXPECT_FALSE(Passes("// CHECK: alpha {{[a-z]+}}\n"));
  EXPECT_FALSE(Passes("// CHECK: a.pha\n"));  // literal outside {{}}
}

TEST(Checker, LabelsKeepChecksInTheirBlock) {
  constexpr std::string_view kBlocks = "func a\n  x\nfunc b\n  y\n";
  EXPECT_TRUE(Passes("// CHECK-LABEL: func a\n// CHECK: x\n// CHECK-LABEL: func b\n// CHECK: y\n",
                     kBlocks));
  EXPECT_FALSE(Passes("// CHECK-LABEL: func a\n// CHECK: y\n// CHECK-LABEL: func b\n", kBlocks));
  EXPECT_FALSE(Passes("// CHECK-LABEL: func b\n// CHECK-LABEL: func a\n", kBlocks));
}

TEST(Checker, MisspeltChecksAreRefused) {
  EXPECT_FALSE(ReadTestFile("// CHECK-NXT: a\n").ok());
  EXPECT_FALSE(ReadTestFile("// CHECK:\n").ok());
  EXPECT_FALSE(ReadTestFile("// expected-error text\n").ok());
}

TEST(Checker, ExpectedErrors) {
  const auto file = ReadTestFile("x\n// expected-error@+1 {{bad thing}}\ny\n");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->errors.size(), 1u);
  EXPECT_TRUE(CheckErrors(file->errors, "f.hir:3:1: error: a bad thing here").ok());
  EXPECT_FALSE(CheckErrors(file->errors, "f.hir:2:1: error: a bad thing here").ok());
  EXPECT_FALSE(CheckErrors(file->errors, "f.hir:3:1: error: something else").ok());
}

}  // namespace
}  // namespace hyper::testing
