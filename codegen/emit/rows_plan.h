// How a "rows" kernel is cut into loops and phases: which axes are walked per row, at which level
// (once, per row, per element) and in which phase each value is computed, what is buffered.
// Thread safety: none.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codegen/emit/nest.h"
#include "codegen/emit/scalar.h"
#include "ir/op_def.h"

namespace hyper::codegen {

inline constexpr int64_t kBlock = 4096;  // elements of a row piece where long rows are cut
inline constexpr int kBufferCost = 8;    // recompute below, buffer from here on
inline constexpr int64_t kBufferBytes = 512 << 10;  // of stack that row buffers may take together

// A reduction over rows: partial results, one per chunk.
struct Terminal {
  int result = 0;  // index among the body's results
  ir::ValueId input;
  std::string kind;
  bool column = false;
};

class RowsPlan {
 public:
  RowsPlan(Nest nest, const std::vector<lower::Operand>& operands)
      : nest_(std::move(nest)), body_(*nest_.body), operands_(operands) {}
  Status Plan() {
    HYPER_RETURN_IF_ERROR(Classify());
    HYPER_RETURN_IF_ERROR(ChooseLoops());
    ComputeLevels();
    ChooseBuffers();
    return {};
  }

 protected:
  static size_t I(ir::ValueId v) { return static_cast<size_t>(v.index); }
  const ir::Node* Producer(ir::ValueId v) const {
    const ir::NodeId id = body_.value(v).producer;
    return id.valid() ? &body_.node(id) : nullptr;
  }
  bool IsOp(ir::ValueId v, std::string_view op) const {
    const ir::Node* node = Producer(v);
    return node != nullptr && node->op->name == op;
  }
  std::string Type(ir::ValueId v) const { return CType(body_.type(v).dtype); }

  Status Classify() {
    terminal_value_.assign(static_cast<size_t>(body_.value_count()), false);
    for (int r = 0; r < static_cast<int>(body_.results().size()); ++r) {
      if (!nest_.IsPartial(r)) continue;
      const ir::ValueId v = body_.results()[static_cast<size_t>(r)].value;
      if (!IsOp(v, "reduce")) return Internal("partial result that is no reduction");
      Terminal t{r, Producer(v)->inputs[0], Producer(v)->attributes.String("kind"), false};
      t.column = body_.type(v).rank() > 0;
      if (t.column) kept_ |= nest_.set_of[I(v)];
      terminal_value_[I(v)] = true;
      terminals_.push_back(t);
      const int64_t chunks = nest_.operand(nest_.reads() + r).view.type.dims[0];
      if (chunks_ != 0 && chunks_ != chunks) return Internal("partial results of unequal chunks");
      chunks_ = chunks;
    }
    for (ir::NodeId id : body_.order()) {
      const ir::Node& node = body_.node(id);
      if (node.op->name != "reduce" || terminal_value_[I(node.outputs[0])]) continue;
      const AxisSet axes = nest_.set_of[I(node.inputs[0])] & ~nest_.set_of[I(node.outputs[0])];
      if (has_row_reduce_ && axes != row_axes_) return Internal("row reductions over unequal axes");
      has_row_reduce_ = true;
      row_axes_ = axes;
    }
    return {};
  }

  Status ChooseLoops() {
    const std::vector<int> order = AxesByStride(nest_);
    const auto pick = [&](AxisSet set) {
      std::vector<int> axes;
      for (int a : order)
        if ((set >> a & 1) != 0) axes.push_back(a);
      return axes;
    };
    const AxisSet all =
        nest_.space.size() == 32 ? ~AxisSet{0} : (AxisSet{1} << nest_.space.size()) - 1;
    if (has_row_reduce_) {
      if (kept_ != 0 && kept_ != row_axes_) return Internal("column sums beside other row sums");
      inner_ = MakeLoops(nest_, pick(row_axes_));
      outer_ = MakeLoops(nest_, pick(all & ~row_axes_));
    } else if (kept_ != 0) {
      AxisSet inner = 0;
      for (size_t i = order.size(); i-- > 0;) {
        const AxisSet bit = AxisSet{1} << order[i];
        if ((kept_ & bit) == 0 && nest_.space[static_cast<size_t>(order[i])] != 1) break;
        inner |= bit & kept_;
      }
      inner_ = MakeLoops(nest_, pick(inner));
      kept_outer_ = MakeLoops(nest_, pick(kept_ & ~inner));
      outer_ = MakeLoops(nest_, pick(all & ~kept_));
    } else {
      outer_ = MakeLoops(nest_, order);
      if (!outer_.empty()) {
        inner_.push_back(outer_.back());
        outer_.pop_back();
        if (inner_[0].extent > 2 * kBlock) blocks_ = (inner_[0].extent + kBlock - 1) / kBlock;
      }
    }
    if (inner_.empty()) {
      inner_.push_back(Loop{1, 0, std::vector<int64_t>(static_cast<size_t>(nest_.streams), 0)});
    }
    row_elements_ = blocks_ > 1 ? kBlock : 1;
    if (blocks_ == 1)
      for (const Loop& l : inner_) row_elements_ *= l.extent;
    inner_axes_ = 0;
    for (const Loop& l : inner_) inner_axes_ |= l.axes;
    return {};
  }

