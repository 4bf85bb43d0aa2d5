// Which instruction set extensions this processor has.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codegen/bundle.h"

namespace hyper::codegen {

// Features of `needed` (names as in /proc/cpuinfo) that this processor lacks, in the order given.
// Where /proc/cpuinfo cannot be read, everything needed counts as lacking.
std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& needed);

// The same against the text of a /proc/cpuinfo.
std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& needed,
                                            std::string_view cpuinfo);

// kFailedPrecondition when this processor lacks what the bundle's kernels need; names both
// processors and the features.
Status CheckProcessor(const Manifest& manifest);
// The same against the text of a /proc/cpuinfo.
Status CheckProcessor(const Manifest& manifest, std::string_view cpuinfo);

}  // namespace hyper::codegen
