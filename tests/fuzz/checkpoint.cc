// A checkpoint folder, as a job that continues and an export read it.
#include "runtime/checkpoint.h"
#include "base/file.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hyper;
  const std::string folder = fuzz::FreshFolder();
  fuzz::WriteFiles(folder, fuzz::Unpack(std::string(reinterpret_cast<const char*>(data), size)));
  const auto loaded = runtime::LoadCheckpoint(RealFileSystem(), folder);
  const auto tensors = runtime::LoadTensors(RealFileSystem(), folder);
  for (const StatusCode code : {loaded.status().code(), tensors.status().code()}) {
    fuzz::Require(code != StatusCode::kInternal, "an internal error");
  }
  if (loaded.ok()) {
    // Reads every byte that the tensors claim to have.
    size_t sum = 0;
    for (const auto& [name, tensor] : loaded->tensors) {
      for (const std::byte b : tensor.bytes()) sum += static_cast<size_t>(b);
    }
    static volatile size_t sink;
    sink = sum;
  }
  return 0;
}
