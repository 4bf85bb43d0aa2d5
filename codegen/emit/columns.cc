// Template "cols": every result keeps the axes that the group's reductions keep; per block of
// columns, walk all reduced rows with accumulators in a small array, then run the epilogue. Tasks
// split the columns, so the order of summation is that of the rows. Long f32 sums are blocked: sums
// of kBlockedRows rows are added up, so that the rounding error grows with the length of a block
// and the number of blocks instead of their product (Higham, Accuracy and Stability of Numerical
// Algorithms, section 4.2).
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit/kernel_text.h"
#include "codegen/emit/nest.h"
#include "codegen/emit/scalar.h"
#include "ir/op_def.h"

namespace hyper::codegen {
namespace {

constexpr int64_t kColumns = 256;  // of one block
constexpr int64_t kBlockedRows = 64;

class ColumnsEmitter {
 public:
  ColumnsEmitter(Nest nest, const std::vector<lower::Operand>& operands)
      : nest_(std::move(nest)), body_(*nest_.body), operands_(operands) {}

  Result<std::string> Run() {
    HYPER_RETURN_IF_ERROR(Classify());
    text_ = KernelHead(operands_, static_cast<size_t>(nest_.reads()));
    const int64_t extent = columns_.back().extent;
    const int64_t blocks = std::max<int64_t>((extent + kColumns - 1) / kColumns, 1);
    int64_t units = blocks;
    for (size_t k = 0; k + 1 < columns_.size(); ++k) units *= columns_[k].extent;
    text_ += fmt::format(
        "  for (i64 u = hy_lo({0}, task, tasks), end = hy_lo({0}, task + 1, tasks); u < end; ++u) "
        "{{\n",
        units);
    const int64_t width = std::min(extent, kColumns);
    text_ += fmt::format("    const i64 block = u % {}, k_flat = u / {}; (void)k_flat;\n", blocks,
                         blocks);
    if (blocks == 1) {
      text_ += fmt::format("    const i64 count = {};\n", extent);
    } else {
      text_ += fmt::format("    const i64 count = block == {} ? {} : {};\n", blocks - 1,
                           extent - (blocks - 1) * kColumns, kColumns);
    }
    Decode();
    for (const ir::Node* node : reduces_) {
      const ir::ValueId out = node->outputs[0];
      text_ += fmt::format("    alignas(64) {} s{}[{}];\n", Type(out), out.index,
                           std::max<int64_t>(width, 1));
      text_ += fmt::format("    for (i64 i = 0; i < count; ++i) s{}[i] = {};\n", out.index,
                           ReduceInit(node->attributes.String("kind"), body_.type(out).dtype));
      if (!IsBlocked(*node)) continue;
      text_ += fmt::format(
          "    alignas(64) {0} t{1}[{2}];\n    for (i64 i = 0; i < count; ++i) t{1}[i] = 0;\n",
          Type(out), out.index, std::max<int64_t>(width, 1));
    }
    PrintRows();
    PrintEpilogue();
    text_ += "  }\n}\n";
    return std::move(text_);
  }

 private:
  static size_t I(ir::ValueId v) { return static_cast<size_t>(v.index); }
  std::string Type(ir::ValueId v) const { return CType(body_.type(v).dtype); }

  Status Classify() {
    const size_t n = static_cast<size_t>(body_.value_count());
    after_.assign(n, false);
    AxisSet kept = 0;
    for (ir::NodeId id : body_.order()) {
      const ir::Node& node = body_.node(id);
      const size_t out = I(node.outputs[0]);
      if (node.op->name == "reduce") {
        if (!reduces_.empty() && kept != nest_.set_of[out]) {
          return Internal("column reductions that keep unequal axes");
        }
        kept = nest_.set_of[out];
        reduces_.push_back(&node);
        after_[out] = true;
      }
      for (ir::ValueId v : node.inputs)
        if (after_[I(v)]) after_[out] = true;
      if (node.op->name == "random_uniform") return Internal("random draw in a column reduction");
    }
    std::vector<int> column_axes, row_axes;
    for (int a : AxesByStride(nest_)) ((kept >> a & 1) != 0 ? column_axes : row_axes).push_back(a);
    columns_ = MakeLoops(nest_, column_axes);
    rows_ = MakeLoops(nest_, row_axes);
    if (columns_.empty()) {
      columns_.push_back(Loop{1, 0, std::vector<int64_t>(static_cast<size_t>(nest_.streams), 0)});
    }
    kept_ = kept;
    return {};
  }

