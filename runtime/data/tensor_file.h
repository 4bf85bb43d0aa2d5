// Files that hold one tensor with a sample per index of dim 0: IDX (as MNIST uses it) and NumPy
// arrays. Formats: runtime/data/data.md.
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"
#include "ir/types.h"

namespace hyper::runtime {

// `path` names the file in messages. Both need rank >= 1 and exactly the bytes that the shape asks
// for: kDataLoss otherwise, kInvalidArgument for another format or an element type or memory
// order that is not read.
Result<ir::HostTensor> ParseIdx(const FileBytes& file, const std::string& path);
Result<ir::HostTensor> ParseNpy(const FileBytes& file, const std::string& path);

// IDX from `path`; a name that ends in .gz is inflated. Where the plain name does not exist but
// `path`.gz does, that is read.
Result<ir::HostTensor> ReadIdxFile(const std::string& path);
Result<ir::HostTensor> ReadNpyFile(const std::string& path);
// Any tensor, rank 0 included.
Result<ir::HostTensor> ReadNpyTensor(const std::string& path);

}  // namespace hyper::runtime
