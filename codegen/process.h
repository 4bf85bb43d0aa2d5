// Runs a child process and collects what it prints.
// Thread safety: safe from several threads.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace hyper::codegen {

struct ProcessOutput {
  int exit_code = 0;  // 128 + signal when one ended it
  std::string text;   // stdout, and stderr where asked for, interleaved
};

// `arguments[0]` is looked up in PATH. `folder`: working directory, empty for ours. Standard input
// is empty, LC_ALL is C. kNotFound when the program does not exist or cannot be started.
Result<ProcessOutput> RunProcess(const std::vector<std::string>& arguments,
                                 const std::string& folder = {}, bool with_stderr = true);

}  // namespace hyper::codegen
