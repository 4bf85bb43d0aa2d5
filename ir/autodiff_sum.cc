#include "ir/autodiff_sum.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace hyper::ir {
namespace {

constexpr size_t kFewestDots = 3;

// A tensor that fills [low, high) of `axis` of the sum.
struct Piece {
  ValueId value;
  int64_t axis = -1;
  int64_t low = 0, high = 0;
};

const Node* ProducerOf(const Function& f, ValueId v, std::string_view op) {
  const NodeId id = f.value(v).producer;
  if (!id.valid() || f.node(id).op->name != op) return nullptr;
  return &f.node(id);
}

std::optional<Piece> PieceOf(const Function& f, ValueId v) {
  const Node* pad = ProducerOf(f, v, "pad");
  if (pad == nullptr || pad->attributes.String("mode") != "constant" ||
      pad->attributes.Float("value") != 0) {
    return std::nullopt;
  }
  const Dims& low = pad->attributes.GetDims("low");
  const Dims& high = pad->attributes.GetDims("high");
  const Dims& interior = pad->attributes.GetDims("interior");
  Piece piece{pad->inputs[0]};
  for (size_t d = 0; d < low.size(); ++d) {
    if (interior[d] != 0 || low[d] < 0 || high[d] < 0) return std::nullopt;
    if (low[d] == 0 && high[d] == 0) continue;
    if (piece.axis >= 0) return std::nullopt;
    piece.axis = static_cast<int64_t>(d);
    piece.low = low[d];
    piece.high = low[d] + f.type(piece.value).dims[d];
  }
  return piece.axis < 0 ? std::nullopt : std::optional(piece);
}

// Replaces parts that are pieces along the axis of the first one by their concat.
void JoinPieces(Builder& builder, std::vector<ValueId>* parts) {
  std::vector<Piece> pieces;
  std::vector<ValueId> rest;
  for (ValueId part : *parts) {
    const std::optional<Piece> piece = PieceOf(builder.function(), part);
    if (piece && (pieces.empty() || pieces.front().axis == piece->axis)) {
      pieces.push_back(*piece);
    } else {
      rest.push_back(part);
    }
  }
  if (pieces.size() < 2) return;
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.low < b.low; });
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].low < pieces[i - 1].high) return;
  }
  const TensorType type = builder.type(parts->front());
  const int64_t axis = pieces.front().axis;
  const size_t at = static_cast<size_t>(axis);
  std::vector<ValueId> row;
  int64_t end = 0;
  const auto fill = [&](int64_t to) {
    if (to == end) return;
    Dims dims = type.dims;
    dims[at] = to - end;
    row.push_back(builder.Splat(type.dtype, dims, 0));
  };
  for (const Piece& piece : pieces) {
    fill(piece.low);
    row.push_back(piece.value);
    end = piece.high;
  }
  fill(type.dims[at]);
  rest.push_back(builder.Add1("concat", row, {{"axis", axis}}));
  *parts = std::move(rest);
}

ValueId Stack(Builder& builder, std::vector<ValueId> values) {
  Dims dims = builder.type(values.front()).dims;
  dims.insert(dims.begin(), 1);
  for (ValueId& v : values) v = builder.Reshape(v, dims);
  return builder.Add1("concat", values, {{"axis", int64_t{0}}});
}

// Replaces dots that agree with the first one by one dot that contracts over all of them.
void JoinDots(Builder& builder, std::vector<ValueId>* parts) {
  const Function& f = builder.function();
  const Node* first = nullptr;
  std::vector<ValueId> left;
  std::vector<ValueId> right;
  std::vector<ValueId> rest;
  for (ValueId part : *parts) {
    const Node* dot = ProducerOf(f, part, "dot");
    if (first == nullptr && dot != nullptr && !dot->source.empty()) first = dot;
    if (first == nullptr || dot == nullptr || dot->source != first->source ||
        dot->attributes.String("spec") != first->attributes.String("spec") ||
        f.type(dot->inputs[0]) != f.type(first->inputs[0]) ||
        f.type(dot->inputs[1]) != f.type(first->inputs[1])) {
      rest.push_back(part);
      continue;
    }
    left.push_back(dot->inputs[0]);
    right.push_back(dot->inputs[1]);
  }
  if (left.size() < kFewestDots) return;
  const std::string spec = first->attributes.String("spec");  // `first` moves with new nodes
  char letter = 'a';
  while (letter <= 'z' && spec.find(letter) != std::string::npos) ++letter;
  if (letter > 'z') return;
  const size_t comma = spec.find(',');
  const std::string stacked =
      std::string(1, letter) + spec.substr(0, comma + 1) + letter + spec.substr(comma + 1);
  rest.push_back(builder.Dot(stacked, Stack(builder, left), Stack(builder, right)));
  *parts = std::move(rest);
}

}  // namespace

ValueId SumContributions(Builder& builder, std::vector<ValueId> parts) {
  if (parts.size() > 1) JoinPieces(builder, &parts);
  if (parts.size() >= kFewestDots) JoinDots(builder, &parts);
  ValueId sum;
  for (ValueId part : parts) {
    sum = sum.valid() ? builder.Binary(ScalarOp::kAdd, sum, part) : part;
  }
  return sum;
}

}  // namespace hyper::ir
