// A data file: as IDX, as IDX inflated, as .npy of samples and as a bound .npy value.
#include <fstream>

#include "runtime/data/tensor_file.h"
#include "tests/fuzz/target.h"

namespace {

// Reads every byte that the tensor claims to have.
void Touch(const hyper::Result<hyper::ir::HostTensor>& tensor) {
  using namespace hyper;
  if (!tensor.ok()) {
    fuzz::Require(tensor.status().code() != StatusCode::kInternal, "an internal error");
    return;
  }
  size_t sum = 0;
  for (const std::byte b : tensor->bytes()) sum += static_cast<size_t>(b);
  static volatile size_t sink;
  sink = sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hyper;
  const std::string folder = fuzz::FreshFolder();
  for (const char* name : {"/plain", "/packed.gz"}) {
    std::ofstream(folder + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  Touch(runtime::ReadIdxFile(folder + "/plain"));
  Touch(runtime::ReadIdxFile(folder + "/packed.gz"));
  Touch(runtime::ReadNpyFile(folder + "/plain"));
  Touch(runtime::ReadNpyTensor(folder + "/plain"));
  return 0;
}
