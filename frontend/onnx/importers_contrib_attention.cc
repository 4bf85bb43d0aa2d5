// Attention operators of com.microsoft, composed of dot, map and softmax: the forms that training
// has. Caches that an inference step fills are refused.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

Tensor Computed(NodeContext& c, ValueId v) { return {c.b().type(v), v, {}, false}; }

ValueId Slice(NodeContext& c, ValueId x, int axis, int64_t start, int64_t limit) {
  Dims starts(c.b().type(x).dims.size(), 0);
  Dims limits = c.b().type(x).dims;
  starts[static_cast<size_t>(axis)] = start;
  limits[static_cast<size_t>(axis)] = limit;
  return c.Add1("slice", {x},
                {{"starts", starts}, {"limits", limits}, {"strides", Dims(starts.size(), 1)}});
}

// [batch, length, heads * size] -> [batch, heads, length, size]
ValueId SplitHeads(NodeContext& c, ValueId x, int64_t heads) {
  const Dims dims = c.b().type(x).dims;
  if (dims.size() != 3 || heads < 1 || dims[2] % heads != 0) {
    Fail(fmt::format("{} does not split into {} heads", FormatDims(dims), heads));
  }
  return c.b().Transpose(c.Reshape(x, {dims[0], dims[1], heads, dims[2] / heads}), {0, 2, 1, 3});
}

ValueId JoinHeads(NodeContext& c, ValueId x) {
  const Dims dims = c.b().type(x).dims;
  return c.Reshape(c.b().Transpose(x, {0, 2, 1, 3}), {dims[0], dims[2], dims[1] * dims[3]});
}

ValueId Iota(NodeContext& c, Dims shape, int64_t axis) {
  return c.Add1("iota", {}, {{"shape", std::move(shape)}, {"axis", axis}, {"dtype", DType::kI64}});
}

struct Options {
  double scale = 1;
  double softcap = 0;  // 0: none
  bool causal = false;
  int64_t window = 0;         // keys that a query sees with itself; 0: all
  std::vector<ValueId> bias;  // added to the scores, broadcast to [batch, heads, query, key]
};

// q [batch, heads, query, size], k and v [batch, key heads, key, size] -> [batch, heads, query,
// size of v]. A causal query at the end of the keys sees all of them.
ValueId Attend(NodeContext& c, ValueId q, ValueId k, ValueId v, const Options& options) {
  const Dims dq = c.b().type(q).dims;
  const Dims dk = c.b().type(k).dims;
  const Dims dv = c.b().type(v).dims;
  if (dk[0] != dq[0] || dk[3] != dq[3] || dv[0] != dk[0] || dv[1] != dk[1] || dv[2] != dk[2] ||
      dk[1] < 1 || dq[1] % dk[1] != 0) {
    Fail(fmt::format("queries {}, keys {} and values {} do not fit", FormatDims(dq), FormatDims(dk),
                     FormatDims(dv)));
  }
  const int64_t group = dq[1] / dk[1];
  const Dims scores_dims = {dq[0], dq[1], dq[2], dk[2]};
  ValueId scores;
  if (group == 1) {
    scores = c.b().Dot("bnsh,bnth->bnst", q, k);
  } else {
    const ValueId grouped = c.Reshape(q, {dq[0], dk[1], group, dq[2], dq[3]});
    scores = c.Reshape(c.b().Dot("bngsh,bnth->bngst", grouped, k), scores_dims);
  }
  std::vector<Tensor> operands = {Computed(c, scores)};
  for (ValueId bias : options.bias) operands.push_back(Computed(c, bias));
  const size_t biases = options.bias.size();
  if (options.causal || options.window > 0) {
    operands.push_back(Computed(c, Iota(c, {dq[2], dk[2]}, 0)));
    operands.push_back(Computed(c, Iota(c, {dq[2], dk[2]}, 1)));
  }
  const DType t = c.b().type(scores).dtype;
  const ValueId masked = c.MapTensors(operands, [&](ExprBuilder& e, Args a) {
    int y = e.Binary(ScalarOp::kMul, a[0], e.Constant(t, options.scale));
    if (options.softcap > 0) {
      const int bent =
          e.Unary(ScalarOp::kTanh, e.Binary(ScalarOp::kDiv, y, e.Constant(t, options.softcap)));
      y = e.Binary(ScalarOp::kMul, bent, e.Constant(t, options.softcap));
    }
    for (size_t i = 0; i < biases; ++i) y = e.Binary(ScalarOp::kAdd, y, a[1 + i]);
    if (!options.causal && options.window <= 0) return y;
    const int row =
        e.Binary(ScalarOp::kAdd, a[1 + biases], e.ConstantInt(DType::kI64, dk[2] - dq[2]));
    const int column = a[2 + biases];
    int seen = e.Binary(ScalarOp::kLe, column, row);
    if (options.window > 0) {
      const int oldest = e.Binary(ScalarOp::kSub, row, e.ConstantInt(DType::kI64, options.window));
      seen = e.Binary(ScalarOp::kAnd, seen, e.Binary(ScalarOp::kGt, column, oldest));
    }
    // A query that sees a key gives this no weight. One that sees none (more queries than keys) has
    // no defined result: it weighs all keys alike.
    return e.Select(seen, y, e.Constant(t, t == DType::kF16 ? -65504.0 : -3e38));
  });
  const ValueId weights = c.Add1("softmax", {masked}, {{"axis", int64_t{3}}});
  if (group == 1) return c.b().Dot("bnst,bnth->bnsh", weights, v);
  const ValueId grouped = c.Reshape(weights, {dq[0], dk[1], group, dq[2], dk[2]});
  return c.Reshape(c.b().Dot("bngst,bnth->bngsh", grouped, v), {dq[0], dq[1], dq[2], dv[3]});
}

