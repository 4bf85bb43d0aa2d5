// A small checker of text output, in the manner of LLVM's FileCheck. In comments of a test file:
//   // RUN: canonicalize,dce          what to do with the file (read by the test)
//   // CHECK: text                    next match, anywhere below the last one
//   // CHECK-NEXT: text               on the line below the last match
//   // CHECK-SAME: text               on the same line, after the last match
//   // CHECK-NOT: text                nowhere between the neighbouring matches
//   // CHECK-LABEL: text              starts a block that the checks up to the next label stay in
//   // expected-error {{text}}        the run fails with a message that contains the text;
//   // expected-error@+1 {{text}}     ... and names that line
// In a pattern {{...}} is a regular expression, [[name:...]] one whose match is remembered, and
// [[name]] what was remembered; everything else is literal, runs of blanks match any run.
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hyper::testing {

enum class CheckKind { kPlain, kNext, kSame, kNot, kLabel };

struct Check {
  CheckKind kind = CheckKind::kPlain;
  std::string pattern;
  int line = 0;  // in the test file
};

struct ExpectedError {
  std::string text;
  std::optional<int> line;  // that the message must name
};

struct TestFile {
  std::vector<std::string> runs;
  std::vector<Check> checks;
  std::vector<ExpectedError> errors;
};

// Fails on a CHECK of an unknown kind, so that a misspelt one cannot pass unseen.
Result<TestFile> ReadTestFile(std::string_view text);

// Ok when all checks hold; otherwise says which one does not and shows the output around it.
Status RunChecks(const std::vector<Check>& checks, std::string_view output);

// `message` of a failure against the expected errors: each must be found.
Status CheckErrors(const std::vector<ExpectedError>& errors, std::string_view message);

}  // namespace hyper::testing
