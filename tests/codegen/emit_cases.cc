#include "tests/codegen/emit_cases.h"

#include <fmt/format.h>

#include "ir/builder.h"

namespace hyper::testing {
namespace {

using ir::Attributes;
using ir::Builder;
using ir::Dims;
using ir::DType;
using ir::ScalarOp;
using ir::ValueId;

class Cases {
 public:
  explicit Cases(DType dtype) : dtype_(dtype) {}

  // Starts a case; Arg/Out/op helpers work on it.
  void Begin(std::string name, double tolerance = 1) {
    list.push_back({std::move(name), ir::Function("eval"), tolerance});
    arguments_ = results_ = 0;
  }
  Builder b() { return Builder(&list.back().function); }
  ValueId Arg(Dims dims) { return Arg(dtype_, std::move(dims)); }
  ValueId Arg(DType dtype, Dims dims) {
    return list.back().function.AddArgument({dtype, std::move(dims)}, ir::ArgumentKind::kInput,
                                            fmt::format("x{}", arguments_++));
  }
  ValueId Rng() {
    return list.back().function.AddArgument({DType::kI64, {3}}, ir::ArgumentKind::kRng, "rng");
  }
  void Out(ValueId v) { list.back().function.AddResult(v, fmt::format("y{}", results_++)); }
  void Outs(const std::vector<ValueId>& vs) {
    for (ValueId v : vs) Out(v);
  }
  std::vector<ValueId> Op(std::string_view op, std::vector<ValueId> in, Attributes a = {}) {
    Builder builder = b();
    return builder.Add(op, std::move(in), std::move(a));
  }
  ValueId Op1(std::string_view op, std::vector<ValueId> in, Attributes a = {}) {
    return Op(op, std::move(in), std::move(a))[0];
  }
  // Index values 0..limit-1 that the test's fill makes from "i<limit>" arguments.
  ValueId Index(DType dtype, Dims dims, int64_t limit) {
    return list.back().function.AddArgument({dtype, std::move(dims)}, ir::ArgumentKind::kInput,
                                            fmt::format("i{}_{}", limit, arguments_++));
  }

  void Elementwise();
  void Movement();
  void Reductions();
  void Norms();
  void Windows();
  void Indexing();
  void Contractions();
  void LinearAlgebra();
  void Combined();

  std::vector<EmitCase> list;

