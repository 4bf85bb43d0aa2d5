#include "tests/onnx_backend/lists.h"

#include <fstream>

namespace hyper::onnx_backend {
namespace {

const std::string kFolder = std::string(HYPER_SOURCE_DIR) + "/tests/onnx_backend/";

std::map<std::string, std::string> Read(const std::string& file) {
  std::map<std::string, std::string> lines;
  std::ifstream in(kFolder + file);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t tab = line.find('\t');
    lines[line.substr(0, tab)] = tab == std::string::npos ? "" : line.substr(tab + 1);
  }
  return lines;
}

void Write(const std::string& file, const std::string& title,
           const std::map<std::string, std::string>& lines) {
  std::ofstream out(kFolder + file);
  out << "# " << title << "\n";
  for (const auto& [name, rest] : lines) out << name << "\t" << rest << "\n";
}

void SetOrErase(std::map<std::string, std::string>* lines, const std::string& name,
                const std::string& text) {
  if (text.empty()) {
    lines->erase(name);
  } else {
    (*lines)[name] = text;
  }
}

}  // namespace

void Lists::Set(const std::string& name, const std::string& refusal, const std::string& work,
                const std::string& inputs) {
  SetOrErase(&refused, name, refusal);
  SetOrErase(&not_executed, name, work);
  SetOrErase(&bound, name, inputs);
}

Lists ReadLists() { return {Read("refused.txt"), Read("not_executed.txt"), Read("bound.txt")}; }

void WriteLists(const Lists& lists) {
  Write("refused.txt", "Node tests of ONNX 1.22.0 that are refused: case, reason, message.",
        lists.refused);
  Write("not_executed.txt",
        "Node tests that pass although no instruction reads run-time data: case, why.",
        lists.not_executed);
  Write("bound.txt", "Inputs of node tests that get their value at compile time: case, inputs.",
        lists.bound);
}

}  // namespace hyper::onnx_backend
