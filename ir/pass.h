// Pass manager: runs named passes over a module, verifies after each, prints on request.
// Thread safety: none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace hyper::ir {

struct PassContext {
  std::map<std::string, std::string> options;  // of this pass, already checked against its table
  std::map<std::string, int64_t> statistics;   // "nodes removed" -> 12
  bool changed = false;
};

struct PassOption {
  std::string_view name;
  std::string_view default_value;
  std::string_view help;
};

struct Pass {
  std::string_view name;
  std::string_view summary;
  std::vector<PassOption> options;
  std::function<Status(Module&, PassContext&)> run;
};

class PassRegistry {
 public:
  void Add(Pass pass);
  const Pass* Find(std::string_view name) const;
  const std::vector<Pass>& passes() const { return passes_; }

 private:
  std::vector<Pass> passes_;
};
// All IR passes: canonicalize, cse, dce, ...
const PassRegistry& Passes();

struct PassTrace {
  std::string pass;
  bool changed = false;
  double milliseconds = 0;
  std::map<std::string, int64_t> statistics;
};

struct PipelineOptions {
  std::vector<std::string> print_after;  // pass names or "all"
  int pass_limit = -1;                   // stop after this many passes (bisection)
  std::function<void(std::string_view pass, const std::string& text)> print;
};

// "canonicalize,cse{limit=3},dce": unknown passes or options fail with suggestions.
Status RunPipeline(std::string_view pipeline, Module& module, const PipelineOptions& options,
                   std::vector<PassTrace>* trace);

}  // namespace hyper::ir
