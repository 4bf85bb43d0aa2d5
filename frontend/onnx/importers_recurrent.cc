// LSTM, GRU and RNN: the inputs of all time steps in one contraction, then the steps one by one.
// The equations are those of the ONNX operator documents; sequences of different lengths keep their
// state behind their end, which serves both directions.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/strings.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

struct Activation {
  std::string name;  // lower case
  double alpha = 0;
  double beta = 0;
};

// What an activation takes, and the defaults of the corresponding ONNX operators.
struct ActivationKind {
  std::string_view name;
  bool alpha, beta;
  double default_alpha, default_beta;
};
constexpr ActivationKind kActivations[] = {
    {"relu", false, false, 0, 0},        {"tanh", false, false, 0, 0},
    {"sigmoid", false, false, 0, 0},     {"softsign", false, false, 0, 0},
    {"softplus", false, false, 0, 0},    {"affine", true, true, 1, 0},
    {"leakyrelu", true, false, 0.01, 0}, {"thresholdedrelu", true, false, 1, 0},
    {"scaledtanh", true, true, 1, 1},    {"hardsigmoid", true, true, 0.2, 0.5},
    {"elu", true, false, 1, 0},
};

int Activate(ExprBuilder& e, const Activation& f, DType t, int x) {
  const auto number = [&](double v) { return e.Constant(t, v); };
  const auto scaled = [&](int y) { return e.Binary(ScalarOp::kMul, number(f.alpha), y); };
  const auto positive = [&] { return e.Binary(ScalarOp::kGt, x, number(0)); };
  if (f.name == "relu") return e.Binary(ScalarOp::kMax, x, number(0));
  if (f.name == "tanh") return e.Unary(ScalarOp::kTanh, x);
  if (f.name == "sigmoid") return e.Unary(ScalarOp::kSigmoid, x);
  if (f.name == "affine") return e.Binary(ScalarOp::kAdd, scaled(x), number(f.beta));
  if (f.name == "leakyrelu") return e.Select(positive(), x, scaled(x));
  if (f.name == "thresholdedrelu") {
    return e.Select(e.Binary(ScalarOp::kGt, x, number(f.alpha)), x, number(0));
  }
  if (f.name == "scaledtanh") {
    return scaled(e.Unary(ScalarOp::kTanh, e.Binary(ScalarOp::kMul, number(f.beta), x)));
  }
  if (f.name == "hardsigmoid") {
    const int line = e.Binary(ScalarOp::kAdd, scaled(x), number(f.beta));
    return e.Binary(ScalarOp::kMin, e.Binary(ScalarOp::kMax, line, number(0)), number(1));
  }
  if (f.name == "elu") return e.Select(positive(), x, scaled(e.Unary(ScalarOp::kExpm1, x)));
  const int magnitude = e.Unary(ScalarOp::kAbs, x);
  if (f.name == "softsign") {
    return e.Binary(ScalarOp::kDiv, x, e.Binary(ScalarOp::kAdd, number(1), magnitude));
  }
  // Softplus, without overflow.
  return e.Binary(
      ScalarOp::kAdd, e.Binary(ScalarOp::kMax, x, number(0)),
      e.Unary(ScalarOp::kLog1p, e.Unary(ScalarOp::kExp, e.Unary(ScalarOp::kNeg, magnitude))));
}

