// Matrix products, which become `dot`, and determinants.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/strings.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

// One operand of a contraction: letters name its dims. Dims of extent 1 whose letter has a larger
// extent in the other operand are dropped (broadcasting).
struct Operand {
  ValueId value;
  std::string letters;
};

void DropBroadcastDims(NodeContext& c, Operand* operand, const std::map<char, int64_t>& extents) {
  const Dims dims = c.b().type(operand->value).dims;
  Dims kept;
  std::string letters;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t full = extents.at(operand->letters[i]);
    if (dims[i] == full) {
      kept.push_back(dims[i]);
      letters += operand->letters[i];
    } else if (dims[i] != 1) {
      Fail(fmt::format("extents {} and {} do not match", dims[i], full));
    }
  }
  operand->value = c.Reshape(operand->value, kept);
  operand->letters = letters;
}

ValueId Contract(NodeContext& c, Operand x, Operand y, const std::string& out) {
  std::map<char, int64_t> extents;
  for (const Operand* o : {&x, &y}) {
    const Dims& dims = c.b().type(o->value).dims;
    for (size_t i = 0; i < dims.size(); ++i) {
      auto [it, inserted] = extents.emplace(o->letters[i], dims[i]);
      if (!inserted && it->second == 1) it->second = dims[i];
    }
  }
  DropBroadcastDims(c, &x, extents);
  DropBroadcastDims(c, &y, extents);
  // Letters that one operand has alone and the result does not have are summed first.
  auto sum_alone = [&](Operand* o, const Operand& other) {
    Dims axes;
    std::string letters;
    for (size_t i = 0; i < o->letters.size(); ++i) {
      const char letter = o->letters[i];
      if (out.find(letter) == std::string::npos &&
          other.letters.find(letter) == std::string::npos) {
        axes.push_back(static_cast<int64_t>(i));
      } else {
        letters += letter;
      }
    }
    o->value = c.b().Reduce("sum", o->value, axes);
    o->letters = letters;
  };
  sum_alone(&x, y);
  sum_alone(&y, x);
  return c.Add1("dot", {x.value, y.value}, {{"spec", x.letters + "," + y.letters + "->" + out}});
}

void MatMul(NodeContext& c) {
  const Dims a = c.Shape(0);
  const Dims b = c.Shape(1);
  if (a.empty() || b.empty()) Fail("operands must have at least one dim");
  if (c.Type(0).dtype != c.Type(1).dtype) Fail("operands have different element types");
  const int64_t ka = a.back();
  const int64_t kb = b.size() == 1 ? b[0] : b[b.size() - 2];
  if (ka != kb) {
    Fail(fmt::format("cannot multiply {} by {}: extents {} and {} of the contracted dim",
                     FormatDims(a), FormatDims(b), ka, kb));
  }
  const size_t batch_a = a.size() > 2 ? a.size() - 2 : 0;
  const size_t batch_b = b.size() > 2 ? b.size() - 2 : 0;
  OrFail(ir::BroadcastDims(Dims(a.begin(), a.begin() + static_cast<long>(batch_a)),
                           Dims(b.begin(), b.begin() + static_cast<long>(batch_b))));
  const size_t batch = std::max(batch_a, batch_b);
  if (batch > 20) Unsupported("more than 20 batch dims");
  std::string letters;
  for (size_t i = 0; i < batch; ++i) letters += static_cast<char>('a' + i);
  std::string la = letters.substr(batch - batch_a) + (a.size() > 1 ? "xy" : "y");
  std::string lb = letters.substr(batch - batch_b) + (b.size() > 1 ? "yz" : "y");
  std::string out = letters + (a.size() > 1 ? "x" : "") + (b.size() > 1 ? "z" : "");
  // A letter of the result must occur in an operand: extents of 1 in both stay in the first.
  c.Out(0, Contract(c, {c.In(0), la}, {c.In(1), lb}, out));
}

