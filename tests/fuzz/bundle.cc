// A bundle, as hyperrun and hyperc show read it; nothing in it is executed. Checksums are made
// right again first, as whoever changes a bundle on purpose would.
#include <set>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/sha256.h"
#include "codegen/bundle.h"
#include "codegen/manifest.h"
#include "frontend/strategy/launch_config.h"
#include "tests/fuzz/target.h"

namespace {

void Sign(std::map<std::string, std::string>* files) {
  const auto manifest = files->find(std::string(hyper::codegen::kManifestFile));
  if (manifest == files->end()) return;
  auto parsed = hyper::codegen::ParseManifest(manifest->second, "bundle");
  if (!parsed.ok()) return;
  for (const auto& [name, content] : *files) {
    if (!parsed->checksums.contains(name)) continue;
    parsed->checksums[name] = hyper::Sha256Hex(content);
    parsed->sizes[name] = static_cast<int64_t>(content.size());
  }
  manifest->second = hyper::codegen::PrintManifest(*parsed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hyper;
  auto files = fuzz::Unpack(std::string(reinterpret_cast<const char*>(data), size));
  Sign(&files);
  const std::string folder = fuzz::FreshFolder();
  fuzz::WriteFiles(folder, files);
  const auto bundle = codegen::BundleReader::Open(RealFileSystem(), folder);
  if (!bundle.ok()) {
    fuzz::Require(bundle.status().code() != StatusCode::kInternal, "an internal error");
    return 0;
  }
  for (const program::Slot& slot : (*bundle)->program().slots()) {
    // Validated: what a slot stores lies inside the file of tensors.
    std::vector<std::byte> bytes(static_cast<size_t>(slot.data_bytes()));
    fuzz::Require((*bundle)->ReadSlot(slot, bytes).ok(), "a validated slot cannot be read");
  }
  for (const std::string_view name : {codegen::kLaunchFile, codegen::kPlanFile}) {
    (void)(*bundle)->ReadText(std::string(name));
  }
  if (const auto launch = (*bundle)->ReadText(std::string(codegen::kLaunchFile)); launch.ok()) {
    (void)strategy::LaunchConfig::FromJson(*launch);
  }
  return 0;
}