// What operand `i`, a mask over keys, adds to the scores: 0 for 1, mask_filter_value for 0.
// Accepted: [batch] (lengths), [batch, key], [batch, query, key].
ValueId KeyMask(NodeContext& c, int i, int64_t batch, int64_t query, int64_t keys) {
  const Dims dims = c.Shape(i);
  const DType integer = c.Type(i).dtype;
  const DType t = c.Type(0).dtype;
  const double filter = c.Float("mask_filter_value", -10000);
  const auto term = [&](ExprBuilder& e, int keep) {
    return e.Select(keep, e.Constant(t, 0), e.Constant(t, filter));
  };
  if (dims == Dims{batch}) {
    Tensor lengths = c.ComputeReshape(c.Operand(i), {batch, 1});
    const ValueId mask = c.MapTensors(
        {lengths, Computed(c, Iota(c, {batch, keys}, 1))}, [&](ExprBuilder& e, Args a) {
          return term(e, e.Binary(ScalarOp::kLt, a[1], e.Cast(DType::kI64, a[0])));
        });
    return c.Reshape(mask, {batch, 1, 1, keys});
  }
  if (dims != Dims{batch, keys} && dims != Dims{batch, query, keys}) {
    Unsupported(fmt::format("a mask of shape {}; accepted are [{}], [{},{}] and [{},{},{}]",
                            FormatDims(dims), batch, batch, keys, batch, query, keys));
  }
  const ValueId mask = c.MapInputs({i}, [&](ExprBuilder& e, Args a) {
    return term(e, e.Binary(ScalarOp::kGt, a[0], e.ConstantInt(integer, 0)));
  });
  return c.Reshape(mask, dims.size() == 2 ? Dims{batch, 1, 1, keys} : Dims{batch, 1, query, keys});
}

double ScaleOf(NodeContext& c, int64_t size) {
  const double given = c.Float("scale", 0);
  return given != 0 ? given : 1 / std::sqrt(static_cast<double>(size));
}

void RefuseCaches(NodeContext& c, std::initializer_list<int> operands) {
  for (int i : operands) {
    if (c.Has(i) && ir::ElementCount(c.Shape(i)) > 0) {
      Refuse(Refusal::kNotTraining, fmt::format("operand {} ('{}') is a cache of an inference step",
                                                i, c.node().input(i)));
    }
  }
}

