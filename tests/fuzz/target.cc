#include "tests/fuzz/target.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace hyper::fuzz {

namespace fs = std::filesystem;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz target: %s\n", what);
  std::abort();
}

std::map<std::string, std::string> Unpack(const std::string& archive) {
  std::map<std::string, std::string> files;
  size_t at = 0;
  while (archive.compare(at, 5, "file ") == 0) {
    const size_t end = archive.find('\n', at);
    if (end == std::string::npos) break;
    const std::string line = archive.substr(at + 5, end - at - 5);
    const size_t space = line.rfind(' ');
    if (space == std::string::npos) break;
    const size_t bytes = std::strtoul(line.c_str() + space, nullptr, 10);
    // A wrong size takes what is there: mutations of the content stay interesting.
    const std::string content = archive.substr(end + 1, bytes);
    files[line.substr(0, space)] = content;
    at = end + 1 + content.size() + 1;
    if (at >= archive.size()) break;
  }
  return files;
}

std::string Pack(const std::map<std::string, std::string>& files) {
  std::string archive;
  for (const auto& [name, content] : files) {
    archive += "file " + name + " " + std::to_string(content.size()) + "\n" + content + "\n";
  }
  return archive;
}

std::string FreshFolder() {
  static const std::string folder = [] {
    const fs::path memory = "/dev/shm";
    const fs::path root = fs::is_directory(memory) ? memory : fs::temp_directory_path();
    return (root / ("hyper-fuzz-" + std::to_string(getpid()))).string();
  }();
  static const int registered = std::atexit([] {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  });
  (void)registered;
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  fs::create_directories(folder);
  return folder;
}

void WriteFiles(const std::string& folder, const std::map<std::string, std::string>& files) {
  for (const auto& [name, content] : files) {
    const fs::path relative(name);
    bool inside = !name.empty() && relative.is_relative() && name.find('\0') == std::string::npos;
    for (const fs::path& part : relative) inside = inside && part != "..";
    if (!inside) continue;
    std::error_code error;
    fs::create_directories((fs::path(folder) / relative).parent_path(), error);
    std::ofstream(fs::path(folder) / relative, std::ios::binary) << content;
  }
}

}  // namespace hyper::fuzz