void Gemm(NodeContext& c) {
  if (c.Type(0).rank() != 2 || c.Type(1).rank() != 2) Fail("A and B must have rank 2");
  const bool trans_a = c.Int("transA", 0) != 0;
  const bool trans_b = c.Int("transB", 0) != 0;
  const double alpha = c.Float("alpha", 1);
  const double beta = c.Float("beta", 1);
  if (!ir::IsFloat(c.Type(0).dtype) && (alpha != std::trunc(alpha) || beta != std::trunc(beta))) {
    Fail(fmt::format("alpha is {} and beta {} for {} operands; whole numbers are expected", alpha,
                     beta, ir::DTypeName(c.Type(0).dtype)));
  }
  const std::string spec =
      std::string(trans_a ? "km" : "mk") + "," + (trans_b ? "nk" : "kn") + "->mn";
  ValueId y = c.Add1("dot", {c.In(0), c.In(1)}, {{"spec", spec}});
  if (alpha != 1) y = c.b().BinaryConstant(ScalarOp::kMul, y, alpha);
  if (c.Has(2)) {
    const Dims dims = c.b().type(y).dims;
    if (OrFail(ir::BroadcastDims(dims, c.Shape(2))) != dims) Fail("C does not broadcast to A*B");
    const ir::DType dtype = c.Type(2).dtype;
    const Tensor product{c.b().type(y), y, {}, false};
    y = c.MapTensors({product, c.Operand(2)}, [&](ExprBuilder& e, Args x) {
      const int bias = beta == 1 ? x[1] : e.Binary(ScalarOp::kMul, x[1], e.Constant(dtype, beta));
      return e.Binary(ScalarOp::kAdd, x[0], bias);
    });
  }
  c.Out(0, y);
}

// "bij, b...k -> ..." with the ellipsis written out as letters that the equation does not use.
struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

Equation ParseEquation(NodeContext& c) {
  std::string text = c.String("equation", "");
  std::erase_if(text, [](char ch) { return ch == ' '; });
  Equation equation;
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  size_t start = 0;
  for (size_t comma; (comma = left.find(',', start)) != std::string::npos; start = comma + 1) {
    equation.inputs.push_back(left.substr(start, comma - start));
  }
  equation.inputs.push_back(left.substr(start));
  if (static_cast<int>(equation.inputs.size()) != c.input_count()) {
    Fail(fmt::format("equation '{}' does not have {} operands", text, c.input_count()));
  }
  size_t ellipsis = 0;
  for (int i = 0; i < c.input_count(); ++i) {
    const std::string& term = equation.inputs[static_cast<size_t>(i)];
    const size_t rank = c.Shape(i).size();
    const bool dots = term.find("...") != std::string::npos;
    const size_t letters = term.size() - (dots ? 3 : 0);
    if (dots ? letters > rank : letters != rank) {
      Fail(fmt::format("equation term '{}' does not fit rank {}", term, rank));
    }
    if (dots) ellipsis = std::max(ellipsis, rank - letters);
  }
  std::string free;
  for (char ch = '0'; ch <= '9'; ++ch) free += ch;
  if (ellipsis > free.size()) Unsupported("an ellipsis of more than 10 dims");
  const std::string all = free.substr(0, ellipsis);
  auto expand = [&](std::string term, size_t rank) {
    const size_t at = term.find("...");
    if (at == std::string::npos) return term;
    const size_t have = rank - (term.size() - 3);
    return term.replace(at, 3, all.substr(all.size() - have));
  };
  for (int i = 0; i < c.input_count(); ++i) {
    auto& term = equation.inputs[static_cast<size_t>(i)];
    term = expand(term, c.Shape(i).size());
  }
  if (arrow != std::string::npos) {
    const std::string right = text.substr(arrow + 2);
    const size_t letters = right.size() - (right.find("...") != std::string::npos ? 3 : 0);
    equation.output = expand(right, letters + ellipsis);
  } else {  // letters that occur once, in alphabetical order, behind the ellipsis
    std::map<char, int> count;
    for (const std::string& term : equation.inputs) {
      for (char ch : term) ++count[ch];
    }
    equation.output = all;
    for (const auto& [ch, n] : count) {
      if (n == 1 && all.find(ch) == std::string::npos) equation.output += ch;
    }
  }
  return equation;
}