// Operands: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value.
void MultiHeadAttention(NodeContext& c) {
  RefuseCaches(c, {6, 7, 8, 9});
  if (c.HasOutput(3)) Unsupported("the output of the scores");
  const int64_t heads = c.Int("num_heads", 0);
  if (heads < 1) Fail("num_heads is missing");
  const Dims dq = c.Shape(0);
  ValueId q, k, v;
  const auto packed = [&](int i, int64_t parts,
                          int64_t at) {  // [batch, length, heads, parts, size]
    const Dims d = c.Shape(i);
    if (d[2] != heads || d[3] != parts) {
      Fail(fmt::format("operand {} has shape {}", i, FormatDims(d)));
    }
    return c.b().Transpose(c.Reshape(Slice(c, c.In(i), 3, at, at + 1), {d[0], d[1], d[2], d[4]}),
                           {0, 2, 1, 3});
  };
  const bool bias = c.Has(3);
  if (dq.size() == 5) {
    if (bias) Unsupported("a bias with packed operands");
    q = packed(0, 3, 0);
    k = packed(0, 3, 1);
    v = packed(0, 3, 2);
  } else if (dq.size() != 3) {
    Fail("the query must have rank 3 or 5");
  } else {
    const auto with_bias = [&](int i, int64_t start) {
      ValueId x = c.In(i);
      if (!bias) return x;
      const int64_t width = c.Shape(i)[2];
      if (c.Type(3).rank() != 1 || start + width > c.Shape(3)[0]) Fail("the bias does not fit");
      return c.b().Binary(ScalarOp::kAdd, x,
                          c.BroadcastTo(Slice(c, c.In(3), 0, start, start + width), c.Shape(i)));
    };
    q = SplitHeads(c, with_bias(0, 0), heads);
    const Dims dk = c.Shape(1);
    if (dk.size() == 5) {
      if (bias) Unsupported("a bias with packed operands");
      k = packed(1, 2, 0);
      v = packed(1, 2, 1);
    } else if (dk.size() == 4) {  // projected and split already: the bias is the query's alone
      k = c.In(1);
      v = c.In(2);
      if (c.Type(2).rank() != 4) Fail("key and value must have one rank");
    } else if (dk.size() == 3) {
      if (c.Type(2).rank() != 3) Fail("key and value must have one rank");
      k = SplitHeads(c, with_bias(1, dq[2]), heads);
      v = SplitHeads(c, with_bias(2, 2 * dq[2]), heads);
    } else {
      Fail("the key must have rank 3, 4 or 5");
    }
  }
  const Dims q_dims = c.b().type(q).dims;
  const int64_t keys = c.b().type(k).dims[2];
  Options options;
  options.scale = ScaleOf(c, q_dims[3]);
  options.causal = c.Int("unidirectional", 0) != 0;
  if (c.Has(4)) options.bias.push_back(KeyMask(c, 4, q_dims[0], q_dims[2], keys));
  if (c.Has(5)) options.bias.push_back(c.In(5));
  c.Out(0, JoinHeads(c, Attend(c, q, k, v, options)));
  c.Out(1, k);
  c.Out(2, v);
}

// Operands: input, weights, bias, mask_index, past, attention_bias; q, k and v in one product.
void PackedAttention(NodeContext& c) {
  RefuseCaches(c, {4, 6});
  if (c.HasOutput(1)) Refuse(Refusal::kNotTraining, "the 'present' output is a cache");
  if (c.Int("do_rotary", 0) != 0) Unsupported("do_rotary");
  const int64_t heads = c.Int("num_heads", 0);
  if (c.Type(0).rank() != 3 || c.Type(1).rank() != 2 || c.Shape(0)[2] != c.Shape(1)[0]) {
    Fail(fmt::format("input {} and weights {} do not fit", FormatDims(c.Shape(0)),
                     FormatDims(c.Shape(1))));
  }
  const int64_t width = c.Shape(1)[1];
  std::vector<int64_t> sizes = c.IntList("qkv_hidden_sizes", {});
  if (sizes.empty()) sizes = {width / 3, width / 3, width / 3};
  if (sizes.size() != 3 || sizes[0] != sizes[1] || sizes[0] + sizes[1] + sizes[2] != width) {
    Fail(fmt::format("weights of width {} do not split into {}", width, FormatDims(sizes)));
  }
  ValueId product = c.b().Dot("bsi,in->bsn", c.In(0), c.In(1));
  if (c.Has(2)) {
    if (c.Shape(2) != Dims{width}) Fail("the bias does not fit");
    product =
        c.b().Binary(ScalarOp::kAdd, product, c.BroadcastTo(c.In(2), c.b().type(product).dims));
  }
  const int64_t two = 2 * sizes[0];
  const ValueId q = SplitHeads(c, Slice(c, product, 2, 0, sizes[0]), heads);
  const ValueId k = SplitHeads(c, Slice(c, product, 2, sizes[0], two), heads);
  const ValueId v = SplitHeads(c, Slice(c, product, 2, two, width), heads);
  const Dims dq = c.b().type(q).dims;
  Options options;
  options.scale = ScaleOf(c, dq[3]);
  options.causal = c.Int("unidirectional", 0) != 0;
  if (c.Has(3)) options.bias.push_back(KeyMask(c, 3, dq[0], dq[2], dq[2]));
  if (c.Has(5)) options.bias.push_back(c.In(5));
  c.Out(0, JoinHeads(c, Attend(c, q, k, v, options)));
}

