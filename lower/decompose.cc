#include "lower/decompose.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <variant>

#include "ir/text_values.h"

namespace hyper::lower {
namespace {

using ir::Function;
using ir::Node;
using ir::NodeId;
using ir::ScalarOp;
using ir::ValueId;

class Rewriter {
 public:
  Rewriter(const Function& from, StepVariant variant, bool keep_ops)
      : from_(from), variant_(variant), keep_ops_(keep_ops), to_(from.name()), b_(&to_) {}

  Result<Function> Run() {
    CountUses();
    map_.resize(static_cast<size_t>(from_.value_count()));
    for (const ir::Argument& a : from_.arguments()) {
      map_[I(a.value)] = to_.AddArgument(from_.type(a.value), a.kind, a.name, a.slot);
    }
    for (size_t k = 0; k < from_.order().size(); ++k) Convert(from_.node(from_.order()[k]));
    for (const ir::FunctionResult& r : from_.results()) {
      to_.AddResult(map_[I(r.value)], r.name, r.alias_argument);
    }
    if (!keep_ops_) ShareNumbers();
    RemoveDead();
    return std::move(to_);
  }

 private:
  static size_t I(ValueId v) { return static_cast<size_t>(v.index); }
  const Node* Producer(ValueId v) const {
    const NodeId id = from_.value(v).producer;
    return id.valid() ? &from_.node(id) : nullptr;
  }

  void CountUses() {
    uses_.assign(static_cast<size_t>(from_.value_count()), 0);
    position_.assign(static_cast<size_t>(from_.node_count()), 0);
    int at = 0;
    for (NodeId id : from_.order()) {
      position_[static_cast<size_t>(id.index)] = at++;
      for (ValueId v : from_.node(id).inputs) ++uses_[I(v)];
    }
    for (const ir::FunctionResult& r : from_.results()) ++uses_[I(r.value)];
  }

  void Convert(const Node& node) {
    b_.SetContext(node.role, node.op_id, node.source);
    std::vector<ValueId> in, out;
    for (ValueId v : node.inputs) in.push_back(map_[I(v)]);
    if (keep_ops_) {
      out = Keep(node, in);
    } else if (ComputesOnHalves(node)) {
      for (ValueId& v : in) {
        if (IsHalf(b_.type(v).dtype)) v = b_.Cast(ir::DType::kF32, v);
      }
      out = Expand(Widened(node), in);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = b_.Cast(from_.type(node.outputs[i]).dtype, out[i]);
      }
    } else {
      out = Expand(node, in);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      map_[I(node.outputs[i])] = out[i];
      std::string& name = to_.value(out[i]).name;
      if (name.empty() && to_.value(out[i]).producer.valid()) {
        name = from_.value(node.outputs[i]).name;
      }
    }
  }

  static bool IsHalf(ir::DType dtype) {
    return dtype == ir::DType::kF16 || dtype == ir::DType::kBF16;
  }
  // Sums and library kernels take f32; what moves data or rounds every step takes halves.
  bool ComputesOnHalves(const Node& node) const {
    static const std::set<std::string_view> kTakeHalves = {
        "broadcast", "concat", "constant", "copy",    "gather", "gather_elements",
        "map",       "pad",    "reshape",  "reverse", "slice",  "transpose"};
    if (kTakeHalves.contains(node.op->name)) return false;
    const auto half = [&](ValueId v) { return IsHalf(from_.type(v).dtype); };
    return std::any_of(node.inputs.begin(), node.inputs.end(), half) ||
           std::any_of(node.outputs.begin(), node.outputs.end(), half);
  }
  // The node with f32 where an attribute asks for halves.
  static Node Widened(const Node& node) {
    Node wide = node;
    for (const auto& [name, value] : node.attributes) {
      const auto* dtype = std::get_if<ir::DType>(&value);
      if (dtype != nullptr && IsHalf(*dtype)) wide.attributes.Set(name, ir::DType::kF32);
    }
    return wide;
  }

