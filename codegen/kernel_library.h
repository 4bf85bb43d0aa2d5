// Loading of kernels.so out of a sealed memfd, and the table of byte ranges that each kernel was
// compiled to touch.
// Thread safety: none.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "codegen/bundle.h"

namespace hyper::codegen {

// Beside every kernel stands `extern "C" const int64_t <symbol>_extents[]`: the number of operands,
// then for each the first and the end byte it may touch, relative to its pointer.
inline constexpr std::string_view kExtentsSuffix = "_extents";

// Copies `bytes` bytes of `path` into a memfd, compares the hash of exactly these bytes, seals and
// loads them. kDataLoss: another hash, not loadable, or a call in `program` that gives a kernel
// less room than it uses.
Result<std::unique_ptr<KernelLibrary>> LoadKernelLibrary(FileSystem* fs, const std::string& path,
                                                         int64_t bytes, const std::string& sha256,
                                                         const program::Program& program);

}  // namespace hyper::codegen
