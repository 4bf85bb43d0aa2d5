// What a plan costs, for people and for tools: memory by storage class, kernels with their traffic.
// The JSON is documented in docs/formats.md.
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "codegen/program.pb.h"

namespace hyper::codegen {

// Facts that the program itself does not hold.
struct PlanNotes {
  // Subprogram -> why neighbouring elementwise ops were not fused, "a | b: reason".
  std::map<std::string, std::vector<std::string>> unfused;
};

// plan.json: memory, kernels, buckets and notes in one object.
std::string PlanJson(const program::Program& program, const PlanNotes& notes);
// {"memory": ...} and {"kernels": ..., "generated": ...} alone.
std::string MemoryJson(const program::Program& program);
std::string KernelsJson(const program::Program& program);

// Tables of at most 100 columns.
std::string MemoryTable(const program::Program& program);
std::string KernelTable(const program::Program& program);

// Bytes of the temporary region that hold something during each instruction, from the operands'
// byte ranges: a byte is alive from a write to the last access before it is overwritten.
std::vector<int64_t> LiveBytes(const program::Program& program, const program::SubProgram& sub);

// Live temporary bytes over the instructions of one subprogram. kNotFound names the existing ones.
Result<std::string> MemoryChartSvg(const program::Program& program, const std::string& subprogram);

}  // namespace hyper::codegen