// The diagonal over the first letter that the operand names twice becomes the last dim: two dims of
// extent n read as one of n*n hold it at every (n+1)-th position.
bool TakeDiagonal(NodeContext& c, Operand* operand) {
  const std::string& letters = operand->letters;
  for (size_t first = 0; first < letters.size(); ++first) {
    const size_t second = letters.find(letters[first], first + 1);
    if (second == std::string::npos) continue;
    const Dims dims = c.b().type(operand->value).dims;
    const int64_t n = dims[first];
    if (dims[second] != n) {
      Fail(fmt::format("a letter stands for extents {} and {} of one operand", n, dims[second]));
    }
    Dims perm, shape, starts, limits;
    std::string kept;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d == first || d == second) continue;
      perm.push_back(static_cast<int64_t>(d));
      shape.push_back(dims[d]);
      kept += letters[d];
    }
    perm.insert(perm.end(), {static_cast<int64_t>(first), static_cast<int64_t>(second)});
    shape.push_back(n * n);
    Dims strides(shape.size(), 1);
    strides.back() = n + 1;
    const ValueId flat = c.Reshape(c.b().Transpose(operand->value, perm), shape);
    operand->value =
        c.Add1("slice", {flat},
               {{"starts", Dims(shape.size(), 0)}, {"limits", shape}, {"strides", strides}});
    operand->letters = kept + letters[first];
    return true;
  }
  return false;
}

void Einsum(NodeContext& c) {
  Equation equation = ParseEquation(c);
  std::vector<ValueId> values;
  for (int i = 0; i < c.input_count(); ++i) {
    Operand operand{c.In(i), equation.inputs[static_cast<size_t>(i)]};
    while (TakeDiagonal(c, &operand)) {
    }
    values.push_back(operand.value);
    equation.inputs[static_cast<size_t>(i)] = operand.letters;
  }
  // The core op wants letters a..z, each once per operand.
  std::map<char, char> rename;
  auto canonical = [&](std::string& term) {
    std::string seen;
    for (char& ch : term) {
      if (seen.find(ch) != std::string::npos) {
        Fail("the output names a letter twice");
      }
      seen += ch;
      const auto [it, inserted] = rename.emplace(ch, static_cast<char>('a' + rename.size()));
      if (it->second > 'z') Unsupported("more than 26 letters");
      ch = it->second;
    }
  };
  for (std::string& term : equation.inputs) canonical(term);
  const size_t letters = rename.size();
  canonical(equation.output);
  if (rename.size() != letters) Fail("the output names a letter that no operand has");
  if (c.input_count() == 1) {
    const std::string& in = equation.inputs[0];
    Dims axes;
    std::string left;
    for (size_t i = 0; i < in.size(); ++i) {
      if (equation.output.find(in[i]) == std::string::npos)
        axes.push_back(static_cast<int64_t>(i));
      else
        left += in[i];
    }
    const ValueId sum = c.b().Reduce("sum", values[0], axes);
    Dims perm;
    for (char ch : equation.output) perm.push_back(static_cast<int64_t>(left.find(ch)));
    c.Out(0, c.b().Transpose(sum, perm));
    return;
  }
  Operand left{values[0], equation.inputs[0]};
  for (int i = 1; i < c.input_count(); ++i) {
    Operand right{values[static_cast<size_t>(i)], equation.inputs[static_cast<size_t>(i)]};
    std::string out = equation.output;
    if (i + 1 < c.input_count()) {  // keep what the rest still needs
      std::string needed = equation.output;
      for (int k = i + 1; k < c.input_count(); ++k)
        needed += equation.inputs[static_cast<size_t>(k)];
      out.clear();
      for (char ch : left.letters + right.letters) {
        if (needed.find(ch) != std::string::npos && out.find(ch) == std::string::npos) out += ch;
      }
    }
    left = {Contract(c, left, right, out), out};
  }
  c.Out(0, left.value);
}

// f16 and bf16 are eliminated in f32.
void Det(NodeContext& c) {
  const DType dtype = c.Type(0).dtype;
  const bool half = dtype == DType::kF16 || dtype == DType::kBF16;
  const ValueId x = half ? c.b().Cast(DType::kF32, c.In(0)) : c.In(0);
  c.Out(0, c.b().Cast(dtype, c.Add("det", {x})[0]));
}

}  // namespace

void RegisterContractionImporters(ImportTable& t) {
  t.Add({"MatMul", 1, 13, MatMul, "dot with broadcast batch dims", {}, {0, 1}});
  t.Add({"Gemm", 7, 13, Gemm, "dot, then map for alpha, beta and C", {}, {0, 1, 2}});
  t.Add({"Det", 11, 22, Det, "det"});
  t.Add({"Einsum",
         12,
         12,
         Einsum,
         "dot, operand by operand; a repeated letter takes the diagonal",
         {},
         {0, 1}});
}

}  // namespace hyper::onnx_frontend
