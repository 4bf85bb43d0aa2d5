// The folders' include arrows point one way, files stay short and speak of nothing local.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

// Folder -> folders it may include; longest prefix of the path decides. As in the architecture,
// section 2: the front ends know nothing of devices, the runtime nothing of YAML, ONNX or planning.
const std::map<std::string, std::set<std::string>>& Arrows() {
  static const std::map<std::string, std::set<std::string>> arrows = {
      {"base", {}},
      {"ir", {"base"}},
      {"frontend/onnx", {"base", "ir"}},
      {"frontend/strategy", {"base"}},
      {"simulate", {"base"}},
      {"partition", {"base", "ir", "frontend/strategy"}},
      {"lower", {"base", "ir", "partition"}},
      {"offload", {"base", "ir", "lower"}},
      {"codegen", {"base", "ir", "lower", "offload"}},
      // The format reader of codegen, the types and reference kernels of ir, and the launch keys.
      {"runtime", {"base", "ir", "simulate", "codegen", "frontend/strategy"}},
      {"tools",
       {"base", "ir", "frontend/onnx", "frontend/strategy", "partition", "lower", "offload",
        "codegen", "simulate", "runtime"}},
  };
  return arrows;
}

// Headers that the runtime may take from the folders above it.
const std::set<std::string>& RuntimeHeaders() {
  static const std::set<std::string> headers = {
      "codegen/bundle.h",
      "codegen/call_record.h",
      "codegen/program.pb.h",
      "codegen/cpu_features.h",
      "frontend/strategy/launch_config.h",
  };
  return headers;
}

std::string FolderOf(const std::string& path) {
  std::string best;
  for (const auto& [folder, allowed] : Arrows()) {
    if (path.rfind(folder + "/", 0) == 0 && folder.size() > best.size()) best = folder;
  }
  return best;
}

std::vector<fs::path> Sources() {
  std::vector<fs::path> files;
  for (const auto& [folder, allowed] : Arrows()) {
    const fs::path root = fs::path(HYPER_SOURCE_DIR) / folder;
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".h" || extension == ".cc") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Relative(const fs::path& path) {
  return fs::relative(path, HYPER_SOURCE_DIR).generic_string();
}

TEST(Architecture, IncludesFollowTheArrows) {
  const std::regex include_line("^\\s*#include \"([^\"]+)\"");
  int checked = 0;
  for (const fs::path& path : Sources()) {
    const std::string from = FolderOf(Relative(path));
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      std::smatch match;
      if (!std::regex_search(line, match, include_line)) continue;
      const std::string included = match[1];
      const std::string to = FolderOf(included);
      if (to.empty() || to == from) continue;
      ++checked;
      EXPECT_TRUE(Arrows().at(from).count(to)) << Relative(path) << " includes " << included;
      if (from == "runtime" && (to == "codegen" || to == "frontend/strategy")) {
        EXPECT_TRUE(RuntimeHeaders().count(included)) << Relative(path) << " includes " << included;
      }
    }
  }
  EXPECT_GT(checked, 20);
}

TEST(Architecture, FilesStayShort) {
  for (const fs::path& path : Sources()) {
    std::ifstream file(path);
    const auto lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
    EXPECT_LE(lines, 600) << Relative(path) << " should be split by topic";
  }
}

// A path of somebody's machine: the absolute folders where people and tools keep their files. Those
// that a line names as an example or sets up for a test stand in the list below.
bool NamesLocalPath(const std::string& line) {
  static const std::regex local("(^|[^A-Za-z0-9_.}>*])/(tmp|home|root|Users)(/|[^A-Za-z0-9_.-]|$)");
  return std::regex_search(line, local);
}

// "file: part of the line".
const std::vector<std::pair<std::string, std::string>>& DeliberateExamples() {
  static const std::vector<std::pair<std::string, std::string>> examples = {
      // What the test looks for.
      {"tests/arch/arrows_test.cc", ""},
  };
  return examples;
}

bool IsDeliberate(const std::string& file, const std::string& line) {
  for (const auto& [where, part] : DeliberateExamples()) {
    if (file == where && line.find(part) != std::string::npos) return true;
  }
  return false;
}

// Every text file of the project: sources, tests, scripts and documents.
std::vector<fs::path> Texts() {
  static const std::set<std::string> folders = {
      "base",    "bench",     "cmake",   "codegen", "docs",    "frontend", "ir",    "lower",
      "offload", "partition", "recipes", "runtime", "scripts", "simulate", "tests", "tools"};
  static const std::set<std::string> texts = {".h",   ".cc",  ".py",   ".sh",    ".md",    ".yaml",
                                              ".txt", ".hir", ".json", ".cmake", ".proto", ".yml"};
  std::vector<fs::path> files;
  const auto add = [&](const fs::directory_entry& entry) {
    if (entry.is_regular_file() && texts.count(entry.path().extension().string()) != 0) {
      files.push_back(entry.path());
    }
  };
  for (const auto& entry : fs::directory_iterator(HYPER_SOURCE_DIR)) add(entry);
  for (const std::string& folder : folders) {
    const fs::path root = fs::path(HYPER_SOURCE_DIR) / folder;
    for (const auto& entry : fs::recursive_directory_iterator(root)) add(entry);
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Architecture, FilesSpeakOfNothingLocal) {
  EXPECT_TRUE(NamesLocalPath("see /home/someone/notes"));
  EXPECT_TRUE(NamesLocalPath("\"/tmp/x\""));
  EXPECT_FALSE(NamesLocalPath("build/tmp/x, ${root}/home/y and src/home/z"));
  const std::vector<fs::path> files = Texts();
  EXPECT_GT(files.size(), 300U);
  for (const fs::path& path : files) {
    const std::string name = Relative(path);
    std::ifstream file(path);
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      EXPECT_FALSE(NamesLocalPath(line) && !IsDeliberate(name, line))
          << name << ":" << number << ": " << line;
    }
  }
}

// Printing and process exits belong to the tools.
TEST(Architecture, LibrariesNeitherPrintNorExit) {
  const std::regex forbidden(
      "std::cout|std::cerr|\\bf?printf\\(|\\bf?puts\\(|\\babort\\(\\)|\\bexit\\(|fmt::print");
  ASSERT_TRUE(std::regex_search("std::fprintf(stderr, x);", forbidden));
  ASSERT_TRUE(std::regex_search("printf(x);", forbidden));
  ASSERT_FALSE(std::regex_search("snprintf(buffer, 8, x);", forbidden));
  for (const fs::path& path : Sources()) {
    if (FolderOf(Relative(path)) == "tools") continue;
    std::ifstream file(path);
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      const size_t comment = line.find("//");
      const std::string code = line.substr(0, comment);
      EXPECT_FALSE(std::regex_search(code, forbidden))
          << Relative(path) << ":" << number << ": " << line;
    }
  }
}

}  // namespace
