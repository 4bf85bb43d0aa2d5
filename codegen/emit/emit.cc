#include "codegen/emit.h"

#include <fmt/format.h>

#include "codegen/emit/kernel_text.h"
#include "codegen/emit/scalar.h"

namespace hyper::codegen {

std::string KernelHead(const std::vector<lower::Operand>& operands, size_t reads) {
  std::string text = fmt::format(
      "extern \"C\" void {}(char* const* operands, i64 task, i64 tasks) {{\n", kSymbolMark);
  text += "  (void)task; (void)tasks;\n";
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string type = CType(operands[i].view.type.dtype);
    const char* constant = i < reads ? "const " : "";
    text += fmt::format("  {}{}* p{} = ({}{}*)operands[{}]; (void)p{};\n", constant, type, i,
                        constant, type, i, i);
  }
  return text;
}

EmittedKernel FinishKernel(std::string text) {
  // FNV-1a over the text, twice with different offsets: 128 bits name the kernel.
  uint64_t h[2] = {0xcbf29ce484222325ull, 0x84222325cbf29ce4ull};
  for (unsigned char c : text) {
    for (uint64_t& x : h) x = (x ^ c) * 0x100000001b3ull;
    h[1] ^= h[0] >> 29;
  }
  EmittedKernel kernel;
  kernel.symbol = fmt::format("k_{:016x}{:016x}", h[0], h[1]);
  const size_t at = text.find(kSymbolMark);
  text.replace(at, kSymbolMark.size(), kernel.symbol);
  kernel.text = std::move(text);
  return kernel;
}

Result<EmittedKernel> EmitCpuKernel(const lower::GeneratedKernel& kernel,
                                    const std::vector<lower::Operand>& operands) {
  return Guard([&]() -> Result<EmittedKernel> {
    Result<std::string> text = Internal("");
    const std::string& form = kernel.form;
    if (form == "map" || form == "rows")
      text = EmitRows(kernel, operands);
    else if (form == "cols")
      text = EmitColumns(kernel, operands);
    else if (form == "pool")
      text = EmitPool(kernel, operands);
    else if (form == "index")
      text = EmitIndexing(kernel, operands);
    else if (form == "scan")
      text = EmitScan(kernel, operands);
    else if (form == "matrix")
      text = EmitMatrix(kernel, operands);
    else if (form == "contraction")
      text = EmitContraction(kernel, operands);
    else
      return Internal(fmt::format("no emitter template for form '{}'", form));
    if (!text.ok()) return text.status();
    return FinishKernel(std::move(text).value());
  });
}

}  // namespace hyper::codegen
