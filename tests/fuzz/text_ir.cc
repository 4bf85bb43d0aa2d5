// The text form of the IR.
#include "ir/text.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hyper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Result<ir::Module> module = ir::Parse(text);
  if (!module.ok()) return 0;
  if (!ir::Verify(*module).ok()) return 0;
  const std::string printed = ir::Print(*module);
  const Result<ir::Module> again = ir::Parse(printed);
  fuzz::Require(again.ok(), "a printed module does not parse");
  fuzz::Require(ir::Print(*again) == printed, "a module prints another way the second time");
  return 0;
}
