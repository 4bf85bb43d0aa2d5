// Template "rows" (and "map", the case without reductions): an outer loop over rows that is split
// over tasks and, per row, one or more vector loops. Row reductions end a loop ("phase"); what
// later phases need again is recomputed when cheap and kept in a stack buffer otherwise. Reductions
// over rows go to partial results, one per fixed chunk of rows, so that the order of summation does
// not depend on the number of tasks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/emit/kernel_text.h"
#include "codegen/emit/rows_plan.h"
#include "codegen/emit/scalar.h"
#include "ir/op_def.h"

namespace hyper::codegen {
namespace {

class RowsEmitter : private RowsPlan {
 public:
  using RowsPlan::RowsPlan;

  Result<std::string> Run() {
    HYPER_RETURN_IF_ERROR(Plan());
    Print();
    return std::move(text_);
  }

 private:
  std::string Name(ir::ValueId v) const {
    const ir::Node* node = Producer(v);
    if (node != nullptr && node->op->name == "broadcast") return Name(node->inputs[0]);
    if (node != nullptr && node->op->name == "constant") {
      const ir::HostTensor& t = node->attributes.Tensor("value");
      return ir::IsFloat(t.type().dtype) ? FloatLiteral(t.type().dtype, t.ElementAsDouble(0))
                                         : IntLiteral(t.type().dtype, t.ElementAsInt(0));
    }
    return fmt::format("v{}", v.index);
  }

  // One "const T v = ..." line for a value computed here.
  void Compute(ir::ValueId v, const std::string& indent, const std::string& element) {
    const ir::Node* node = Producer(v);
    if (node == nullptr) {
      const int arg = nest_.argument_of[I(v)];
      const std::string base =
          level_[I(v)] == 0 ? fmt::format("p{}", arg) : fmt::format("q{}", arg);
      const std::string at = level_[I(v)] == 2 ? Element(arg) : "0";
      text_ += fmt::format("{}const {} v{} = {}[{}];\n", indent, Type(v), v.index, base, at);
      return;
    }
    const std::string_view op = node->op->name;
    if (op == "broadcast" || op == "constant" || op == "reduce") return;
    if (op == "map") {
      std::vector<std::string> inputs;
      for (ir::ValueId in : node->inputs) inputs.push_back(Name(in));
      const std::string value = EmitExpr(node->attributes.GetExpr("expr"), inputs,
                                         fmt::format("v{}", v.index), indent, &text_);
      text_ += fmt::format("{}const {} v{} = {};\n", indent, Type(v), v.index, value);
      return;
    }
    const int stream = nest_.stream_of_node[I(v)];
    const std::string index = level_[I(v)] == 2   ? fmt::format("n{} + {}", stream, Element(stream))
                              : level_[I(v)] == 1 ? fmt::format("n{}", stream)
                                                  : fmt::format("m{}", stream);
    if (op == "iota") {
      text_ +=
          fmt::format("{}const {} v{} = ({})({});\n", indent, Type(v), v.index, Type(v), index);
    } else if (level_[I(v)] == 2 && RowDraw(stream)) {
      text_ += fmt::format("{}const {} v{} = ({})d{}[{}];\n", indent, Type(v), v.index, Type(v),
                           stream, element);
    } else {
      text_ += fmt::format("{}const {} v{} = ({})hy_uniform(key{}, (uint64_t)(first{} + {}));\n",
                           indent, Type(v), v.index, Type(v), stream, stream, index);
    }
  }
  // Draws of a whole row piece at once, where the elements are consecutive.
  bool RowDraw(int stream) const {
    return inner_.back().strides[static_cast<size_t>(stream)] == 1 && VectorExtent() >= 8;
  }
  int64_t VectorExtent() const { return blocks_ > 1 ? kBlock : inner_.back().extent; }

  // Offset of the current element inside a row for a stream.
  std::string Element(int stream) const {
    std::vector<std::string> indices;
    for (size_t i = 0; i + 1 < inner_.size(); ++i) indices.push_back(fmt::format("j{}", i));
    indices.push_back("i");
    return OffsetText(inner_, indices, stream);
  }

