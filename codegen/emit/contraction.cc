// Template "contraction": dot and convolutions for dtypes that the math library does not take (f64,
// integers). Plain loops with a vector loop over the output's nearest dim; sums run in a fixed
// order.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit/loops.h"
#include "ir/op_def.h"

namespace hyper::codegen {
namespace {

constexpr int64_t kVector = 256;  // accumulators of one unit

std::string Store(const std::vector<lower::Operand>& operands, size_t out, const Names& index) {
  const bool add = operands[out].access == lower::Access::kAccumulate;
  return fmt::format("{} {}= acc[i];\n", At(operands, out, index), add ? "+" : "");
}
std::string Blocks(int64_t extent) {
  return fmt::format("    const i64 lo = block * {0}, count = {1} - lo < {0} ? {1} - lo : {0};\n",
                     kVector, extent);
}
int64_t BlockCount(int64_t extent) {
  return std::max<int64_t>((extent + kVector - 1) / kVector, 1);
}
std::string Accumulators(ir::DType dtype) {
  return fmt::format(
      "    alignas(64) {} acc[{}];\n    for (i64 i = 0; i < count; ++i) acc[i] = 0;\n",
      CType(dtype), kVector);
}
const char* const kSimd = "#pragma omp simd\n      for (i64 i = 0; i < count; ++i) ";

std::string Dot(const ir::Node& node, const std::vector<lower::Operand>& operands) {
  const std::string& spec = node.attributes.String("spec");
  const size_t comma = spec.find(','), arrow = spec.find("->");
  const std::string a = spec.substr(0, comma), b = spec.substr(comma + 1, arrow - comma - 1);
  const std::string y = spec.substr(arrow + 2);
  const auto extent = [&](char c) {
    const size_t in_a = a.find(c);
    return in_a != std::string::npos ? operands[0].view.type.dims[in_a]
                                     : operands[1].view.type.dims[b.find(c)];
  };
  // The vector letter: the output's nearest.
  const std::vector<size_t> order = FarToNear(operands[2].view);
  const char vector = order.empty() ? '\0' : y[order.back()];
  const auto index = [&](const std::string& letters) {
    Names names;
    for (char c : letters) names.push_back(c == vector ? "lo + i" : fmt::format("l_{}", c));
    return names;
  };
  ir::Dims extents;
  Names names;
  for (char c : y) {
    if (c == vector) continue;
    extents.push_back(extent(c));
    names.push_back(fmt::format("l_{}", c));
  }
  const int64_t width = vector == '\0' ? 1 : extent(vector);
  extents.push_back(BlockCount(width));
  names.push_back("block");
  const ir::DType dtype = operands[2].view.type.dtype;
  std::string text = OpenUnits(extents, names) + Blocks(width) + Accumulators(dtype);
  std::string contracted;
  for (char c : a + b) {
    if (y.find(c) == std::string::npos && contracted.find(c) == std::string::npos) contracted += c;
  }
  for (char c : contracted) {
    text += fmt::format("    for (i64 l_{0} = 0; l_{0} < {1}; ++l_{0})\n", c, extent(c));
  }
  text += "    {\n";
  text += fmt::format("{}acc[i] += {} * {};\n    }}\n", kSimd, At(operands, 0, index(a)),
                      At(operands, 1, index(b)));
  text += "    for (i64 i = 0; i < count; ++i) " + Store(operands, 2, index(y));
  return text + CloseUnits();
}

class ConvEmitter {
 public:
  ConvEmitter(const ir::Node& node, const std::vector<lower::Operand>& operands)
      : o_(operands), a_(node.attributes), op_(node.op->name) {
    const bool weight = op_ == "conv_grad_weight";
    const size_t image = op_ == "conv" ? 0 : weight ? 1 : 2;  // x or dx
    const size_t grid = op_ == "conv" ? 2 : 0;                // y or g
    const size_t kernel = weight ? 2 : 1;
    image_ = o_[image].view.type.dims;
    grid_ = o_[grid].view.type.dims;
    kernel_ = o_[kernel].view.type.dims;
    spatial_ = kernel_.size() - 2;
  }

  std::string Run() {
    if (op_ == "conv") return Forward();
    if (op_ == "conv_grad_input") return GradInput();
    return GradWeight();
  }

