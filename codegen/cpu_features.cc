#include "codegen/cpu_features.h"

#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::codegen {
namespace {

// The first processor's block is enough, and machines have hundreds.
std::string FirstProcessor() {
  std::ifstream file("/proc/cpuinfo");
  std::ostringstream text;
  for (std::string line; std::getline(file, line) && !line.empty();) text << line << '\n';
  return text.str();
}

// "model name : Intel ..." -> "Intel ..."; not every architecture says it.
std::string ProcessorName(std::string_view cpuinfo) {
  std::istringstream lines{std::string(cpuinfo)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "of unknown name";
}

}  // namespace

std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& needed,
                                            std::string_view cpuinfo) {
  std::set<std::string, std::less<>> present;
  std::istringstream lines{std::string(cpuinfo)};
  for (std::string line; std::getline(lines, line);) {
    // "flags" on x86, "Features" on Arm; the first processor speaks for all.
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    for (std::string word; words >> word;) present.insert(word);
    break;
  }
  std::vector<std::string> missing;
  for (const std::string& feature : needed) {
    if (!present.contains(feature)) missing.push_back(feature);
  }
  return missing;
}

std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& needed) {
  return MissingCpuFeatures(needed, FirstProcessor());
}

Status CheckProcessor(const Manifest& manifest, std::string_view cpuinfo) {
  const std::vector<std::string> missing = MissingCpuFeatures(manifest.cpu_features, cpuinfo);
  if (missing.empty()) return Status::Ok();
  return FailedPrecondition(fmt::format(
      "the bundle's kernels are built for the processor '{}'; this one ({}) lacks {}; compile for "
      "it with --march (native: the machine that compiles)",
      manifest.march, ProcessorName(cpuinfo), Join(missing, ", ")));
}

Status CheckProcessor(const Manifest& manifest) {
  return CheckProcessor(manifest, FirstProcessor());
}

}  // namespace hyper::codegen
