// The committed lists about node tests: which are refused and why, and which pass although no
// instruction reads run-time data.
// Thread safety: none.
#pragma once

#include <map>
#include <string>

namespace hyper::onnx_backend {

struct Lists {
  std::map<std::string, std::string> refused;       // case -> reason, tab, message
  std::map<std::string, std::string> not_executed;  // case -> why

  // Empty texts take the case out of a list.
  void Set(const std::string& name, const std::string& refusal, const std::string& work);
};

Lists ReadLists();
void WriteLists(const Lists& lists);

}  // namespace hyper::onnx_backend
