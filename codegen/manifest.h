// manifest.json of a bundle: text form and the fixed list of files (codegen/bundle.md).
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "codegen/bundle.h"

namespace hyper::codegen {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kProgramFile = "group0/program.pb";
inline constexpr std::string_view kKernelsFile = "group0/kernels.so";
inline constexpr std::string_view kKernelsSourceFile = "group0/kernels.cc";
inline constexpr std::string_view kTensorsFile = "group0/tensors.bin";
inline constexpr std::string_view kStrategyFile = "strategy.yaml";
inline constexpr std::string_view kLaunchFile = "launch.json";
inline constexpr std::string_view kModuleFile = "module.hir";
inline constexpr std::string_view kPlanFile = "plan.json";
inline constexpr std::string_view kModelFile = "model.onnx";

// Every file that a bundle of this version may hold beside the manifest; nothing else is opened.
struct BundleFile {
  std::string_view name;
  bool required;
  int64_t max_bytes;
};
std::span<const BundleFile> BundleFiles();

// Deterministic; ends with a hash over itself, so that damage of the manifest is seen too.
std::string PrintManifest(const Manifest& manifest);

// `path` names the bundle in messages. kInvalidArgument: not a bundle's manifest;
// kFailedPrecondition: another format version; kDataLoss: damaged, or names a file or a size that
// the format does not allow.
Result<Manifest> ParseManifest(std::string_view text, const std::string& path);

}  // namespace hyper::codegen