 private:
  int64_t Dim(const char* name, size_t d) const { return a_.GetDims(name)[d]; }
  Names Index(const std::string& first, const std::string& second,
              const std::string& prefix) const {
    Names names = {first, second};
    for (const std::string& s : NumberedNames(prefix, spatial_)) names.push_back(s);
    return names;
  }
  std::string Taps(bool with_image) const {
    std::string text;
    for (size_t d = 0; d < spatial_; ++d) {
      text += fmt::format("    for (i64 k{0} = 0; k{0} < {1}; ++k{0}) {{\n", d, kernel_[d + 2]);
      if (with_image) {
        text += fmt::format(
            "      const i64 i{0} = s{0} * {1} + k{0} * {2} - ({3});\n"
            "      if (i{0} < 0 || i{0} >= {4}) continue;\n",
            d, Dim("strides", d), Dim("dilations", d), Dim("pads_low", d), image_[d + 2]);
      } else {
        text += fmt::format(
            "      const i64 t{0} = i{0} + ({3}) - k{0} * {2};\n"
            "      if (t{0} < 0 || t{0} % {1} != 0 || t{0} / {1} >= {4}) continue;\n"
            "      const i64 s{0} = t{0} / {1};\n",
            d, Dim("strides", d), Dim("dilations", d), Dim("pads_low", d), grid_[d + 2]);
      }
    }
    return text;
  }
  std::string Closing() const { return "    " + std::string(spatial_, '}') + "\n"; }
  // Units over n, groups, blocks of one channel dim and a spatial grid.
  std::string Units(const ir::Dims& shape, int64_t channels, const std::string& prefix) const {
    ir::Dims extents = {shape[0], a_.Int("groups"), BlockCount(channels)};
    Names names = {"n", "group", "block"};
    for (size_t d = 0; d < spatial_; ++d) {
      extents.push_back(shape[d + 2]);
      names.push_back(fmt::format("{}{}", prefix, d));
    }
    return OpenUnits(extents, names) + Blocks(channels) + Accumulators(o_[0].view.type.dtype);
  }

  std::string Forward() const {
    const int64_t inputs = kernel_[1], outputs = kernel_[0] / a_.Int("groups");
    std::string text = Units(grid_, outputs, "s") + Taps(true);
    text += fmt::format("      for (i64 c = 0; c < {}; ++c) {{\n      const {} v = {};\n", inputs,
                        CType(o_[0].view.type.dtype),
                        At(o_, 0, Index("n", fmt::format("group * {} + c", inputs), "i")));
    const std::string out = fmt::format("group * {} + lo + i", outputs);
    text += fmt::format("{}acc[i] += v * {};\n      }}\n{}", kSimd, At(o_, 1, Index(out, "c", "k")),
                        Closing());
    text += "    for (i64 i = 0; i < count; ++i) " + Store(o_, 2, Index("n", out, "s"));
    return text + CloseUnits();
  }
  std::string GradInput() const {
    const int64_t inputs = kernel_[1], outputs = kernel_[0] / a_.Int("groups");
    std::string text = Units(image_, inputs, "i") + Taps(false);
    const std::string o = fmt::format("group * {} + o", outputs);
    text += fmt::format("      for (i64 o = 0; o < {}; ++o) {{\n      const {} v = {};\n", outputs,
                        CType(o_[0].view.type.dtype), At(o_, 0, Index("n", o, "s")));
    text += fmt::format("{}acc[i] += v * {};\n      }}\n{}", kSimd,
                        At(o_, 1, Index(o, "lo + i", "k")), Closing());
    text += "    for (i64 i = 0; i < count; ++i) " +
            Store(o_, 2, Index("n", fmt::format("group * {} + lo + i", inputs), "i"));
    return text + CloseUnits();
  }
  std::string GradWeight() const {
    const int64_t inputs = kernel_[1], outputs = kernel_[0] / a_.Int("groups");
    ir::Dims extents = {kernel_[0], BlockCount(inputs)};
    Names names = {"o", "block"};
    for (size_t d = 0; d < spatial_; ++d) {
      extents.push_back(kernel_[d + 2]);
      names.push_back(fmt::format("k{}", d));
    }
    std::string text =
        OpenUnits(extents, names) + Blocks(inputs) + Accumulators(o_[0].view.type.dtype);
    text += fmt::format("    const i64 group = o / {};\n", std::max<int64_t>(outputs, 1));
    text += fmt::format("    for (i64 n = 0; n < {}; ++n)\n", image_[0]);
    for (size_t d = 0; d < spatial_; ++d) {
      text += fmt::format(
          "    for (i64 s{0} = 0; s{0} < {5}; ++s{0}) {{\n"
          "      const i64 i{0} = s{0} * {1} + k{0} * {2} - ({3});\n"
          "      if (i{0} < 0 || i{0} >= {4}) continue;\n",
          d, Dim("strides", d), Dim("dilations", d), Dim("pads_low", d), image_[d + 2],
          grid_[d + 2]);
    }
    text += fmt::format("      const {} v = {};\n", CType(o_[0].view.type.dtype),
                        At(o_, 0, Index("n", "o", "s")));
    text += fmt::format("{}acc[i] += v * {};\n{}", kSimd,
                        At(o_, 1, Index("n", fmt::format("group * {} + lo + i", inputs), "i")),
                        Closing());
    text += "    for (i64 i = 0; i < count; ++i) " + Store(o_, 2, Index("o", "lo + i", "k"));
    return text + CloseUnits();
  }

  const std::vector<lower::Operand>& o_;
  const ir::Attributes& a_;
  std::string op_;
  ir::Dims image_, grid_, kernel_;
  size_t spatial_ = 0;
};

}  // namespace

Result<std::string> EmitContraction(const lower::GeneratedKernel& kernel,
                                    const std::vector<lower::Operand>& operands) {
  const ir::Node& node = kernel.body.node(kernel.body.order()[0]);
  const std::string head = KernelHead(operands, node.inputs.size());
  if (node.op->name == "dot") return head + Dot(node, operands);
  return head + ConvEmitter(node, operands).Run();
}

}  // namespace hyper::codegen
