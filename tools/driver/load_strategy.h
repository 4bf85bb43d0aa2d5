// A strategy file as the commands read it: all that can be said about it, in one run.
// Thread safety: pure function of files.
#pragma once

#include <string>

#include "base/diagnostics.h"
#include "base/file.h"
#include "base/status.h"
#include "frontend/strategy/strategy.h"

namespace hyper::tools {

// Reads and checks `path`. With errors in it, what is right in it is still held against the model
// at `model_path` (may be empty: none), and kInvalidArgument renders everything found; without,
// the model is not read. Warnings (data files that are not here) go to `diagnostics`.
Result<strategy::Strategy> LoadStrategy(FileSystem* fs, const std::string& path,
                                        const std::string& model_path, Diagnostics* diagnostics);

}  // namespace hyper::tools
