// Loss terms as core ops: the sum over a micro-batch and the number of its contributions.
#include "base/strings.h"
#include "ir/training.h"

namespace hyper::ir {
namespace {

std::string Describe(Builder& b, ValueId v) {
  const std::string& name = b.function().value(v).name;
  return (name.empty() ? std::string("a value") : "'" + name + "'") + " of type " +
         b.type(v).ToString();
}

ValueId SumAll(Builder& b, ValueId v) {
  Dims axes;
  for (int64_t d = 0; d < b.type(v).rank(); ++d) axes.push_back(d);
  return b.Reduce("sum", v, axes);
}

Status ExpectFloatPrediction(Builder& b, const LossTerm& term) {
  if (IsFloat(b.type(term.prediction).dtype)) return Status::Ok();
  return InvalidArgument(Describe(b, term.prediction) +
                         " cannot be a prediction, expected a "
                         "float tensor");
}

// Logits [.., C, ..] and labels [.., ..] -> [R, C] and [R].
Result<ValueId> CrossEntropySum(Builder& b, const LossTerm& term) {
  const TensorType logits = b.type(term.prediction);
  const TensorType labels = b.type(term.target);
  if (logits.rank() < 1) {
    return InvalidArgument("logits " + Describe(b, term.prediction) +
                           " have no class axis, expected rank 1 or more");
  }
  const int64_t axis = term.class_axis < 0 ? logits.rank() + term.class_axis : term.class_axis;
  if (axis < 0 || axis >= logits.rank()) {
    return InvalidArgument("class axis " + std::to_string(term.class_axis) + " of logits " +
                           Describe(b, term.prediction) + ", expected " +
                           std::to_string(-logits.rank()) + " to " +
                           std::to_string(logits.rank() - 1));
  }
  Dims rows = logits.dims;
  rows.erase(rows.begin() + axis);
  const bool index = labels.dtype == DType::kI32 || labels.dtype == DType::kI64;
  if (!index || labels.dims != rows) {
    return InvalidArgument("labels " + Describe(b, term.target) + " do not fit logits " +
                           Describe(b, term.prediction) + ", expected i32 or i64 of dims " +
                           FormatDims(rows) + " (all but the class axis " + std::to_string(axis) +
                           ")");
  }
  Dims perm;
  for (int64_t d = 0; d < logits.rank(); ++d) {
    if (d != axis) perm.push_back(d);
  }
  perm.push_back(axis);
  const int64_t count = ElementCount(rows);
  const ValueId x = b.Reshape(b.Transpose(term.prediction, perm),
                              {count, logits.dims[static_cast<size_t>(axis)]});
  Attributes attributes = {{"has_ignore", term.ignore_index.has_value()}};
  if (term.ignore_index) attributes.Set("ignore_index", *term.ignore_index);
  HYPER_ASSIGN_OR_RETURN(
      const std::vector<ValueId> loss,
      b.TryAdd("cross_entropy", {x, b.Reshape(term.target, {count})}, std::move(attributes)));
  return SumAll(b, loss[0]);
}

// Pointwise terms: target of the prediction's dims; integers and bools are cast.
Result<ValueId> PointwiseSum(Builder& b, const LossTerm& term) {
  const TensorType type = b.type(term.prediction);
  if (b.type(term.target).dims != type.dims) {
    return InvalidArgument("target " + Describe(b, term.target) + " does not fit prediction " +
                           Describe(b, term.prediction) + ", expected dims " +
                           FormatDims(type.dims));
  }
  const DType t = type.dtype;
  const ValueId target = b.Cast(t, term.target);
  ExprBuilder e;
  const int x = e.Input(0, t);
  const int z = e.Input(1, t);
  int root;
  if (term.kind == LossKind::kMse) {
    const int difference = e.Binary(ScalarOp::kSub, x, z);
    root = e.Binary(ScalarOp::kMul, difference, difference);
  } else {
    // max(x, 0) - x z + log(1 + exp(-|x|)) overflows nowhere.
    const int magnitude = e.Unary(ScalarOp::kAbs, x);
    const int tail =
        e.Unary(ScalarOp::kLog1p, e.Unary(ScalarOp::kExp, e.Unary(ScalarOp::kNeg, magnitude)));
    const int hinge = e.Binary(ScalarOp::kMax, x, e.Constant(t, 0));
    root = e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kSub, hinge, e.Binary(ScalarOp::kMul, x, z)),
                    tail);
  }
  return SumAll(b, b.Map(e.Build(root), {term.prediction, target}));
}

Result<ValueId> OutputSum(Builder& b, const LossTerm& term) {
  if (b.type(term.prediction).elements() != 1) {
    return InvalidArgument("output " + Describe(b, term.prediction) +
                           " cannot be a loss, expected one element");
  }
  return b.Reshape(term.prediction, {});
}

}  // namespace

Result<ValueId> AppendLossSum(Builder& builder, const LossTerm& term) {
  return Guard([&]() -> Result<ValueId> {
    auto sum = [&]() -> Result<ValueId> {
      HYPER_RETURN_IF_ERROR(ExpectFloatPrediction(builder, term));
      switch (term.kind) {
        case LossKind::kCrossEntropy: return CrossEntropySum(builder, term);
        case LossKind::kMse:
        case LossKind::kBceWithLogits: return PointwiseSum(builder, term);
        case LossKind::kOutput: return OutputSum(builder, term);
      }
      return Internal("unknown loss kind");
    }();
    if (!sum.ok()) return sum.status().WithContext("loss term '" + term.name + "'");
    return sum;
  });
}

Result<LossCount> AppendLossCount(Builder& builder, const LossTerm& term, ValueId target) {
  if (term.kind == LossKind::kOutput) return LossCount{{}, 1};
  const TensorType type = builder.type(target);
  if (term.kind != LossKind::kCrossEntropy || !term.ignore_index) {
    return LossCount{{}, type.elements()};
  }
  if (type.dtype != DType::kI32 && type.dtype != DType::kI64) {
    return InvalidArgument("loss term '" + term.name + "': labels " + Describe(builder, target) +
                           ", expected i32 or i64");
  }
  return Guard([&]() -> Result<LossCount> {
    ExprBuilder e;
    const int counts = e.Binary(ScalarOp::kNe, e.Input(0, type.dtype),
                                e.ConstantInt(type.dtype, *term.ignore_index));
    const ValueId ones = builder.Map(e.Build(e.Cast(DType::kI64, counts)), {target});
    return LossCount{SumAll(builder, ones), 0};
  });
}

}  // namespace hyper::ir