  void Print() {
    text_ = KernelHead(operands_, static_cast<size_t>(nest_.reads()));
    PrintKeys();
    for (const ir::Argument& a : body_.arguments()) {
      if (used_[I(a.value)] && level_[I(a.value)] == 0 && !IsKey(a.value))
        Compute(a.value, "  ", "");
    }
    for (ir::NodeId id : body_.order()) {
      const ir::ValueId v = body_.node(id).outputs[0];
      if (used_[I(v)] && level_[I(v)] == 0) Compute(v, "  ", "");
    }
    for (size_t v = 0; v < buffered_.size(); ++v) {
      if (!buffered_[v]) continue;
      text_ +=
          fmt::format("  alignas(64) {} b{}[{}];\n", Type(ir::ValueId{static_cast<int32_t>(v)}), v,
                      std::max<int64_t>(row_elements_, 1));
    }
    int64_t rows = blocks_;
    for (const Loop& l : outer_) rows *= l.extent;
    if (terminals_.empty()) {
      PrintRange("r", fmt::format("hy_lo({}, task, tasks)", rows),
                 fmt::format("hy_lo({}, task + 1, tasks)", rows), "  ");
      PrintRow("    ");
      text_ += "  }\n}\n";
      return;
    }
    int64_t kept = 1;
    for (const Loop& l : kept_outer_) kept *= l.extent;
    PrintRange("u", fmt::format("hy_lo({}, task, tasks)", kept * chunks_),
               fmt::format("hy_lo({}, task + 1, tasks)", kept * chunks_), "  ");
    text_ +=
        fmt::format("    const i64 c = u % {}, kept = u / {}; (void)kept;\n", chunks_, chunks_);
    PrintDecode("kept", "g", kept_outer_, "    ");
    PrintTerminalStart("    ");
    PrintRange("r", fmt::format("hy_lo({}, c, {})", rows, chunks_),
               fmt::format("hy_lo({}, c + 1, {})", rows, chunks_), "    ");
    PrintRow("      ");
    text_ += "    }\n";
    for (const Terminal& t : terminals_) {
      if (!t.column) text_ += fmt::format("    *z{} = t{};\n", t.result, t.result);
    }
    text_ += "  }\n}\n";
  }

  void PrintRange(const std::string& i, const std::string& lo, const std::string& hi,
                  const std::string& indent) {
    text_ += fmt::format("{0}for (i64 {1} = {2}, {1}_end = {3}; {1} < {1}_end; ++{1}) {{\n", indent,
                         i, lo, hi);
  }

  bool IsKey(ir::ValueId v) const {
    for (ir::NodeId id : body_.order()) {
      if (body_.node(id).op->name == "random_uniform" && body_.node(id).inputs[0] == v) return true;
    }
    return false;
  }
  void PrintKeys() {
    for (ir::NodeId id : body_.order()) {
      const ir::Node& node = body_.node(id);
      const int stream = nest_.stream_of_node[I(node.outputs[0])];
      if (node.op->name == "iota") text_ += IndexOffset(node, stream);
      if (node.op->name != "random_uniform") continue;
      const int arg = nest_.argument_of[I(node.inputs[0])];
      const int64_t s = nest_.operand(arg).view.strides[0];
      text_ += fmt::format("  const HyKey key{0} = hy_key(p{1}[0], p{1}[{2}], {3}ll);\n", stream,
                           arg, s, node.op_id);
      text_ +=
          fmt::format("  const i64 first{} = p{}[{}] * {}ll;\n", stream, arg, 2 * s,
                      node.attributes.Has("elements") ? node.attributes.Int("elements")
                                                      : body_.type(node.outputs[0]).elements());
      text_ += IndexOffset(node, stream);
      if (RowDraw(stream))
        text_ += fmt::format("  alignas(64) float d{}[{}];\n", stream, VectorExtent());
    }
  }

  // First index of a sliced iota or draw.
  static std::string IndexOffset(const ir::Node& node, int stream) {
    const int64_t offset =
        node.attributes.Has("index_offset") ? node.attributes.Int("index_offset") : 0;
    return fmt::format("  const i64 m{} = {};\n", stream, offset);
  }

