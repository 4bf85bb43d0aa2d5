// A strategy file, and the launch keys that a bundle stores.
#include "frontend/strategy/strategy.h"
#include "base/diagnostics.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hyper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  Diagnostics diagnostics;
  const Result<strategy::Strategy> parsed =
      strategy::ParseStrategy(text, "strategy.yaml", &diagnostics);
  fuzz::Require(parsed.ok() == (diagnostics.error_count() == 0), "an error without a diagnostic");
  (void)strategy::DraftStrategy(text, "strategy.yaml", &diagnostics);
  (void)diagnostics.Render();
  if (parsed.ok()) {
    const std::string printed = strategy::PrintStrategy(*parsed);
    const Result<strategy::Strategy> again =
        strategy::ParseStrategy(printed, "again.yaml", nullptr);
    fuzz::Require(again.ok() && *again == *parsed, "a printed strategy is another one");
    const std::string json = parsed->launch.ToJson();
    fuzz::Require(strategy::LaunchConfig::FromJson(json).ok(), "launch keys do not read back");
  } else {
    (void)strategy::LaunchConfig::FromJson(text);
  }
  return 0;
}
