// Template "pool": windows over N C spatial... with a vector loop over channels, which lie together
// in channels-last activations. Gradients gather: every input position visits the windows that
// contain it, so tasks never write the same element.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit/loops.h"
#include "ir/op_def.h"

namespace hyper::codegen {
namespace {

constexpr int64_t kChannels = 256;  // of one block

class PoolEmitter {
 public:
  PoolEmitter(const ir::Node& node, const ir::Function& body,
              const std::vector<lower::Operand>& operands)
      : node_(node), body_(body), operands_(operands), a_(node.attributes) {
    gradient_ = node.op->name == "max_pool_grad" || node.op->name == "avg_pool_grad";
    max_ = node.op->name == "max_pool" || node.op->name == "max_pool_grad";
    spatial_ = a_.GetDims("kernel").size();
    small_ = gradient_ ? body.type(node.inputs[0]).dims : body.type(node.outputs[0]).dims;
    large_ = gradient_ ? body.type(node.outputs[0]).dims : body.type(node.inputs[0]).dims;
  }

  std::string Run() {
    const size_t reads = node_.inputs.size();
    std::string text = KernelHead(operands_, reads);
    const ir::Dims& walked = gradient_ ? large_ : small_;
    const int64_t channels = walked[1];
    const int64_t blocks = std::max<int64_t>((channels + kChannels - 1) / kChannels, 1);
    ir::Dims extents = {walked[0], blocks};
    Names names = {"n", "block"};
    for (size_t d = 0; d < spatial_; ++d) {
      extents.push_back(walked[d + 2]);
      names.push_back(fmt::format("{}{}", gradient_ ? "i" : "o", d));
    }
    text += OpenUnits(extents, names);
    text += fmt::format("    const i64 c0 = block * {0}, cn = {1} - c0 < {0} ? {1} - c0 : {0};\n",
                        kChannels, channels);
    const std::string type = CType(body_.type(node_.inputs[0]).dtype);
    text += fmt::format("    alignas(64) {} acc[{}];\n", type, kChannels);
    if (max_ && !gradient_) text += fmt::format("    alignas(64) int32_t tap[{}];\n", kChannels);
    text +=
        fmt::format("    for (i64 c = 0; c < cn; ++c) {{ acc[c] = {}; {}}}\n",
                    max_ && !gradient_ ? ReduceInit("max", body_.type(node_.inputs[0]).dtype) : "0",
                    max_ && !gradient_ ? "tap[c] = 0; " : "");
    if (max_ && !gradient_) text += "    bool first = true;\n";
    if (!gradient_ && !max_) text += "    i64 count = 0;\n";
    std::string indent = "    ";
    for (size_t d = 0; d < spatial_; ++d) {
      text += fmt::format("{0}for (i64 k{1} = 0; k{1} < {2}; ++k{1}) {{\n", indent, d,
                          a_.GetDims("kernel")[d]);
      indent += "  ";
      text += gradient_ ? Backward(d, indent) : Forward(d, indent);
    }
    text += Visit(indent);
    for (size_t d = spatial_; d-- > 0;) {
      indent.resize(indent.size() - 2);
      text += indent + "}\n";
    }
    return text + Store() + CloseUnits();
  }

