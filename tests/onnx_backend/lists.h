// The committed lists about node tests: which are refused and why, which pass although no
// instruction reads run-time data, and which inputs had to be bound.
// Thread safety: none.
#pragma once

#include <map>
#include <string>

namespace hyper::onnx_backend {

struct Lists {
  std::map<std::string, std::string> refused;       // case -> reason, tab, message
  std::map<std::string, std::string> not_executed;  // case -> why
  std::map<std::string, std::string> bound;         // case -> names of inputs

  // Empty texts take the case out of a list.
  void Set(const std::string& name, const std::string& refusal, const std::string& work,
           const std::string& inputs);
};

Lists ReadLists();
void WriteLists(const Lists& lists);

}  // namespace hyper::onnx_backend
