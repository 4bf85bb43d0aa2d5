#include "codegen/cpu_features.h"

#include <fstream>
#include <set>
#include <sstream>

namespace hyper::codegen {

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
  std::ifstream file("/proc/cpuinfo");
  std::ostringstream text;
  // The first processor's block is enough, and machines have hundreds.
  for (std::string line; std::getline(file, line) && !line.empty();) text << line << '\n';
  return MissingCpuFeatures(needed, text.str());
}

}  // namespace hyper::codegen