 private:
  int64_t Dim(const char* name, size_t d) const { return a_.GetDims(name)[d]; }
  std::string Forward(size_t d, const std::string& indent) const {
    return fmt::format(
        "{0}const i64 i{1} = o{1} * {2} + k{1} * {3} - ({4});\n"
        "{0}if (i{1} < 0 || i{1} >= {5}) continue;\n",
        indent, d, Dim("strides", d), Dim("dilations", d), Dim("pads_low", d), large_[d + 2]);
  }
  std::string Backward(size_t d, const std::string& indent) const {
    return fmt::format(
        "{0}const i64 t{1} = i{1} + ({4}) - k{1} * {3};\n"
        "{0}if (t{1} < 0 || t{1} % {2} != 0 || t{1} / {2} >= {5}) continue;\n"
        "{0}const i64 o{1} = t{1} / {2};\n",
        indent, d, Dim("strides", d), Dim("dilations", d), Dim("pads_low", d), small_[d + 2]);
  }
  Names Index(const std::string& prefix) const {
    Names names = {"n", "c0 + c"};
    for (const std::string& s : NumberedNames(prefix, spatial_)) names.push_back(s);
    return names;
  }
  std::string Tap() const {
    std::string text = "0";
    for (size_t d = 0; d < spatial_; ++d) {
      text = fmt::format("({}) * {} + k{}", text, Dim("kernel", d), d);
    }
    return text;
  }
  // Taps of window o that lie inside, or all of them.
  std::string WindowCount(const std::string& indent) const {
    if (a_.Bool("count_include_pad"))
      return indent + fmt::format("const i64 count = {};\n", Window());
    std::string text = indent + "i64 count = 1;\n";
    for (size_t d = 0; d < spatial_; ++d) {
      text += fmt::format(
          "{0}{{ i64 m = 0; for (i64 k = 0; k < {1}; ++k) {{ const i64 i = o{2} * {3} + k * {4} - "
          "({5}); m += i >= 0 && i < {6}; }} count *= m; }}\n",
          indent, Dim("kernel", d), d, Dim("strides", d), Dim("dilations", d), Dim("pads_low", d),
          large_[d + 2]);
    }
    return text;
  }
  int64_t Window() const {
    int64_t n = 1;
    for (int64_t k : a_.GetDims("kernel")) n *= k;
    return n;
  }

  std::string Visit(const std::string& in) const {
    const std::string type = CType(body_.type(node_.inputs[0]).dtype);
    const std::string loop = "#pragma omp simd\n" + in + "for (i64 c = 0; c < cn; ++c) ";
    if (!gradient_ && max_) {
      return fmt::format(
          "{0}const int32_t t = (int32_t)({1});\n{2}{{\n{0}  const {3} v = {4};\n"
          "{0}  const bool better = first | (v > acc[c]) | ((v != v) & (acc[c] == acc[c]));\n"
          "{0}  acc[c] = better ? v : acc[c];\n{0}  tap[c] = better ? t : tap[c];\n{0}}}\n"
          "{0}first = false;\n",
          in, Tap(), loop, type, At(operands_, 0, Index("i")));
    }
    if (!gradient_) {
      return fmt::format("{0}++count;\n{1}acc[c] += {2};\n", in, loop,
                         At(operands_, 0, Index("i")));
    }
    if (max_) {
      return fmt::format(
          "{0}const int32_t t = (int32_t)({1});\n{2}acc[c] += (int32_t){3} == t ? {4} : "
          "{5}(0);\n",
          in, Tap(), loop, At(operands_, 1, Index("o")), At(operands_, 0, Index("o")), type);
    }
    return WindowCount(in) +
           fmt::format("{}acc[c] += {} / ({})count;\n", loop, At(operands_, 0, Index("o")), type);
  }

  std::string Store() const {
    const std::string loop = "#pragma omp simd\n    for (i64 c = 0; c < cn; ++c) ";
    const size_t out = node_.inputs.size();
    if (gradient_) return fmt::format("{}{} = acc[c];\n", loop, At(operands_, out, Index("i")));
    if (!max_) {
      const std::string type = CType(body_.type(node_.inputs[0]).dtype);
      const std::string count =
          a_.Bool("count_include_pad") ? std::to_string(Window()) : std::string("count");
      return fmt::format("{}{} = acc[c] / ({})({});\n", loop, At(operands_, out, Index("o")), type,
                         count);
    }
    return fmt::format("{0}{{ {1} = acc[c]; {2} = ({3})tap[c]; }}\n", loop,
                       At(operands_, out, Index("o")), At(operands_, out + 1, Index("o")),
                       CType(operands_[out + 1].view.type.dtype));
  }

  const ir::Node& node_;
  const ir::Function& body_;
  const std::vector<lower::Operand>& operands_;
  const ir::Attributes& a_;
  bool gradient_ = false, max_ = false;
  size_t spatial_ = 0;
  ir::Dims small_, large_;  // pooled and unpooled shape
};

}  // namespace

Result<std::string> EmitPool(const lower::GeneratedKernel& kernel,
                             const std::vector<lower::Operand>& operands) {
  const ir::Node& node = kernel.body.node(kernel.body.order()[0]);
  return PoolEmitter(node, kernel.body, operands).Run();
}

}  // namespace hyper::codegen