// Rows of the caches, one per token: [batch or 1, 1, length, size / 2]. Without positions the
// tokens count from 0.
ValueId CacheRows(NodeContext& c, int cache, int positions, int64_t batch, int64_t length) {
  const Dims dims = c.Shape(cache);
  if (dims.size() != 2) Fail("the caches must have rank 2");
  if (positions < 0) {
    if (length > dims[0]) Fail(fmt::format("{} tokens, caches of {}", length, dims[0]));
    return c.Reshape(Slice(c, c.In(cache), 0, 0, length), {1, 1, length, dims[1]});
  }
  if (ir::ElementCount(c.Shape(positions)) == 1 && batch * length != 1) {  // of the first token
    Tensor first = c.ComputeReshape(c.Operand(positions), {1});
    const ValueId rows =
        c.MapTensors({Computed(c, Iota(c, {length}, 0)), first}, [&](ExprBuilder& e, Args a) {
          return e.Binary(ScalarOp::kAdd, a[0], e.Cast(DType::kI64, a[1]));
        });
    return c.Reshape(c.Add1("gather", {c.In(cache), rows}, {{"axis", int64_t{0}}}),
                     {1, 1, length, dims[1]});
  }
  const Tensor all = c.ComputeReshape(c.Operand(positions), {batch, length});
  std::vector<Tensor> one = {all};
  return c.Reshape(
      c.Add1("gather", {c.In(cache), Materialise(c.b(), one[0])}, {{"axis", int64_t{0}}}),
      {batch, 1, length, dims[1]});
}

// Rotates the first 2 * (width of the caches) elements of every head of x [batch, heads, length,
// size].
ValueId Rotate(NodeContext& c, ValueId x, ValueId cosine, ValueId sine, bool interleaved) {
  const Dims dims = c.b().type(x).dims;
  const int64_t half = c.b().type(cosine).dims[3];
  if (2 * half > dims[3] || c.b().type(sine).dims != c.b().type(cosine).dims) {
    Fail(fmt::format("caches of width {} for heads of {}", half, dims[3]));
  }
  ValueId first, second;
  const Dims part = {dims[0], dims[1], dims[2], half};
  if (interleaved) {
    const ValueId pairs =
        c.Reshape(Slice(c, x, 3, 0, 2 * half), {dims[0], dims[1], dims[2], half, 2});
    first = c.Reshape(Slice(c, pairs, 4, 0, 1), part);
    second = c.Reshape(Slice(c, pairs, 4, 1, 2), part);
  } else {
    first = Slice(c, x, 3, 0, half);
    second = Slice(c, x, 3, half, 2 * half);
  }
  const auto turned = [&](ScalarOp op, ValueId a, ValueId b) {
    return c.MapTensors({Computed(c, a), Computed(c, cosine), Computed(c, b), Computed(c, sine)},
                        [&](ExprBuilder& e, Args v) {
                          return e.Binary(op, e.Binary(ScalarOp::kMul, v[0], v[1]),
                                          e.Binary(ScalarOp::kMul, v[2], v[3]));
                        });
  };
  ValueId real = turned(ScalarOp::kSub, first, second);
  ValueId imaginary = turned(ScalarOp::kAdd, second, first);
  ValueId y;
  if (interleaved) {
    Dims paired = part;
    paired.push_back(1);
    y = c.Add1("concat", {c.Reshape(real, paired), c.Reshape(imaginary, paired)},
               {{"axis", int64_t{4}}});
    y = c.Reshape(y, {dims[0], dims[1], dims[2], 2 * half});
  } else {
    y = c.Add1("concat", {real, imaginary}, {{"axis", int64_t{3}}});
  }
  if (2 * half == dims[3]) return y;
  return c.Add1("concat", {y, Slice(c, x, 3, 2 * half, dims[3])}, {{"axis", int64_t{3}}});
}