  void Decode() {
    int64_t inside = 1;
    for (size_t k = 0; k + 1 < columns_.size(); ++k)
      inside *= std::max<int64_t>(columns_[k].extent, 1);
    std::vector<Loop> loops;
    std::vector<std::string> names;
    for (size_t k = 0; k + 1 < columns_.size(); ++k) {
      inside /= std::max<int64_t>(columns_[k].extent, 1);
      text_ += fmt::format("    const i64 g{} = k_flat / {} % {};\n", k, inside,
                           std::max<int64_t>(columns_[k].extent, 1));
      loops.push_back(columns_[k]);
      names.push_back(fmt::format("g{}", k));
    }
    Loop block = columns_.back();
    for (int64_t& s : block.strides) s *= kColumns;
    loops.push_back(block);
    names.push_back("block");
    for (int s = 0; s < nest_.streams; ++s) {
      const std::string offset = OffsetText(loops, names, s);
      if (s < static_cast<int>(operands_.size())) {
        text_ +=
            fmt::format("    {}{}* q{} = p{} + {}; (void)q{};\n", s < nest_.reads() ? "const " : "",
                        CType(nest_.operand(s).view.type.dtype), s, s, offset, s);
      } else {
        text_ +=
            fmt::format("    const i64 n{} = {} + {}; (void)n{};\n", s, IndexOffset(s), offset, s);
      }
    }
  }

  // First index of a sliced iota.
  int64_t IndexOffset(int stream) const {
    for (ir::NodeId id : body_.order()) {
      const ir::Node& node = body_.node(id);
      if (nest_.stream_of_node[I(node.outputs[0])] == stream &&
          node.attributes.Has("index_offset")) {
        return node.attributes.Int("index_offset");
      }
    }
    return 0;
  }

  std::string Element(int stream, bool with_rows) const {
    std::vector<Loop> loops;
    std::vector<std::string> names;
    if (with_rows) {
      for (size_t k = 0; k < rows_.size(); ++k) {
        loops.push_back(rows_[k]);
        names.push_back(fmt::format("b{}", k));
      }
    }
    loops.push_back(columns_.back());
    names.push_back("i");
    return OffsetText(loops, names, stream);
  }

  std::string Name(ir::ValueId v) const {
    const ir::NodeId id = body_.value(v).producer;
    if (id.valid() && body_.node(id).op->name == "broadcast") return Name(body_.node(id).inputs[0]);
    if (id.valid() && body_.node(id).op->name == "constant") {
      const ir::HostTensor& t = body_.node(id).attributes.Tensor("value");
      return ir::IsFloat(t.type().dtype) ? FloatLiteral(t.type().dtype, t.ElementAsDouble(0))
                                         : IntLiteral(t.type().dtype, t.ElementAsInt(0));
    }
    return fmt::format("v{}", v.index);
  }

  void Need(ir::ValueId v, bool epilogue, std::vector<bool>& needed) const {
    if (needed[I(v)]) return;
    needed[I(v)] = true;
    const ir::NodeId id = body_.value(v).producer;
    if (!id.valid() || (epilogue && body_.node(id).op->name == "reduce")) return;
    for (ir::ValueId in : body_.node(id).inputs) Need(in, epilogue, needed);
  }

  void Compute(const std::vector<bool>& needed, bool rows, const std::string& indent) {
    for (const ir::Argument& a : body_.arguments()) {
      if (!needed[I(a.value)]) continue;
      const int arg = nest_.argument_of[I(a.value)];
      text_ += fmt::format("{}const {} v{} = q{}[{}];\n", indent, Type(a.value), a.value.index, arg,
                           Element(arg, rows));
    }
    for (ir::NodeId id : body_.order()) {
      const ir::Node& node = body_.node(id);
      const ir::ValueId v = node.outputs[0];
      if (!needed[I(v)]) continue;
      if (node.op->name == "reduce") {
        text_ += fmt::format("{}const {} v{} = s{}[i];\n", indent, Type(v), v.index, v.index);
      } else if (node.op->name == "iota") {
        const int stream = nest_.stream_of_node[I(v)];
        text_ += fmt::format("{}const {} v{} = ({})(n{} + {});\n", indent, Type(v), v.index,
                             Type(v), stream, Element(stream, rows));
      } else if (node.op->name == "map") {
        std::vector<std::string> inputs;
        for (ir::ValueId in : node.inputs) inputs.push_back(Name(in));
        const std::string value = EmitExpr(node.attributes.GetExpr("expr"), inputs,
                                           fmt::format("v{}", v.index), indent, &text_);
        text_ += fmt::format("{}const {} v{} = {};\n", indent, Type(v), v.index, value);
      }
    }
  }