  // "const i64 g0 = kept / 12 % 3, ...".
  void PrintDecode(const std::string& flat, const std::string& prefix,
                   const std::vector<Loop>& loops, const std::string& indent) {
    int64_t inside = 1;
    for (const Loop& l : loops) inside *= std::max<int64_t>(l.extent, 1);
    for (size_t k = 0; k < loops.size(); ++k) {
      const int64_t extent = std::max<int64_t>(loops[k].extent, 1);
      inside /= extent;
      std::string value = inside == 1 ? flat : fmt::format("{} / {}", flat, inside);
      if (k > 0) value = fmt::format("{} % {}", value, extent);
      text_ += fmt::format("{}const i64 {}{} = {};\n", indent, prefix, k, value);
    }
  }
  static std::vector<std::string> Names(const std::string& prefix, size_t n) {
    std::vector<std::string> names;
    for (size_t i = 0; i < n; ++i) names.push_back(fmt::format("{}{}", prefix, i));
    return names;
  }

  void PrintTerminalStart(const std::string& indent) {
    for (const Terminal& t : terminals_) {
      const int operand = nest_.reads() + t.result;
      const ir::ValueId out = body_.results()[static_cast<size_t>(t.result)].value;
      const std::string offset = OffsetText(kept_outer_, Names("g", kept_outer_.size()), operand);
      text_ += fmt::format("{}{}* z{} = p{} + c * {} + {};\n", indent, Type(out), t.result, operand,
                           nest_.operand(operand).view.strides[0], offset);
      const std::string init = ReduceInit(t.kind, body_.type(out).dtype);
      if (!t.column) {
        text_ += fmt::format("{}{} t{} = {};\n", indent, Type(out), t.result, init);
        continue;
      }
      OpenInner(indent, "", false);
      text_ +=
          fmt::format("{}  z{}[{}] = {};\n", indent + Deep(), t.result, Element(operand), init);
      CloseInner(indent);
    }
  }
  std::string Deep() const { return std::string(2 * (inner_.size() - 1), ' '); }

  void OpenInner(std::string indent, const std::string& clauses, bool draws) {
    std::string linear;
    for (size_t k = 0; k + 1 < inner_.size(); ++k) {
      text_ += fmt::format("{0}for (i64 j{1} = 0; j{1} < {2}; ++j{1}) {{\n", indent, k,
                           inner_[k].extent);
      indent += "  ";
      linear = linear.empty() ? fmt::format("j{}", k)
                              : fmt::format("({}) * {} + j{}", linear, inner_[k].extent, k);
    }
    if (!linear.empty()) {
      text_ += fmt::format("{}const i64 base = ({}) * {}; (void)base;\n", indent, linear,
                           inner_.back().extent);
    }
    if (draws) PrintDraws(indent);
    text_ += fmt::format("#pragma omp simd{}\n", clauses);
    text_ += fmt::format("{}for (i64 i = 0; i < {}; ++i) {{\n", indent,
                         blocks_ > 1 ? "count" : std::to_string(inner_.back().extent));
  }
  void CloseInner(const std::string& indent) {
    for (size_t k = inner_.size(); k-- > 0;) {
      text_ += indent + std::string(2 * k, ' ') + "}\n";
    }
  }
  void PrintDraws(const std::string& indent) {
    for (ir::NodeId id : body_.order()) {
      const ir::ValueId v = body_.node(id).outputs[0];
      const int stream = nest_.stream_of_node[I(v)];
      if (body_.node(id).op->name != "random_uniform" || !RowDraw(stream)) continue;
      if (!needed_[static_cast<size_t>(current_phase_)][I(v)]) continue;
      if (buffered_[I(v)] && phase_[I(v)] < current_phase_) continue;
      std::vector<Loop> loops(inner_.begin(), inner_.end() - 1);
      text_ +=
          fmt::format("{}hy_uniform_row(key{}, (uint64_t)(first{} + n{} + {}), {}, d{});\n", indent,
                      stream, stream, stream, OffsetText(loops, Names("j", loops.size()), stream),
                      blocks_ > 1 ? "count" : std::to_string(inner_.back().extent), stream);
    }
  }