  std::vector<ValueId> Expand(const Node& node, const std::vector<ValueId>& in) {
    const std::string_view op = node.op->name;
    std::vector<ValueId> out;
    if (op == "accumulate" && variant_ != StepVariant::kPlain) {
      out = {Accumulate(node, in)};
    } else if (op == "copy") {
      out = {Identity(in[0])};
    } else if (DecomposeUpdate(b_, node, in, variant_, &out) ||
               DecomposeNormalization(b_, node, in, &out) || DecomposeSoftmax(b_, node, in, &out)) {
    } else if (const ValueId joined = SumOfPads(node); joined.valid()) {
      out = {joined};
    } else {
      out = b_.Add(op, in, node.attributes);
    }
    return out;
  }

  ValueId Identity(ValueId v) {
    ir::ExprBuilder e;
    return b_.Map(e.Build(e.Input(0, b_.type(v).dtype)), {v});
  }

  std::vector<ValueId> Keep(const Node& node, const std::vector<ValueId>& in) {
    if (variant_ == StepVariant::kFirst && node.op->name == "accumulate") {
      return b_.Add("copy", {in[1]});
    }
    if (variant_ == StepVariant::kFirst && node.op->name == "accumulate_stat") {
      return {b_.BinaryConstant(ScalarOp::kMul, in[1], 1 - node.attributes.Float("momentum"))};
    }
    return b_.Add(node.op->name, in, node.attributes);
  }

  bool IsAdd(ValueId v) const {
    const Node* node = Producer(v);
    return node != nullptr && node->op->name == "map" && node->inputs.size() == 2 &&
           node->attributes.GetExpr("expr").IsSingleOp(ScalarOp::kAdd) &&
           node->attributes.GetExpr("expr").nodes().size() == 3;
  }
  // The summands below v; sums that others read too are not opened.
  void Summands(ValueId v, std::vector<ValueId>* terms) const {
    if (!IsAdd(v) || (uses_[I(v)] != 1)) {
      terms->push_back(v);
      return;
    }
    for (ValueId in : Producer(v)->inputs) Summands(in, terms);
  }
  // The node that computes v and can add to a buffer, seen through transpose and reshape.
  const Node* AccumulatingProducer(ValueId v) const {
    while (uses_[I(v)] == 1) {
      const Node* node = Producer(v);
      if (node == nullptr) return nullptr;
      if (node->op->accumulates && node->outputs.size() == 1) return node;
      if (node->op->name != "transpose" && node->op->name != "reshape") return nullptr;
      v = node->inputs[0];
    }
    return nullptr;
  }
  int Position(ValueId v) const {
    const NodeId id = from_.value(v).producer;
    return id.valid() ? position_[static_cast<size_t>(id.index)] : -1;
  }

  ValueId Accumulate(const Node& node, const std::vector<ValueId>& in) {
    std::vector<ValueId> terms;
    Summands(node.inputs[1], &terms);
    const bool any = std::any_of(terms.begin(), terms.end(),
                                 [&](ValueId t) { return AccumulatingProducer(t) != nullptr; });
    if (!any) terms = {node.inputs[1]};
    std::stable_sort(terms.begin(), terms.end(),
                     [&](ValueId x, ValueId y) { return Position(x) < Position(y); });
    ValueId sum = variant_ == StepVariant::kFirst ? ValueId{} : in[0];
    for (ValueId t : terms) {
      const ValueId value = map_[I(t)];
      if (!sum.valid()) {
        // Later terms are added in place: others must not see that.
        sum = terms.size() > 1 && uses_[I(t)] > 1 ? Identity(value) : value;
      } else if (AccumulatingProducer(t) != nullptr) {
        sum = b_.Add1("accumulate", {sum, value});
      } else {
        sum = b_.Binary(ScalarOp::kAdd, sum, value);
      }
    }
    return sum;
  }