  // level: 0 once, 1 per row, 2 per element; phase: how many row loops must have ended before.
  void ComputeLevels() {
    const size_t n = static_cast<size_t>(body_.value_count());
    level_.assign(n, 0);
    phase_.assign(n, 0);
    cost_.assign(n, 1);
    used_.assign(n, false);
    AxisSet outer_axes = 0;
    for (const Loop& l : outer_) outer_axes |= l.axes;
    for (const Loop& l : kept_outer_) outer_axes |= l.axes;
    const auto level_of = [&](AxisSet set) {
      return (set & inner_axes_) != 0 ? 2 : (set & outer_axes) != 0 ? 1 : 0;
    };
    for (const ir::Argument& a : body_.arguments()) {
      level_[I(a.value)] = level_of(nest_.depends[I(a.value)]);
    }
    for (ir::NodeId id : body_.order()) {
      const ir::Node& node = body_.node(id);
      const size_t out = I(node.outputs[0]);
      int cost = 1;
      for (ir::ValueId v : node.inputs) {
        level_[out] = std::max(level_[out], level_[I(v)]);
        phase_[out] = std::max(phase_[out], phase_[I(v)]);
        if (level_[I(v)] == 2) cost += cost_[I(v)];
      }
      if (node.op->name == "map") cost += ExprCost(node.attributes.GetExpr("expr"));
      if (nest_.stream_of_node[out] >= 0) {
        level_[out] = std::max(level_[out], level_of(nest_.depends[out]));
        if (node.op->name == "random_uniform") cost += 20;
      }
      if (node.op->name == "reduce") {
        level_[out] = 1;
        phases_ = std::max(phases_, phase_[out] + 1);
        if (!terminal_value_[out]) phase_[out] += 1;
        cost = 1;
      }
      if (node.op->name == "broadcast") cost -= 1;
      cost_[out] = cost;
      phases_ = std::max(phases_, phase_[out] + 1);
    }
    for (const ir::FunctionResult& r : body_.results()) used_[I(r.value)] = true;
    for (size_t k = body_.order().size(); k-- > 0;) {
      const ir::Node& node = body_.node(body_.order()[k]);
      if (!used_[I(node.outputs[0])]) continue;
      for (ir::ValueId v : node.inputs) used_[I(v)] = true;
    }
  }

  bool IsFullStore(int result) const {
    const ir::ValueId v = body_.results()[static_cast<size_t>(result)].value;
    return !nest_.IsPartial(result) &&
           ((nest_.set_of[I(v)] & inner_axes_) != 0 || (!has_row_reduce_ && kept_ == 0));
  }

  // Values that the vector loop of `phase` computes as ends, in order.
  std::vector<ir::ValueId> Roots(int phase) const {
    std::vector<ir::ValueId> roots;
    for (ir::NodeId id : body_.order()) {
      const ir::Node& node = body_.node(id);
      if (node.op->name != "reduce" || !used_[I(node.outputs[0])]) continue;
      const ir::ValueId in = node.inputs[0];
      if (phase_[I(in)] == phase && !(terminal_value_[I(node.outputs[0])] && IsRowTotal(in))) {
        roots.push_back(in);
      }
    }
    for (int r = 0; r < static_cast<int>(body_.results().size()); ++r) {
      const ir::ValueId v = body_.results()[static_cast<size_t>(r)].value;
      if (IsFullStore(r) && phase_[I(v)] == phase) roots.push_back(v);
    }
    return roots;
  }
  // The input of a terminal that sums row values, not elements.
  bool IsRowTotal(ir::ValueId in) const {
    return has_row_reduce_ && (nest_.set_of[I(in)] & row_axes_) == 0;
  }

  void Need(ir::ValueId v, int phase, std::vector<bool>& needed) {
    if (level_[I(v)] < 2 || needed[I(v)]) return;
    needed[I(v)] = true;
    const ir::Node* node = Producer(v);
    if (node == nullptr) return;
    if (phase_[I(v)] < phase && (buffered_[I(v)] || WantsBuffer(v))) {
      buffered_[I(v)] = true;
      return;
    }
    for (ir::ValueId in : node->inputs) Need(in, phase, needed);
  }
  bool WantsBuffer(ir::ValueId v) {
    if (IsOp(v, "broadcast") || cost_[I(v)] < kBufferCost) return false;
    const int64_t bytes = row_elements_ * ir::DTypeBytes(body_.type(v).dtype);
    if (buffer_bytes_ + bytes > kBufferBytes) return false;
    buffer_bytes_ += bytes;
    return true;
  }
  void ChooseBuffers() {
    const size_t n = static_cast<size_t>(body_.value_count());
    buffered_.assign(n, false);
    needed_.assign(static_cast<size_t>(phases_), std::vector<bool>(n, false));
    for (int p = phases_; p-- > 0;) {
      std::vector<bool>& needed = needed_[static_cast<size_t>(p)];
      for (ir::ValueId v : Roots(p)) Need(v, p, needed);
      for (size_t v = 0; v < n; ++v) {
        const ir::ValueId id{static_cast<int32_t>(v)};
        if (buffered_[v] && phase_[v] == p) Need(id, p, needed);
      }
    }
  }

  Nest nest_;
  const ir::Function& body_;
  const std::vector<lower::Operand>& operands_;
  std::vector<Terminal> terminals_;
  std::vector<bool> terminal_value_;
  int64_t chunks_ = 0;
  bool has_row_reduce_ = false;
  AxisSet row_axes_ = 0;  // reduced per row
  AxisSet kept_ = 0;      // axes of column sums
  std::vector<Loop> kept_outer_, outer_, inner_;
  AxisSet inner_axes_ = 0;
  int64_t blocks_ = 1;  // pieces of the vector loop
  int64_t row_elements_ = 1;
  std::vector<int> level_, phase_, cost_;
  std::vector<bool> used_, buffered_;
  std::vector<std::vector<bool>> needed_;
  int64_t buffer_bytes_ = 0;
  int phases_ = 1;
};

}  // namespace hyper::codegen