class Recurrent {
 public:
  // `gates`: blocks of W and R; `defaults`: activations of one direction; slots of operands that
  // not every operator has are -1.
  Recurrent(NodeContext& c, int64_t gates, std::vector<std::string> defaults, int cell_slot,
            int peephole_slot)
      : c_(c),
        gates_(gates),
        cell_slot_(cell_slot),
        peephole_slot_(peephole_slot),
        batch_first_(c.Int("layout", 0) != 0),
        dtype_(c.Type(0).dtype),
        clip_(c.Attribute("clip") == nullptr ? 0 : c.Float("clip", 0)) {
    const std::string direction = c.String("direction", "forward");
    if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
      Fail(fmt::format("direction '{}'; forward, reverse or bidirectional is expected", direction));
    }
    directions_ = direction == "bidirectional" ? 2 : 1;
    first_reversed_ = direction == "reverse";
    CheckShapes();
    ReadActivations(std::move(defaults));
    if (c.Has(4)) ReadLengths();
  }

  void Run() {
    std::vector<ValueId> all;
    std::vector<ValueId> last;
    std::vector<ValueId> cells;
    for (int64_t d = 0; d < directions_; ++d) {
      direction_ = d;
      const bool reversed = first_reversed_ || d == 1;
      PrepareDirection();
      const std::vector<ValueId> rows = Steps(reversed);
      if (c_.HasOutput(0))
        all.push_back(rows.size() == 1 ? rows[0] : c_.Add1("concat", rows, {{"axis", int64_t{0}}}));
      last.push_back(c_.Reshape(state_, {1, batch_, hidden_}));
      if (cell_.valid()) cells.push_back(c_.Reshape(cell_, {1, batch_, hidden_}));
    }
    const auto join = [&](const std::vector<ValueId>& parts, int64_t axis) {
      return parts.size() == 1 ? parts[0] : c_.Add1("concat", parts, {{"axis", axis}});
    };
    if (c_.HasOutput(0)) {  // [time, directions, batch, hidden]
      const ValueId y = join(all, 1);
      c_.Out(0, batch_first_ ? c_.b().Transpose(y, {2, 0, 1, 3}) : y);
    }
    const auto final_state = [&](int i, const std::vector<ValueId>& parts) {
      if (!c_.HasOutput(i)) return;
      const ValueId y = join(parts, 0);
      c_.Out(i, batch_first_ ? c_.b().Transpose(y, {1, 0, 2}) : y);
    };
    final_state(1, last);
    final_state(2, cells);
  }

 private:
  void Expect(int slot, const Dims& want) {
    if (!c_.Has(slot)) return;
    if (c_.Shape(slot) != want) {
      Fail(fmt::format("operand {} has shape {}, expected {}", slot, FormatDims(c_.Shape(slot)),
                       FormatDims(want)));
    }
  }

  void CheckShapes() {
    if (c_.Type(0).rank() != 3) Fail("X must have rank 3");
    if (c_.Type(2).rank() != 3) Fail("R must have rank 3");
    steps_ = c_.Shape(0)[batch_first_ ? 1 : 0];
    batch_ = c_.Shape(0)[batch_first_ ? 0 : 1];
    input_ = c_.Shape(0)[2];
    hidden_ = c_.Shape(2)[2];
    if (c_.Int("hidden_size", hidden_) != hidden_) {
      Fail(fmt::format("hidden_size is {}, R has {}", c_.Int("hidden_size", 0), hidden_));
    }
    if (steps_ < 1) Fail("the sequence has no time step");
    if (steps_ > kMaxUnrolledNodes || !c_.services().reserve_nodes(directions_ * steps_ * 4)) {
      Unsupported(fmt::format("unrolling {} time steps makes too many nodes", steps_));
    }
    Expect(1, {directions_, gates_ * hidden_, input_});
    Expect(2, {directions_, gates_ * hidden_, hidden_});
    Expect(3, {directions_, 2 * gates_ * hidden_});
    Expect(4, {batch_});
    const Dims state =
        batch_first_ ? Dims{batch_, directions_, hidden_} : Dims{directions_, batch_, hidden_};
    Expect(5, state);
    if (cell_slot_ >= 0) Expect(cell_slot_, state);
    if (peephole_slot_ >= 0) Expect(peephole_slot_, {directions_, 3 * hidden_});
  }

  void ReadActivations(std::vector<std::string> defaults) {
    const size_t each = defaults.size();
    std::vector<std::string> names;
    if (const auto* a = c_.Attribute("activations"); a != nullptr && a->strings_size() > 0) {
      names.assign(a->strings().begin(), a->strings().end());
    } else {
      for (int64_t d = 0; d < directions_; ++d) {
        names.insert(names.end(), defaults.begin(), defaults.end());
      }
    }
    if (names.size() != each * static_cast<size_t>(directions_)) {
      Fail(fmt::format("{} activations, expected {}", names.size(),
                       each * static_cast<size_t>(directions_)));
    }
    // Values are taken in order by the activations that have use for one.
    const auto list = [&](std::string_view name) {
      const auto* a = c_.Attribute(name);
      return a == nullptr ? std::vector<float>()
                          : std::vector<float>(a->floats().begin(), a->floats().end());
    };
    const std::vector<float> alphas = list("activation_alpha");
    const std::vector<float> betas = list("activation_beta");
    size_t next_alpha = 0;
    size_t next_beta = 0;
    for (std::string name : names) {
      const std::string given = name;
      for (char& ch : name) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
      const auto kind = std::find_if(std::begin(kActivations), std::end(kActivations),
                                     [&](const ActivationKind& k) { return k.name == name; });
      if (kind == std::end(kActivations)) Fail(fmt::format("activation '{}' is unknown", given));
      Activation f{name, kind->default_alpha, kind->default_beta};
      if (kind->alpha && next_alpha < alphas.size()) f.alpha = alphas[next_alpha++];
      if (kind->beta && next_beta < betas.size()) f.beta = betas[next_beta++];
      activations_.push_back(f);
    }
    activations_each_ = each;
  }

  // [batch, hidden] of i32, where the sequences differ in length.
  void ReadLengths() {
    if (const ir::HostTensor* known = c_.Known(4); known != nullptr) {
      bool whole = true;
      for (int64_t n = 0; n < batch_; ++n) {
        const int64_t length = known->ElementAsInt(n);
        if (length < 0 || length > steps_) {
          Fail(fmt::format("sequence length {} of {} steps", length, steps_));
        }
        whole = whole && length == steps_;
      }
      if (whole) return;
    }
    lengths_ = c_.b().Broadcast(c_.In(4), {batch_, hidden_}, {0});
  }

  ValueId Slice(ValueId x, int axis, int64_t start, int64_t limit) {
    Dims starts(c_.b().type(x).dims.size(), 0);
    Dims limits = c_.b().type(x).dims;
    const size_t at = static_cast<size_t>(axis);
    if (start == 0 && limit == limits[at]) return x;
    starts[at] = start;
    limits[at] = limit;
    return c_.Add1("slice", {x},
                   {{"starts", starts}, {"limits", limits}, {"strides", Dims(starts.size(), 1)}});
  }

  // Part of this direction of operand `slot`, without the dim of the directions.
  ValueId OfDirection(int slot, int axis = 0) {
    Dims dims = c_.Shape(slot);
    dims.erase(dims.begin() + axis);
    return c_.Reshape(Slice(c_.In(slot), axis, direction_, direction_ + 1), dims);
  }

  const Activation& F(size_t i) const {
    return activations_[static_cast<size_t>(direction_) * activations_each_ + i];
  }
  int Apply(ExprBuilder& e, size_t i, int x) const {
    if (clip_ > 0) {
      x = e.Binary(ScalarOp::kMin, e.Binary(ScalarOp::kMax, x, e.Constant(dtype_, -clip_)),
                   e.Constant(dtype_, clip_));
    }
    return Activate(e, F(i), dtype_, x);
  }

  ValueId Wide(ValueId vector) {  // [n] -> [batch, n]
    return c_.b().Broadcast(vector, {batch_, c_.b().type(vector).dims[0]}, {1});
  }

  ValueId InitialState(int slot) {
    return c_.Has(slot) ? OfDirection(slot, batch_first_ ? 1 : 0)
                        : c_.b().Splat(dtype_, {batch_, hidden_}, 0);
  }

  void PrepareDirection() {
    const int64_t rows = gates_ * hidden_;
    recurrent_ = OfDirection(2);
    projection_ =
        c_.b().Dot(batch_first_ ? "bti,ni->tbn" : "tbi,ni->tbn", c_.In(0), OfDirection(1));
    recurrent_bias_ = {};
    if (c_.Has(3)) {
      const ValueId bias = OfDirection(3);
      ValueId input_bias = Slice(bias, 0, 0, rows);
      recurrent_bias_ = Slice(bias, 0, rows, 2 * rows);
      if (!SeparateBias()) {
        input_bias = c_.b().Binary(ScalarOp::kAdd, input_bias, recurrent_bias_);
        recurrent_bias_ = {};
      }
      projection_ = c_.b().Binary(ScalarOp::kAdd, projection_,
                                  c_.b().Broadcast(input_bias, {steps_, batch_, rows}, {2}));
    }
    state_ = InitialState(5);
    cell_ = cell_slot_ >= 0 ? InitialState(cell_slot_) : ValueId();
    peepholes_ = {};
    if (peephole_slot_ >= 0 && c_.Has(peephole_slot_)) {
      const ValueId p = OfDirection(peephole_slot_);
      for (int64_t k = 0; k < 3; ++k) {
        peepholes_.push_back(Wide(Slice(p, 0, k * hidden_, (k + 1) * hidden_)));
      }
    }
  }

  // The bias of R must be told from that of W.
  bool SeparateBias() const { return gates_ == 3 && c_.Int("linear_before_reset", 0) != 0; }

  // Rows of Y in time order, [1, 1, batch, hidden] each; leaves the last state and cell.
  std::vector<ValueId> Steps(bool reversed) {
    std::vector<ValueId> rows(static_cast<size_t>(steps_));
    for (int64_t k = 0; k < steps_; ++k) {
      const int64_t t = reversed ? steps_ - 1 - k : k;
      const ValueId x = c_.Reshape(Slice(projection_, 0, t, t + 1), {batch_, gates_ * hidden_});
      ValueId cell = cell_;
      const ValueId state = gates_ == 4   ? LstmStep(x, &cell)
                            : gates_ == 3 ? GruStep(x)
                                          : RnnStep(x);
      ValueId row = state;
      if (lengths_.valid()) {
        row = Inside(t, state, c_.b().Splat(dtype_, {batch_, hidden_}, 0));
        state_ = Inside(t, state, state_);
        if (cell.valid()) cell_ = Inside(t, cell, cell_);
      } else {
        state_ = state;
        cell_ = cell;
      }
      if (c_.HasOutput(0)) rows[static_cast<size_t>(t)] = c_.Reshape(row, {1, 1, batch_, hidden_});
    }
    return rows;
  }

  // `inside` for the sequences that have a step `t`, else `outside`.
  ValueId Inside(int64_t t, ValueId inside, ValueId outside) {
    const DType integer = c_.b().type(lengths_).dtype;
    return c_.MapValues({lengths_, inside, outside}, [&](ExprBuilder& e, Args a) {
      return e.Select(e.Binary(ScalarOp::kGt, a[0], e.ConstantInt(integer, t)), a[1], a[2]);
    });
  }

  ValueId Gate(ValueId pre, int64_t k) { return Slice(pre, 1, k * hidden_, (k + 1) * hidden_); }

  ValueId RnnStep(ValueId x) {
    return c_.MapValues(
        {x, c_.b().Dot("bh,nh->bn", state_, recurrent_)},
        [&](ExprBuilder& e, Args a) { return Apply(e, 0, e.Binary(ScalarOp::kAdd, a[0], a[1])); });
  }

  // Gates in the order i, o, f, c.
  ValueId LstmStep(ValueId x, ValueId* cell) {
    const ValueId pre =
        c_.b().Binary(ScalarOp::kAdd, x, c_.b().Dot("bh,nh->bn", state_, recurrent_));
    const bool peep = !peepholes_.empty();
    const bool coupled = c_.Int("input_forget", 0) != 0;
    const auto peeped = [&](ExprBuilder& e, int gate, int p, int of) {
      return e.Binary(ScalarOp::kAdd, gate, e.Binary(ScalarOp::kMul, p, of));
    };
    std::vector<ValueId> operands = {Gate(pre, 0), Gate(pre, 3), *cell};
    if (!coupled) operands.push_back(Gate(pre, 2));
    const size_t first = operands.size();
    if (peep) {
      operands.push_back(peepholes_[0]);
      if (!coupled) operands.push_back(peepholes_[2]);
    }
    *cell = c_.MapValues(operands, [&](ExprBuilder& e, Args a) {
      const int in = Apply(e, 0, peep ? peeped(e, a[0], a[first], a[2]) : a[0]);
      const int forget = coupled ? e.Binary(ScalarOp::kSub, e.Constant(dtype_, 1), in)
                                 : Apply(e, 0, peep ? peeped(e, a[3], a[first + 1], a[2]) : a[3]);
      return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, forget, a[2]),
                      e.Binary(ScalarOp::kMul, in, Apply(e, 1, a[1])));
    });
    operands = {Gate(pre, 1), *cell};
    if (peep) operands.push_back(peepholes_[1]);
    return c_.MapValues(operands, [&](ExprBuilder& e, Args a) {
      const int out = Apply(e, 0, peep ? peeped(e, a[0], a[2], a[1]) : a[0]);
      // The cell's activation takes it unclipped.
      return e.Binary(ScalarOp::kMul, out, Activate(e, F(2), dtype_, a[1]));
    });
  }

  // Gates in the order z, r, h.
  ValueId GruStep(ValueId x) {
    const bool linear_first = c_.Int("linear_before_reset", 0) != 0;
    const int64_t two = 2 * hidden_;
    const auto sum = [&](ValueId a, ValueId b) { return c_.b().Binary(ScalarOp::kAdd, a, b); };
    ValueId hidden;  // the candidate's part of the state
    ValueId zr;
    if (linear_first) {
      ValueId recurrent = c_.b().Dot("bh,nh->bn", state_, recurrent_);
      if (recurrent_bias_.valid()) recurrent = sum(recurrent, Wide(recurrent_bias_));
      zr = sum(Slice(x, 1, 0, two), Slice(recurrent, 1, 0, two));
      const ValueId r = Gate(zr, 1);
      hidden = c_.MapValues({r, Gate(recurrent, 2)}, [&](ExprBuilder& e, Args a) {
        return e.Binary(ScalarOp::kMul, Apply(e, 0, a[0]), a[1]);
      });
    } else {
      zr = sum(Slice(x, 1, 0, two), c_.b().Dot("bh,nh->bn", state_, Slice(recurrent_, 0, 0, two)));
      const ValueId reset = c_.MapValues({Gate(zr, 1), state_}, [&](ExprBuilder& e, Args a) {
        return e.Binary(ScalarOp::kMul, Apply(e, 0, a[0]), a[1]);
      });
      hidden = c_.b().Dot("bh,nh->bn", reset, Slice(recurrent_, 0, two, 3 * hidden_));
    }
    return c_.MapValues({Gate(zr, 0), Gate(x, 2), hidden, state_}, [&](ExprBuilder& e, Args a) {
      const int z = Apply(e, 0, a[0]);
      const int h = Apply(e, 1, e.Binary(ScalarOp::kAdd, a[1], a[2]));
      const int rest = e.Binary(ScalarOp::kSub, e.Constant(dtype_, 1), z);
      return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, rest, h),
                      e.Binary(ScalarOp::kMul, z, a[3]));
    });
  }

  NodeContext& c_;
  int64_t gates_;
  int cell_slot_;
  int peephole_slot_;
  bool batch_first_;
  DType dtype_;
  double clip_;
  bool first_reversed_ = false;
  int64_t directions_ = 1, steps_ = 0, batch_ = 0, input_ = 0, hidden_ = 0;
  std::vector<Activation> activations_;  // of all directions
  size_t activations_each_ = 0;
  ValueId lengths_;
  // Of the direction at hand.
  int64_t direction_ = 0;
  ValueId projection_, recurrent_, recurrent_bias_, state_, cell_;
  std::vector<ValueId> peepholes_;  // i, o, f
};

void Lstm(NodeContext& c) { Recurrent(c, 4, {"Sigmoid", "Tanh", "Tanh"}, 6, 7).Run(); }
void Gru(NodeContext& c) { Recurrent(c, 3, {"Sigmoid", "Tanh"}, -1, -1).Run(); }
void Rnn(NodeContext& c) { Recurrent(c, 1, {"Tanh"}, -1, -1).Run(); }

}  // namespace

void RegisterRecurrentImporters(ImportTable& t) {
  const std::string_view doc =
      "dot for the inputs of all steps, then dot, slices and maps per step";
  t.Add({"LSTM", 7, 22, Lstm, doc, {}, {1, 2, 3, 7}});
  t.Add({"GRU", 7, 22, Gru, doc, {}, {1, 2, 3}});
  t.Add({"RNN", 7, 22, Rnn, doc, {}, {1, 2, 3}});
}

}  // namespace hyper::onnx_frontend
