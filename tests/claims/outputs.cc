// Runs @eval of a bundle on rows of one raw float32 input and writes a raw float32 result: what the
// demo's check compares with ONNX Runtime.
//
//   claims_outputs BUNDLE INPUT INPUT_FILE RESULT OUTPUT_FILE
//
// INPUT_FILE holds whole micro-batches, row-major; OUTPUT_FILE gets as many rows of RESULT.
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "codegen/bundle.h"
#include "runtime/executor.h"
#include "runtime/program_io.h"

namespace hyper {
namespace {

Status Dump(const std::string& bundle_path, const std::string& input, const std::string& in_path,
            const std::string& result, const std::string& out_path) {
  HYPER_ASSIGN_OR_RETURN(const auto bundle,
                         codegen::BundleReader::Open(RealFileSystem(), bundle_path));
  HYPER_ASSIGN_OR_RETURN(const auto executor, runtime::Executor::Create(*bundle, {.threads = 2}));
  const program::Slot* slot = executor->FindSlot(program::INPUT, input);
  const program::Operand* place = runtime::FindResult(executor->program(), "eval", result);
  if (slot == nullptr) return NotFound("the bundle has no input '" + input + "'");
  if (place == nullptr) return NotFound("@eval has no result '" + result + "'");
  std::vector<std::byte> rows(static_cast<size_t>(runtime::TypeOf(slot->place()).bytes()));
  std::vector<std::byte> values(static_cast<size_t>(runtime::TypeOf(*place).bytes()));
  std::ifstream in(in_path, std::ios::binary);
  std::ofstream out(out_path, std::ios::binary);
  while (in.read(reinterpret_cast<char*>(rows.data()), static_cast<std::streamsize>(rows.size()))) {
    executor->WriteOperand(slot->place(), rows);
    HYPER_RETURN_IF_ERROR(executor->Run("eval", {}));
    executor->ReadOperand(*place, values);
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size()));
  }
  if (in.gcount() != 0) return InvalidArgument(in_path + " ends within a micro-batch");
  out.flush();
  return out ? Status::Ok() : Internal("cannot write " + out_path);
}

}  // namespace
}  // namespace hyper

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: claims_outputs BUNDLE INPUT INPUT_FILE RESULT OUTPUT_FILE\n");
    return 2;
  }
  const hyper::Status status = hyper::Dump(argv[1], argv[2], argv[3], argv[4], argv[5]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "claims_outputs: %s\n", status.ToString().c_str());
  return 1;
}