// Operands: input, position_ids, cos_cache, sin_cache.
void RotaryEmbedding(NodeContext& c) {
  if (c.Float("scale", 1) != 1) Unsupported("a scale other than 1");
  if (c.Int("is_packed_batching", 0) != 0) Unsupported("is_packed_batching");
  const bool joined = c.Type(0).rank() == 3;
  if (!joined && c.Type(0).rank() != 4) Fail("the input must have rank 3 or 4");
  if (c.Type(2).rank() != 2) Fail("the caches must have rank 2");
  int64_t heads = c.Int("num_heads", 0);
  if (joined && heads == 0) {
    const int64_t size = 2 * c.Shape(2)[1];
    if (c.Int("rotary_embedding_dim", 0) != 0) Fail("num_heads is missing");
    heads = size == 0 ? 0 : c.Shape(0)[2] / size;
  }
  const ValueId x = joined ? SplitHeads(c, c.In(0), heads) : c.In(0);
  const Dims dims = c.b().type(x).dims;
  const ValueId y = Rotate(c, x, CacheRows(c, 2, 1, dims[0], dims[2]),
                           CacheRows(c, 3, 1, dims[0], dims[2]), c.Int("interleaved", 0) != 0);
  c.Out(0, joined ? JoinHeads(c, y) : y);
}

// Operands: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache,
// sin_cache, position_ids, attention_bias, head_sink. Sequences are padded at their ends and
// attention is causal, so that the lengths (seqlens_k) change nothing in front of them.
void GroupQueryAttention(NodeContext& c) {
  RefuseCaches(c, {3, 4});
  if (c.Has(11)) Unsupported("head_sink");
  if (c.Int("smooth_softmax", 0) > 0) Unsupported("smooth_softmax");
  if (c.HasOutput(3)) Unsupported("the output of the scores");
  if (c.Has(5)) {
    c.events().notes.push_back(
        "the lengths of its sequences (seqlens_k) are not read: attention is causal, so that they "
        "change nothing in front of the padding; what it gives for padded positions is not masked");
  }
  const int64_t heads = c.Int("num_heads", 0);
  const int64_t key_heads = c.Int("kv_num_heads", 0);
  if (heads < 1 || key_heads < 1 || c.Type(0).rank() != 3) {
    Fail("num_heads and kv_num_heads are expected, and a query of rank 3");
  }
  ValueId q, k, v;
  if (c.Has(1)) {
    q = SplitHeads(c, c.In(0), heads);
    k = SplitHeads(c, c.In(1), key_heads);
    v = SplitHeads(c, c.In(2), key_heads);
  } else {
    const int64_t size = c.Shape(0)[2] / (heads + 2 * key_heads);
    if (size * (heads + 2 * key_heads) != c.Shape(0)[2]) Fail("the packed query does not split");
    const int64_t at_k = heads * size;
    const int64_t at_v = at_k + key_heads * size;
    q = SplitHeads(c, Slice(c, c.In(0), 2, 0, at_k), heads);
    k = SplitHeads(c, Slice(c, c.In(0), 2, at_k, at_v), key_heads);
    v = SplitHeads(c, Slice(c, c.In(0), 2, at_v, c.Shape(0)[2]), key_heads);
  }
  const Dims dq = c.b().type(q).dims;
  if (c.b().type(k).dims[2] != dq[2]) Unsupported("keys of another length than the queries");
  if (c.Int("do_rotary", 0) != 0) {
    const int positions = c.Has(9) ? 9 : -1;
    const ValueId cosine = CacheRows(c, 7, positions, dq[0], dq[2]);
    const ValueId sine = CacheRows(c, 8, positions, dq[0], dq[2]);
    const bool interleaved = c.Int("rotary_interleaved", 0) != 0;
    q = Rotate(c, q, cosine, sine, interleaved);
    k = Rotate(c, k, cosine, sine, interleaved);
  }
  Options options;
  options.scale = ScaleOf(c, dq[3]);
  options.softcap = c.Float("softcap", 0);
  options.causal = true;
  options.window = std::max<int64_t>(0, c.Int("local_window_size", -1));
  if (c.Has(10)) options.bias.push_back(c.In(10));
  c.Out(0, JoinHeads(c, Attend(c, q, k, v, options)));
  c.Out(1, k);
  c.Out(2, v);
}

}  // namespace

void RegisterContribAttentionImporters(ImportTable& t) {
  const auto add = [&](std::string_view op, void (*import)(NodeContext&), std::string_view doc,
                       std::vector<int> weights = {}) {
    t.Add({op, 1, 1, import, doc, {}, std::move(weights), {}, kDomain});
  };
  const std::string_view doc = "dot, map, softmax, dot; no caches";
  add("MultiHeadAttention", MultiHeadAttention, doc, {3});
  add("Attention", PackedAttention, doc, {1, 2});
  add("RotaryEmbedding", RotaryEmbedding, "gather and maps");
  add("GroupQueryAttention", GroupQueryAttention, doc);
}

}  // namespace hyper::onnx_frontend
