// Takes node tests through the whole of hyperc and hyperrun on the cpu target: load, import,
// simplify, lower, place, emit and compile kernels, build the program, write and read the bundle,
// execute. Inputs arrive as data; only what the importer must know at compile time is bound.
// Thread safety: none.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "codegen/compile.h"
#include "tests/onnx_backend/cases.h"

namespace hyper::onnx_backend {

enum class Verdict { kPassed, kRefused, kFailed };

// How the outputs came about.
enum class Work {
  kExecuted,   // an instruction reads data that arrived at run time
  kNoData,     // there is none: no inputs, no elements, or all inputs decide shapes
  kShapeOnly,  // the op asks for the shapes of its inputs alone (Shape, Size, ...)
};

struct Outcome {
  Verdict verdict = Verdict::kFailed;
  Work work = Work::kExecuted;
  std::string text;                // why it was refused, or what is wrong
  std::string reason;              // refused: one of Reasons(), or kNotImplemented
  std::vector<std::string> bound;  // inputs that had to be bound
};

// Why a case may be refused. Everything else is "not implemented", which is a gap, no reason.
std::vector<std::string> Reasons();
inline constexpr const char* kNotImplemented = "not implemented";

// One outcome per case; the kernels of all of them are compiled by one run of the host compiler.
// The bundles are written below `folder`.
std::vector<Outcome> RunCases(const std::vector<NodeCase>& cases, const std::string& folder,
                              const codegen::CompileOptions& compile);

}  // namespace hyper::onnx_backend