  bool IsBlocked(const ir::Node& reduce) const {
    int64_t rows = 1;
    for (const Loop& loop : rows_) rows *= loop.extent;
    return rows > kBlockedRows && reduce.attributes.String("kind") == "sum" &&
           body_.type(reduce.inputs[0]).dtype == ir::DType::kF32;
  }

  // Adds the sums of a block to the sums of all.
  std::string Flush(const std::string& indent) const {
    std::string text;
    for (const ir::Node* node : reduces_) {
      if (!IsBlocked(*node)) continue;
      text +=
          fmt::format("{0}for (i64 i = 0; i < count; ++i) {{ s{1}[i] += t{1}[i]; t{1}[i] = 0; }}\n",
                      indent, node->outputs[0].index);
    }
    return text;
  }

  void PrintRows() {
    std::string indent = "    ";
    const bool blocked = !Flush("").empty();
    if (blocked) text_ += indent + "i64 rows = 0;\n";
    for (size_t k = 0; k < rows_.size(); ++k, indent += "  ") {
      text_ +=
          fmt::format("{0}for (i64 b{1} = 0; b{1} < {2}; ++b{1})\n", indent, k, rows_[k].extent);
    }
    text_ += indent + "{\n#pragma omp simd\n" + indent + "for (i64 i = 0; i < count; ++i) {\n";
    std::vector<bool> needed(static_cast<size_t>(body_.value_count()), false);
    for (const ir::Node* node : reduces_) Need(node->inputs[0], false, needed);
    Compute(needed, true, indent + "  ");
    for (const ir::Node* node : reduces_) {
      text_ +=
          indent + "  " +
          ReduceStep(node->attributes.String("kind"), body_.type(node->inputs[0]).dtype,
                     fmt::format("{}{}[i]", IsBlocked(*node) ? "t" : "s", node->outputs[0].index),
                     Name(node->inputs[0])) +
          "\n";
    }
    text_ += indent + "}\n";
    if (blocked) {
      text_ += fmt::format("{0}if (++rows == {1}) {{\n{0}  rows = 0;\n{2}{0}}}\n", indent,
                           kBlockedRows, Flush(indent + "  "));
    }
    text_ += indent + "}\n" + (blocked ? Flush("    ") : "");
  }

  void PrintEpilogue() {
    std::vector<bool> needed(static_cast<size_t>(body_.value_count()), false);
    for (const ir::FunctionResult& r : body_.results()) Need(r.value, true, needed);
    text_ += "#pragma omp simd\n    for (i64 i = 0; i < count; ++i) {\n";
    Compute(needed, false, "      ");
    for (int r = 0; r < static_cast<int>(body_.results().size()); ++r) {
      const int operand = nest_.reads() + r;
      const bool add = operands_[static_cast<size_t>(operand)].access == lower::Access::kAccumulate;
      text_ += fmt::format("      q{}[{}] {}= {};\n", operand, Element(operand, false),
                           add ? "+" : "", Name(body_.results()[static_cast<size_t>(r)].value));
    }
    text_ += "    }\n";
  }

  Nest nest_;
  const ir::Function& body_;
  const std::vector<lower::Operand>& operands_;
  std::vector<const ir::Node*> reduces_;
  std::vector<bool> after_;
  std::vector<Loop> columns_, rows_;
  AxisSet kept_ = 0;
  std::string text_;
};

}  // namespace

Result<std::string> EmitColumns(const lower::GeneratedKernel& kernel,
                                const std::vector<lower::Operand>& operands) {
  HYPER_ASSIGN_OR_RETURN(Nest nest, AnalyzeNest(kernel.body, operands));
  return ColumnsEmitter(std::move(nest), operands).Run();
}

}  // namespace hyper::codegen