  struct Piece {
    ValueId value;
    int64_t axis, low, high;
  };
  // A pad with zeros at the ends of one axis.
  std::optional<Piece> PadPiece(ValueId v) const {
    const Node* node = Producer(v);
    if (node == nullptr || node->op->name != "pad" || uses_[I(v)] != 1) return std::nullopt;
    const auto& a = node->attributes;
    if (a.String("mode") != "constant" || a.Float("value") != 0) return std::nullopt;
    Piece piece{node->inputs[0], -1, 0, 0};
    const ir::Dims &low = a.GetDims("low"), &high = a.GetDims("high");
    for (size_t d = 0; d < low.size(); ++d) {
      if (a.GetDims("interior")[d] != 0 || low[d] < 0 || high[d] < 0) return std::nullopt;
      if (low[d] == 0 && high[d] == 0) continue;
      if (piece.axis >= 0) return std::nullopt;
      piece.axis = static_cast<int64_t>(d);
      piece.low = low[d];
      piece.high = high[d];
    }
    return piece.axis >= 0 ? std::optional(piece) : std::nullopt;
  }
  // Gradient of a split: zero-padded pieces that tile one axis, added up.
  ValueId SumOfPads(const Node& node) {
    if (node.op->name != "map" || !IsAdd(node.outputs[0])) return {};
    std::vector<ValueId> terms;
    for (ValueId v : node.inputs) Summands(v, &terms);
    std::vector<Piece> pieces;
    for (ValueId t : terms) {
      const std::optional<Piece> piece = PadPiece(t);
      if (!piece || (!pieces.empty() && pieces[0].axis != piece->axis)) return {};
      pieces.push_back(*piece);
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& x, const Piece& y) { return x.low < y.low; });
    const size_t axis = static_cast<size_t>(pieces[0].axis);
    int64_t at = 0;
    std::vector<ValueId> values;
    for (const Piece& p : pieces) {
      if (p.low != at) return {};
      at += from_.type(p.value).dims[axis];
      values.push_back(map_[I(p.value)]);
    }
    if (at != from_.type(node.outputs[0]).dims[axis]) return {};
    return b_.Add1("concat", values, {{"axis", pieces[0].axis}});
  }

  // Update ops derive equal numbers (rates, bias corrections) for every parameter: a kernel each
  // would cost more than it computes, so equal single numbers are computed once.
  void ShareNumbers() {
    std::vector<bool> result(static_cast<size_t>(to_.value_count()), false);
    for (const ir::FunctionResult& r : to_.results()) result[I(r.value)] = true;
    std::map<std::string, ValueId> known;
    std::map<ValueId, ValueId> same;
    for (NodeId id : to_.order()) {
      Node& node = to_.node(id);
      for (ValueId& v : node.inputs) {
        if (const auto it = same.find(v); it != same.end()) v = it->second;
      }
      if (node.op->name != "map" && node.op->name != "constant") continue;
      const ValueId y = node.outputs[0];
      bool numbers = to_.type(y).rank() == 0 && !result[I(y)];
      std::string key(node.op->name);
      for (ValueId v : node.inputs) {
        numbers = numbers && to_.type(v).rank() == 0;
        key += "," + std::to_string(v.index);
      }
      if (!numbers) continue;
      for (const auto& [name, value] : node.attributes) {
        key += ";" + name + "=" + ir::AttributeText(value);
      }
      const auto [it, fresh] = known.emplace(std::move(key), y);
      if (!fresh) same[y] = it->second;
    }
  }

  void RemoveDead() {
    std::vector<bool> live(static_cast<size_t>(to_.value_count()), false);
    for (const ir::FunctionResult& r : to_.results()) live[I(r.value)] = true;
    std::vector<bool> dead(static_cast<size_t>(to_.node_count()), true);
    for (size_t k = to_.order().size(); k-- > 0;) {
      const NodeId id = to_.order()[k];
      const Node& node = to_.node(id);
      bool needed = false;
      for (ValueId v : node.outputs) needed = needed || live[I(v)];
      if (!needed) continue;
      dead[static_cast<size_t>(id.index)] = false;
      for (ValueId v : node.inputs) live[I(v)] = true;
    }
    to_.RemoveNodes(dead);
  }

  const Function& from_;
  StepVariant variant_;
  bool keep_ops_;
  Function to_;
  ir::Builder b_;
  std::vector<ValueId> map_;
  std::vector<int> uses_, position_;
};

}  // namespace

Result<Function> Decompose(const Function& function, StepVariant variant, bool keep_ops) {
  return Guard([&]() -> Result<Function> { return Rewriter(function, variant, keep_ops).Run(); });
}

}  // namespace hyper::lower
