// Command line of hyperrun.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hyper::tools {

struct RunOptions {
  std::string bundle;
  std::optional<long long> steps;
  std::string outputs;  // --outputs: folder
  bool eval = false;
  bool dry_run = false;
  bool overwrite = false;
  std::string checkpoint;
  std::string export_path;
  std::vector<std::string> overrides;
  std::string trace;
  std::string kernels = "auto";
  std::optional<bool> overlap;
  int threads = 0;
};

// nullopt: go on; otherwise the exit code (help, version and usage errors have been printed).
std::optional<int> ParseRunOptions(int argc, char** argv, RunOptions* options);

}  // namespace hyper::tools