 private:
  DType dtype_;
  int arguments_ = 0, results_ = 0;
};

void Cases::Elementwise() {
  for (ScalarOp op :
       {ScalarOp::kNeg, ScalarOp::kAbs, ScalarOp::kSign, ScalarOp::kExp, ScalarOp::kExpm1,
        ScalarOp::kSin, ScalarOp::kCos, ScalarOp::kTan, ScalarOp::kAtan, ScalarOp::kSinh,
        ScalarOp::kCosh, ScalarOp::kTanh, ScalarOp::kAsinh, ScalarOp::kErf, ScalarOp::kSigmoid,
        ScalarOp::kFloor, ScalarOp::kCeil, ScalarOp::kRound}) {
    Begin(fmt::format("unary {}", ir::InfoOf(op).name));
    Out(b().Unary(op, Arg({3, 37})));
  }
  for (ScalarOp op : {ScalarOp::kLog, ScalarOp::kLog1p, ScalarOp::kSqrt, ScalarOp::kRsqrt,
                      ScalarOp::kReciprocal, ScalarOp::kAcosh}) {
    Begin(fmt::format("unary {}", ir::InfoOf(op).name), 4);
    Out(b().Unary(op,
                  b().BinaryConstant(ScalarOp::kAdd, b().Unary(ScalarOp::kAbs, Arg({41})), 1.1)));
  }
  for (ScalarOp op : {ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul, ScalarOp::kDiv,
                      ScalarOp::kMin, ScalarOp::kMax, ScalarOp::kMod, ScalarOp::kFmod}) {
    Begin(fmt::format("binary {}", ir::InfoOf(op).name));
    const ValueId x = Arg({5, 1, 7}), y = Arg({5, 1, 7});
    Out(b().Binary(op, x, y));
    for (DType t : {DType::kI32, DType::kI64, DType::kU8, DType::kI8}) {
      Begin(fmt::format("binary {} {}", ir::InfoOf(op).name, ir::DTypeName(t)));
      const ValueId p = Arg(t, {19}), q = Arg(t, {19});
      Out(b().Binary(op, p, q));
    }
  }
  for (DType t : {DType::kI32, DType::kI64, DType::kU8, DType::kI8}) {
    Begin(fmt::format("bits {}", ir::DTypeName(t)));
    const ValueId p = Arg(t, {19}), q = Arg(t, {19});
    Out(b().Unary(ScalarOp::kNot, p));
    for (ScalarOp op : {ScalarOp::kAnd, ScalarOp::kOr, ScalarOp::kXor, ScalarOp::kShiftLeft,
                        ScalarOp::kShiftRight}) {
      Out(b().Binary(op, p, q));
    }
  }
  for (const auto& [from, to] :
       {std::pair(dtype_, ir::DTypeBytes(dtype_) == 8   ? DType::kI64
                          : ir::DTypeBytes(dtype_) == 4 ? DType::kU32
                                                        : DType::kU16),
        std::pair(DType::kI8, DType::kU8), std::pair(DType::kU8, DType::kBool)}) {
    Begin(fmt::format("bitcast {} to {}", ir::DTypeName(from), ir::DTypeName(to)));
    const ValueId v = Arg(from, {21});
    ir::ExprBuilder e;
    const ValueId bits = b().Map(e.Build(e.Bitcast(to, e.Input(0, from))), {v});
    Out(bits);
    if (to == DType::kBool) continue;
    ir::ExprBuilder back;
    Out(b().Map(back.Build(back.Bitcast(from, back.Input(0, to))), {bits}));
  }
  Begin("compare and select");
  const ValueId x = Arg({17}), y = Arg({17});
  const ValueId c = b().Binary(ScalarOp::kLt, x, y);
  Out(c);
  Out(b().Select(b().Binary(ScalarOp::kOr, c, b().Unary(ScalarOp::kIsNan, y)), x,
                 b().Unary(ScalarOp::kNeg, y)));
  Begin("casts");
  const ValueId z = b().BinaryConstant(ScalarOp::kMul, Arg({33}), 100);
  for (DType t : {DType::kI8, DType::kU8, DType::kI64, DType::kBool, DType::kF32, DType::kF64}) {
    Out(b().Cast(t, z));
  }
  for (double e : {2.0, 3.0, 0.5, -1.0, 1.7}) {
    Begin(fmt::format("pow {}", e), 8);
    Out(b().BinaryConstant(ScalarOp::kPow, b().Unary(ScalarOp::kAbs, Arg({23})), e));
  }
  Begin("large flat map");
  const ValueId big = Arg({20011});
  Out(b().Binary(ScalarOp::kAdd, b().Unary(ScalarOp::kTanh, big), big));
  for (Dims d : {Dims{}, Dims{0}, Dims{3, 0, 2}, Dims{1}, Dims{1, 1}}) {
    Begin(fmt::format("map of rank {} {}", d.size(), d.empty() ? 1 : d[0]));
    const ValueId v = Arg(d);
    Out(b().Binary(ScalarOp::kMul, v, v));
  }
}

void Cases::Movement() {
  Begin("transposed sum");
  const ValueId x = Arg({4, 6, 5}), y = Arg({5, 4, 6});
  Out(b().Binary(ScalarOp::kAdd, b().Transpose(x, {2, 0, 1}), y));
  Begin("square plus its transpose");
  const ValueId s = b().BinaryConstant(ScalarOp::kMul, Arg({6, 6}), 2);
  Out(b().Binary(ScalarOp::kAdd, s, b().Transpose(s, {1, 0})));
  Begin("slices");
  const ValueId z = Arg({7, 9});
  const ValueId cut =
      Op1("slice", {z}, {{"starts", Dims{1, 2}}, {"limits", Dims{6, 9}}, {"strides", Dims{2, 3}}});
  Out(b().Unary(ScalarOp::kExp, cut));
  Out(cut);
  Begin("reshape of a transpose");
  Out(b().Unary(ScalarOp::kNeg, b().Reshape(b().Transpose(Arg({3, 4, 5}), {0, 2, 1}), {15, 4})));
  Begin("reshape between maps");
  const ValueId r = b().Unary(ScalarOp::kExp, Arg({6, 8}));
  Out(b().Binary(ScalarOp::kAdd, b().Reshape(r, {2, 3, 8}), Arg({2, 3, 8})));
  Begin("broadcasts");
  const ValueId row = Arg({5}), col = Arg({4, 1});
  Out(b().Binary(ScalarOp::kMul, b().Broadcast(row, {4, 5}, {1}),
                 b().Broadcast(col, {4, 5}, {0, 1})));
  Begin("reverse");
  Out(Op1("reverse", {Arg({3, 5})}, {{"axes", Dims{1}}}));
  for (const char* mode : {"constant", "edge", "reflect"}) {
    Begin(fmt::format("pad {}", mode));
    Out(Op1("pad", {Arg({4, 5})},
            {{"low", Dims{2, 1}},
             {"high", Dims{0, 3}},
             {"interior", Dims{0, 0}},
             {"value", 1.5},
             {"mode", std::string(mode)}}));
  }
  Begin("pad with interior and crop");
  Out(Op1("pad", {Arg({4, 5})},
          {{"low", Dims{-1, 1}},
           {"high", Dims{2, -2}},
           {"interior", Dims{1, 2}},
           {"value", 0.0},
           {"mode", std::string("constant")}}));
  Begin("concat");
  const ValueId a = Arg({2, 3}), c = Arg({2, 1}), d = b().Unary(ScalarOp::kExp, Arg({2, 4}));
  Out(Op1("concat", {a, c, d}, {{"axis", int64_t{1}}}));
  Begin("sum of pads is a concat");
  const ValueId p = b().Unary(ScalarOp::kExp, Arg({3, 2})),
                q = b().Unary(ScalarOp::kSin, Arg({3, 4}));
  const auto pad = [&](ValueId v, int64_t low, int64_t high) {
    return Op1("pad", {v},
               {{"low", Dims{0, low}},
                {"high", Dims{0, high}},
                {"interior", Dims{0, 0}},
                {"value", 0.0},
                {"mode", std::string("constant")}});
  };
  Out(b().Binary(ScalarOp::kAdd, pad(p, 0, 4), pad(q, 2, 0)));
  Begin("iota and constant");
  const ValueId io =
      Op1("iota", {}, {{"shape", Dims{3, 4}}, {"axis", int64_t{1}}, {"dtype", dtype_}});
  Out(b().Binary(ScalarOp::kAdd, io, Arg({3, 4})));
  Out(Op1("iota", {}, {{"shape", Dims{5}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}}));
  Out(b().Splat(dtype_, {2, 2}, 3));
  Begin("argument returned");
  const ValueId arg = Arg({3, 2});
  Out(Op1("copy", {arg}));
  Out(b().Transpose(arg, {1, 0}));
}

void Cases::Reductions() {
  const std::vector<std::pair<Dims, Dims>> shapes = {
      {{3, 37}, {1}},      {{3, 37}, {0}},     {{3, 37}, {0, 1}}, {{4, 5, 6}, {1}},
      {{4, 5, 6}, {0, 2}}, {{200, 33}, {0}},   {{2000, 40}, {0}}, {{300, 170}, {0, 1}},
      {{50021}, {0}},      {{3, 0}, {1}},      {{0, 3}, {0}},     {{3, 1}, {1}},
      {{1, 1}, {0, 1}},    {{8, 700, 30}, {1}}};
  for (const char* kind : {"sum", "max", "min", "prod"}) {
    for (const auto& [dims, axes] : shapes) {
      if (std::string(kind) == "prod" && ir::ElementCount(dims) > 300) continue;
      Begin(fmt::format("reduce {} {} over {}", kind, fmt::join(dims, "x"), fmt::join(axes, ",")),
            20);
      Out(b().Reduce(kind, Arg(dims), axes));
    }
  }
  Begin("reduce i64 and bool");
  const ValueId i = Arg(DType::kI64, {4, 9});
  Out(b().Reduce("sum", i, {1}));
  const ValueId t = b().BinaryConstant(ScalarOp::kGt, i, 0);
  Out(b().Reduce("and", t, {1}));
  Out(b().Reduce("or", t, {0}));
  Begin("prologue and epilogue", 20);
  const ValueId x = Arg({600, 24});
  const ValueId sum = b().Reduce("sum", b().Binary(ScalarOp::kMul, x, x), {0});
  const ValueId scaled = b().BinaryConstant(ScalarOp::kDiv, sum, 600);
  Out(b().Unary(ScalarOp::kSqrt, scaled));
  Out(b().Binary(ScalarOp::kSub, x, b().Broadcast(scaled, {600, 24}, {1})));
  Begin("keepdims by reshape");
  const ValueId k = Arg({6, 10});
  const ValueId mean = b().Reshape(b().Reduce("sum", k, {1}), {6, 1});
  Out(b().Binary(ScalarOp::kSub, k, b().Broadcast(mean, {6, 10}, {0, 1})));
  for (bool exclusive : {false, true}) {
    for (bool reverse : {false, true}) {
      for (const char* op : {"cumsum", "cumprod"}) {
        Begin(fmt::format("{} {} {}", op, exclusive, reverse), 4);
        Out(Op1(op, {Arg({3, 6, 2})},
                {{"axis", int64_t{1}}, {"exclusive", exclusive}, {"reverse", reverse}}));
      }
    }
  }
  for (const char* kind : {"max", "min"}) {
    for (bool last : {false, true}) {
      Begin(fmt::format("arg_reduce {} {}", kind, last));
      const ValueId rounded = b().Unary(ScalarOp::kRound, Arg({4, 11, 3}));
      Out(Op1("arg_reduce", {rounded},
              {{"kind", std::string(kind)}, {"axis", int64_t{1}}, {"last", last}}));
    }
  }
  for (bool largest : {false, true}) {
    Begin(fmt::format("top_k {}", largest));
    const ValueId rounded = b().Unary(ScalarOp::kRound, Arg({4, 11, 3}));
    Outs(Op("top_k", {rounded}, {{"k", int64_t{4}}, {"axis", int64_t{1}}, {"largest", largest}}));
  }
}

void Cases::Norms() {
  for (Dims d : {Dims{4, 6, 5, 7}, Dims{40, 16, 9, 9}, Dims{3, 5}}) {
    Begin(fmt::format("batch_norm {}", fmt::join(d, "x")), 100);
    Outs(Op("batch_norm", {Arg(d), Arg({d[1]}), Arg({d[1]})}, {{"epsilon", 1e-5}}));
    Begin(fmt::format("batch_norm_grad {}", fmt::join(d, "x")), 200);
    const ValueId var =
        b().BinaryConstant(ScalarOp::kAdd, b().Unary(ScalarOp::kAbs, Arg({d[1]})), 0.5);
    Outs(Op("batch_norm_grad", {Arg(d), Arg(d), Arg({d[1]}), Arg({d[1]}), var},
            {{"epsilon", 1e-5}}));
  }
  for (Dims d : {Dims{3, 4, 33}, Dims{700, 64}, Dims{2, 1}}) {
    for (int64_t axis = static_cast<int64_t>(d.size()) - 1; axis >= 1; --axis) {
      const Dims inner(d.begin() + axis, d.end()), rows(d.begin(), d.begin() + axis);
      Begin(fmt::format("layer_norm {} from {}", fmt::join(d, "x"), axis), 100);
      Outs(Op("layer_norm", {Arg(d), Arg(inner), Arg(inner)}, {{"axis", axis}, {"epsilon", 1e-5}}));
      Begin(fmt::format("layer_norm_grad {} from {}", fmt::join(d, "x"), axis), 200);
      Outs(Op("layer_norm_grad", {Arg(d), Arg(d), Arg(inner), Arg(rows), Arg(rows)},
              {{"axis", axis}, {"epsilon", 1e-5}}));
      Begin(fmt::format("rms_norm {} from {}", fmt::join(d, "x"), axis), 100);
      Outs(Op("rms_norm", {Arg(d), Arg(inner)}, {{"axis", axis}, {"epsilon", 1e-5}}));
      Begin(fmt::format("rms_norm_grad {} from {}", fmt::join(d, "x"), axis), 200);
      Outs(Op("rms_norm_grad", {Arg(d), Arg(d), Arg(inner), Arg(rows)},
              {{"axis", axis}, {"epsilon", 1e-5}}));
    }
  }
  for (int64_t axis : {int64_t{0}, int64_t{1}, int64_t{2}}) {
    for (const char* op : {"softmax", "log_softmax"}) {
      Begin(fmt::format("{} axis {}", op, axis), 20);
      Out(Op1(op, {Arg({5, 19, 35})}, {{"axis", axis}}));
      Begin(fmt::format("{}_grad axis {}", op, axis), 20);
      Out(Op1(std::string(op) + "_grad", {Arg({5, 19, 35}), Arg({5, 19, 35})}, {{"axis", axis}}));
    }
  }
  for (bool ignore : {false, true}) {
    const Attributes a = {{"ignore_index", int64_t{2}}, {"has_ignore", ignore}};
    Begin(fmt::format("cross_entropy {}", ignore), 20);
    Outs(Op("cross_entropy", {Arg({9, 13}), Index(DType::kI64, {9}, 13)}, a));
    Begin(fmt::format("cross_entropy_grad {}", ignore), 20);
    Outs(Op("cross_entropy_grad", {Arg({9}), Arg({9, 13}), Index(DType::kI32, {9}, 13), Arg({9})},
            a));
    Begin(fmt::format("cross_entropy sum {}", ignore), 20);
    const auto ce = Op("cross_entropy", {Arg({99, 1300}), Index(DType::kI64, {99}, 1300)}, a);
    Out(b().Reduce("sum", ce[0], {0}));
  }
}

void Cases::Windows() {
  const Attributes base = {{"kernel", Dims{3, 2}},
                           {"strides", Dims{2, 1}},
                           {"pads_low", Dims{1, 0}},
                           {"pads_high", Dims{1, 1}},
                           {"dilations", Dims{1, 1}}};
  const Dims x = {2, 5, 7, 6};
  Begin("max_pool");
  Outs(Op("max_pool", {Arg(x)}, base));
  Attributes grad = base;
  grad.Set("input_shape", x);
  Begin("max_pool and gradient");
  const auto pooled = Op("max_pool", {Arg(x)}, base);
  Out(Op1("max_pool_grad", {Arg(list.back().function.type(pooled[0]).dims), pooled[1]}, grad));
  for (bool pad : {false, true}) {
    Attributes a = base, g = grad;
    a.Set("count_include_pad", pad);
    g.Set("count_include_pad", pad);
    Begin(fmt::format("avg_pool {}", pad));
    const ValueId y = Op1("avg_pool", {Arg(x)}, a);
    Out(y);
    Begin(fmt::format("avg_pool_grad {}", pad), 4);
    Out(Op1("avg_pool_grad", {Arg({2, 5, 4, 6})}, g));
  }
  for (int64_t groups : {int64_t{1}, int64_t{2}}) {
    const Attributes conv = {{"strides", Dims{2, 1}},
                             {"pads_low", Dims{1, 0}},
                             {"pads_high", Dims{1, 2}},
                             {"dilations", Dims{1, 2}},
                             {"groups", groups}};
    const Dims w = {6, 4 / groups, 3, 2};
    Begin(fmt::format("conv groups {}", groups), 40);
    const ValueId y = Op1("conv", {Arg({2, 4, 7, 6}), Arg(w)}, conv);
    Out(b().Unary(ScalarOp::kTanh, y));
    const Dims g = list.back().function.type(y).dims;
    Attributes gi = conv, gw = conv;
    gi.Set("input_shape", Dims{2, 4, 7, 6});
    gw.Set("weight_shape", w);
    Begin(fmt::format("conv_grad_input groups {}", groups), 40);
    Out(Op1("conv_grad_input", {Arg(g), Arg(w)}, gi));
    Begin(fmt::format("conv_grad_weight groups {}", groups), 40);
    Out(Op1("conv_grad_weight", {Arg(g), Arg({2, 4, 7, 6})}, gw));
  }
}

void Cases::Indexing() {
  for (int64_t axis : {int64_t{0}, int64_t{1}, int64_t{2}}) {
    const Dims x = {6, 5, 37};
    const int64_t n = x[static_cast<size_t>(axis)];
    Begin(fmt::format("gather axis {}", axis));
    Out(Op1("gather", {Arg(x), Index(DType::kI64, {2, 3}, n)}, {{"axis", axis}}));
    Begin(fmt::format("scatter_add axis {}", axis), 8);
    Dims u = x;
    u.erase(u.begin() + axis);
    u.insert(u.begin() + axis, {2, 3});
    Out(Op1("scatter_add", {Index(DType::kI32, {2, 3}, n), Arg(u)}, {{"axis", axis}, {"size", n}}));
    Begin(fmt::format("gather_elements axis {}", axis));
    Dims idx = x;
    idx[static_cast<size_t>(axis)] = 4;
    Out(Op1("gather_elements", {Arg(x), Index(DType::kI64, idx, n)}, {{"axis", axis}}));
    Begin(fmt::format("scatter_add_elements axis {}", axis), 8);
    Out(Op1("scatter_add_elements", {Index(DType::kI64, idx, n), Arg(idx)},
            {{"axis", axis}, {"size", n}}));
    for (const char* reduction : {"none", "sum", "prod", "max", "min"}) {
      Begin(fmt::format("scatter_elements {} axis {}", reduction, axis));
      Dims shorter = idx;
      for (int64_t& extent : shorter) extent = std::max<int64_t>(1, extent - 1);
      Out(Op1("scatter_elements", {Arg(x), Index(DType::kI64, shorter, n), Arg(shorter)},
              {{"axis", axis}, {"reduction", std::string(reduction)}}));
    }
  }
  Begin("random draws");
  const ValueId rng = Rng();
  Builder builder = b();
  builder.SetContext(ir::Role::kForward, 7, "");
  const ValueId u =
      builder.Add1("random_uniform", {rng}, {{"shape", Dims{5, 13}}, {"dtype", dtype_}});
  Out(u);
  Out(builder.Transpose(u, {1, 0}));
  builder.SetContext(ir::Role::kForward, 8, "");
  const ValueId w =
      builder.Add1("random_uniform", {rng}, {{"shape", Dims{2, 3, 11}}, {"dtype", dtype_}});
  Out(builder.Binary(ScalarOp::kMul, builder.Transpose(w, {2, 0, 1}), Arg({11, 2, 3})));
  Begin("dropout on a long row");
  const ValueId key = Rng();
  Builder d = b();
  d.SetContext(ir::Role::kForward, 3, "");
  const ValueId draw = d.Add1("random_uniform", {key}, {{"shape", Dims{30000}}, {"dtype", dtype_}});
  const ValueId keep = d.BinaryConstant(ScalarOp::kLt, draw, 0.9);
  Out(d.Select(keep, Arg({30000}), d.Splat(dtype_, {30000}, 0)));
  Out(keep);
}

void Cases::Contractions() {
  for (const char* spec : {"mk,kn->mn", "mk,nk->mn", "km,kn->mn", "bmk,bkn->bmn", "bhtd,bhsd->bhts",
                           "k,k->", "mk,kn->nm", "bthd,bshd->bhts"}) {
    Begin(fmt::format("dot {}", spec), 40);
    const std::string s = spec;
    const auto dims = [&](const std::string& letters) {
      Dims out;
      for (char c : letters) out.push_back(2 + (c * 7) % 9);
      return out;
    };
    const size_t comma = s.find(','), arrow = s.find("->");
    Out(b().Dot(s, Arg(dims(s.substr(0, comma))),
                Arg(dims(s.substr(comma + 1, arrow - comma - 1)))));
  }
  Begin("dot of views", 40);
  const ValueId x = Arg({4, 6, 3, 8});
  Out(b().Dot("bhtd,bhsd->bhts", b().Transpose(x, {0, 2, 1, 3}), b().Transpose(x, {0, 2, 1, 3})));
  Begin("dot without contraction extent", 1);
  Out(b().Dot("mk,kn->mn", Arg({3, 0}), Arg({0, 4})));
  Begin("dot, transpose, reshape", 40);
  const ValueId y = b().Dot("bhts,bhsd->bhtd", Arg({2, 3, 5, 5}), Arg({2, 3, 5, 4}));
  Out(b().Unary(ScalarOp::kExp, b().Reshape(b().Transpose(y, {0, 2, 1, 3}), {10, 12})));
}

void Cases::LinearAlgebra() {
  if (ir::DTypeBytes(dtype_) < 4) return;  // the operators take f32 and f64
  for (const Dims& dims :
       {Dims{7, 1, 1}, Dims{5, 2, 2}, Dims{2, 3, 4, 4}, Dims{9, 9}, Dims{2, 0, 0}, Dims{0, 3, 3}}) {
    Begin(fmt::format("det {}", fmt::join(dims, "x")), 400);
    const auto det = Op("det", {Arg(dims)});
    Outs(det);
    const Dims batch(dims.begin(), dims.end() - 2);
    Out(Op1("det_grad", {Arg(batch), det[1], det[2]}));
  }
  Begin("det of transposed and of singular matrices", 400);
  const ValueId x = b().Transpose(Arg({3, 3, 4}), {2, 0, 1});
  const auto det = Op("det", {x});
  Out(det[0]);
  Out(Op1("det_grad", {Arg({4}), det[1], det[2]}));
  const ValueId rows = b().Broadcast(Arg({2, 3}), {2, 3, 3}, {0, 2});
  const auto flat = Op("det", {rows});
  Out(flat[0]);
  Out(Op1("det_grad", {Arg({2}), flat[1], flat[2]}));
}

void Cases::Combined() {
  Begin("conv, batch norm, relu, add", 400);
  const Attributes conv = {{"strides", Dims{1, 1}},
                           {"pads_low", Dims{1, 1}},
                           {"pads_high", Dims{1, 1}},
                           {"dilations", Dims{1, 1}},
                           {"groups", int64_t{1}}};
  const ValueId x = Arg({3, 4, 9, 9});
  const ValueId c = Op1("conv", {x, Arg({4, 4, 3, 3})}, conv);
  const auto bn = Op("batch_norm", {c, Arg({4}), Arg({4})}, {{"epsilon", 1e-5}});
  const ValueId zero = b().Splat(dtype_, {3, 4, 9, 9}, 0);
  const ValueId y = b().Binary(ScalarOp::kMax, b().Binary(ScalarOp::kAdd, bn[0], x), zero);
  Out(y);
  Out(bn[1]);
  const ValueId g = b().Select(b().Binary(ScalarOp::kGt, y, zero), Arg({3, 4, 9, 9}), zero);
  Outs(Op("batch_norm_grad", {g, c, Arg({4}), bn[1], bn[2]}, {{"epsilon", 1e-5}}));
  Begin("attention", 400);
  const ValueId h = Arg({2, 6, 12});
  const ValueId qkv = b().Binary(
      ScalarOp::kAdd,
      b().Reshape(b().Dot("mk,kn->mn", b().Reshape(h, {12, 12}), Arg({12, 36})), {2, 6, 36}),
      b().Broadcast(Arg({36}), {2, 6, 36}, {2}));
  const auto part = [&](int64_t i) {
    const ValueId s = Op1("slice", {qkv},
                          {{"starts", Dims{0, 0, 12 * i}},
                           {"limits", Dims{2, 6, 12 * i + 12}},
                           {"strides", Dims{1, 1, 1}}});
    return b().Transpose(b().Reshape(s, {2, 6, 3, 4}), {0, 2, 1, 3});
  };
  const ValueId scores =
      b().BinaryConstant(ScalarOp::kMul, b().Dot("bhtd,bhsd->bhts", part(0), part(1)), 0.5);
  const ValueId ir =
      Op1("iota", {}, {{"shape", Dims{6, 6}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}});
  const ValueId ic =
      Op1("iota", {}, {{"shape", Dims{6, 6}}, {"axis", int64_t{1}}, {"dtype", DType::kI64}});
  const ValueId mask = b().Broadcast(b().Binary(ScalarOp::kGe, ir, ic), {2, 3, 6, 6}, {2, 3});
  const ValueId p =
      Op1("softmax", {b().Select(mask, scores, b().Splat(dtype_, {2, 3, 6, 6}, -1e9))},
          {{"axis", int64_t{3}}});
  const ValueId o = b().Dot("bhts,bhsd->bhtd", p, part(2));
  const ValueId merged = b().Reshape(b().Transpose(o, {0, 2, 1, 3}), {12, 12});
  const ValueId res = b().Binary(ScalarOp::kAdd, b().Reshape(merged, {2, 6, 12}), h);
  Outs(Op("layer_norm", {res, Arg({12}), Arg({12})}, {{"axis", int64_t{2}}, {"epsilon", 1e-5}}));
  Out(p);
  Begin("bias gradient beside a gelu gradient", 100);
  const ValueId z = Arg({300, 48}), dz = Arg({300, 48});
  const ValueId t = b().Unary(ScalarOp::kTanh, z);
  const ValueId d = b().Binary(ScalarOp::kMul, dz,
                               b().Binary(ScalarOp::kSub, b().Splat(dtype_, {300, 48}, 1),
                                          b().Binary(ScalarOp::kMul, t, t)));
  Out(d);
  Out(b().Reduce("sum", d, {0}));
}

}  // namespace

std::vector<EmitCase> EmitCases(DType dtype) {
  Cases cases(dtype);
  cases.Elementwise();
  cases.Movement();
  cases.Reductions();
  cases.Norms();
  cases.Windows();
  cases.Indexing();
  cases.Contractions();
  cases.LinearAlgebra();
  cases.Combined();
  return std::move(cases.list);
}

}  // namespace hyper::testing