  void PrintRow(const std::string& indent) {
    std::vector<Loop> loops = outer_;
    if (blocks_ > 1) {
      Loop block{blocks_, inner_[0].axes, inner_[0].strides};
      for (int64_t& s : block.strides) s *= kBlock;
      loops.push_back(block);
    }
    PrintDecode("r", "o", loops, indent);
    std::vector<std::string> names = Names("o", loops.size());
    if (blocks_ > 1) {
      text_ += fmt::format("{0}const i64 count = {1} == {2} ? {3} : {4};\n", indent, names.back(),
                           blocks_ - 1, inner_[0].extent - (blocks_ - 1) * kBlock, kBlock);
    }
    loops.insert(loops.end(), kept_outer_.begin(), kept_outer_.end());
    for (const std::string& g : Names("g", kept_outer_.size())) names.push_back(g);
    for (int s = 0; s < nest_.streams; ++s) PrintStreamBase(s, loops, names, indent);
    for (int p = 0; p < phases_; ++p) PrintPhase(p, indent);
  }
  void PrintStreamBase(int s, const std::vector<Loop>& loops, const std::vector<std::string>& names,
                       const std::string& indent) {
    const std::string offset = OffsetText(loops, names, s);
    if (s >= static_cast<int>(operands_.size())) {
      text_ += fmt::format("{}const i64 n{} = m{} + {}; (void)n{};\n", indent, s, s, offset, s);
      return;
    }
    const bool read = s < nest_.reads();
    if (!read && nest_.IsPartial(s - nest_.reads())) return;
    text_ += fmt::format("{}{}{}* q{} = p{} + {}; (void)q{};\n", indent, read ? "const " : "",
                         CType(nest_.operand(s).view.type.dtype), s, s, offset, s);
  }

  void PrintPhase(int p, const std::string& indent) {
    current_phase_ = p;
    if (p == 0) {
      for (const ir::Argument& a : body_.arguments()) {
        if (used_[I(a.value)] && level_[I(a.value)] == 1) Compute(a.value, indent, "");
      }
    }
    for (ir::NodeId id : body_.order()) {
      const ir::ValueId v = body_.node(id).outputs[0];
      if (used_[I(v)] && level_[I(v)] == 1 && phase_[I(v)] == p) Compute(v, indent, "");
    }
    for (const Terminal& t : terminals_) {
      if (phase_[I(t.input)] == p && IsRowTotal(t.input)) {
        text_ += indent +
                 ReduceStep(t.kind, body_.type(t.input).dtype, fmt::format("t{}", t.result),
                            Name(t.input)) +
                 "\n";
      }
    }
    for (int r = 0; r < static_cast<int>(body_.results().size()); ++r) {
      const ir::ValueId v = body_.results()[static_cast<size_t>(r)].value;
      if (nest_.IsPartial(r) || IsFullStore(r) || phase_[I(v)] != p) continue;
      text_ += fmt::format("{}q{}[0] = {};\n", indent, nest_.reads() + r, Name(v));
    }
    if (!Roots(p).empty() || HasBuffersOf(p)) PrintLoop(p, indent);
  }
  bool HasBuffersOf(int p) const {
    for (size_t v = 0; v < buffered_.size(); ++v)
      if (buffered_[v] && phase_[v] == p) return true;
    return false;
  }

  // Row reductions whose vector loop is phase p: (node, accumulator name).
  std::vector<std::pair<const ir::Node*, std::string>> ReducesOf(int p) const {
    std::vector<std::pair<const ir::Node*, std::string>> list;
    for (ir::NodeId id : body_.order()) {
      const ir::Node& node = body_.node(id);
      if (node.op->name != "reduce" || !used_[I(node.outputs[0])]) continue;
      const ir::ValueId in = node.inputs[0], out = node.outputs[0];
      if (phase_[I(in)] != p || (terminal_value_[I(out)] && (IsRowTotal(in) || IsColumn(out)))) {
        continue;
      }
      list.emplace_back(&node, fmt::format("s{}", out.index));
    }
    return list;
  }
  bool IsColumn(ir::ValueId out) const {
    return terminal_value_[I(out)] && body_.type(out).rank() > 0;
  }

  void PrintLoop(int p, const std::string& indent) {
    const auto reduces = ReducesOf(p);
    std::string clauses;
    for (const auto& [node, acc] : reduces) {
      const ir::DType dtype = body_.type(node->inputs[0]).dtype;
      const std::string& kind = node->attributes.String("kind");
      text_ += fmt::format("{}{} {} = {};\n", indent, CType(dtype), acc, ReduceInit(kind, dtype));
      clauses += fmt::format(" reduction({}:{})", ReduceClause(kind, dtype), acc);
      if (TracksNan(kind, dtype)) {
        text_ += fmt::format("{}int {}n = 0;\n", indent, acc);
        clauses += fmt::format(" reduction(|:{}n)", acc);
      }
    }
    OpenInner(indent, clauses, true);
    PrintElement(p, indent + Deep() + "  ", reduces);
    CloseInner(indent);
    for (const auto& [node, acc] : reduces) {
      const ir::DType dtype = body_.type(node->inputs[0]).dtype;
      const std::string& kind = node->attributes.String("kind");
      const ir::ValueId out = node->outputs[0];
      std::string value = acc;
      if (TracksNan(kind, dtype)) {
        value = fmt::format("{}n ? {} : {}", acc, FloatLiteral(dtype, NAN), acc);
      }
      text_ += fmt::format("{}const {} v{} = {};\n", indent, CType(dtype), out.index, value);
      for (const Terminal& t : terminals_) {
        if (body_.results()[static_cast<size_t>(t.result)].value == out) {
          text_ +=
              indent + ReduceStep(t.kind, dtype, fmt::format("t{}", t.result), Name(out)) + "\n";
        }
      }
    }
  }
  static bool TracksNan(const std::string& kind, ir::DType dtype) {
    return ir::IsFloat(dtype) && (kind == "max" || kind == "min");
  }

  void PrintElement(int p, const std::string& indent,
                    const std::vector<std::pair<const ir::Node*, std::string>>& reduces) {
    const std::vector<bool>& needed = needed_[static_cast<size_t>(p)];
    const std::string buffer_at = inner_.size() > 1 ? "base + i" : "i";
    for (const ir::Argument& a : body_.arguments()) {
      if (needed[I(a.value)]) Compute(a.value, indent, "i");
    }
    for (ir::NodeId id : body_.order()) {
      const ir::ValueId v = body_.node(id).outputs[0];
      if (!needed[I(v)]) continue;
      if (buffered_[I(v)] && phase_[I(v)] < p) {
        text_ += fmt::format("{}const {} v{} = b{}[{}];\n", indent, Type(v), v.index, v.index,
                             buffer_at);
        continue;
      }
      Compute(v, indent, "i");
      if (buffered_[I(v)]) {
        text_ += fmt::format("{}b{}[{}] = v{};\n", indent, v.index, buffer_at, v.index);
      }
    }
    for (const auto& [node, acc] : reduces) {
      const ir::DType dtype = body_.type(node->inputs[0]).dtype;
      const std::string& kind = node->attributes.String("kind");
      const std::string x = Name(node->inputs[0]);
      if (TracksNan(kind, dtype)) {
        text_ += fmt::format("{0}{1}n |= {2} != {2};\n", indent, acc, x);
        text_ += fmt::format("{0}{1} = {2} {3} {1} ? {2} : {1};\n", indent, acc, x,
                             kind == "max" ? ">" : "<");
      } else {
        text_ += indent + ReduceStep(kind, dtype, acc, x) + "\n";
      }
    }
    for (const Terminal& t : terminals_) {
      if (!t.column || phase_[I(t.input)] != p) continue;
      const std::string at = fmt::format("z{}[{}]", t.result, Element(nest_.reads() + t.result));
      text_ += indent + ReduceStep(t.kind, body_.type(t.input).dtype, at, Name(t.input)) + "\n";
    }
    for (int r = 0; r < static_cast<int>(body_.results().size()); ++r) {
      const ir::ValueId v = body_.results()[static_cast<size_t>(r)].value;
      if (!IsFullStore(r) || phase_[I(v)] != p) continue;
      const int operand = nest_.reads() + r;
      const bool add = operands_[static_cast<size_t>(operand)].access == lower::Access::kAccumulate;
      text_ += fmt::format("{}q{}[{}] {}= {};\n", indent, operand, Element(operand), add ? "+" : "",
                           Name(v));
    }
  }

  int current_phase_ = 0;
  std::string text_;
};

}  // namespace

Result<std::string> EmitRows(const lower::GeneratedKernel& kernel,
                             const std::vector<lower::Operand>& operands) {
  HYPER_ASSIGN_OR_RETURN(Nest nest, AnalyzeNest(kernel.body, operands));
  return RowsEmitter(std::move(nest), operands).Run();
}

}  // namespace hyper::codegen
