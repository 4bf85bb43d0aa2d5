// Losses that stand in the graph.
#include <fmt/format.h>

#include <numeric>

#include "base/strings.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

// [N, C, d...] -> rows [N*d..., C], as in the labels' order.
ValueId Rows(NodeContext& c, ValueId x) {
  const Dims dims = c.b().type(x).dims;
  if (dims.size() < 2) Fail("the input must have rank 2 or more");
  Dims perm = {0};
  for (size_t i = 2; i < dims.size(); ++i) perm.push_back(static_cast<int64_t>(i));
  perm.push_back(1);
  const int64_t classes = dims[1];
  const int64_t rows = classes == 0 ? 0 : ir::ElementCount(dims) / classes;
  return c.Reshape(c.b().Transpose(x, perm), {rows, classes});
}

struct Labels {
  ValueId value;  // i64[R]
  Dims dims;      // of the label tensor
  bool has_ignore = false;
  int64_t ignore = 0;
};

Labels ReadLabels(NodeContext& c) {
  const Dims x = c.Shape(0);
  Labels labels;
  labels.dims = x;
  labels.dims.erase(labels.dims.begin() + 1);
  if (c.Shape(1) != labels.dims) {
    Fail(fmt::format("labels have shape {}, expected {}", FormatDims(c.Shape(1)),
                     FormatDims(labels.dims)));
  }
  labels.value = c.Reshape(c.b().Cast(DType::kI64, c.In(1)), {ir::ElementCount(labels.dims)});
  labels.has_ignore = c.Attribute("ignore_index") != nullptr;
  labels.ignore = c.Int("ignore_index", -1);
  return labels;
}

// Applies class weights and the reduction to the losses [R] of the rows (0 for ignored ones).
void Reduce(NodeContext& c, ValueId loss, const Labels& labels) {
  const DType dtype = c.b().type(loss).dtype;
  const int64_t rows = c.b().type(loss).dims[0];
  ValueId weight;
  if (c.Has(2) || labels.has_ignore) {
    ValueId safe = labels.value;
    ValueId counts;
    if (labels.has_ignore) {
      auto ignored = [&](ExprBuilder& e, int label) {
        return e.Binary(ScalarOp::kEq, label, e.ConstantInt(DType::kI64, labels.ignore));
      };
      safe = c.MapValues({labels.value}, [&](ExprBuilder& e, Args a) {
        return e.Select(ignored(e, a[0]), e.ConstantInt(DType::kI64, 0), a[0]);
      });
      counts = c.MapValues({labels.value}, [&](ExprBuilder& e, Args a) {
        return e.Select(ignored(e, a[0]), e.Constant(dtype, 0), e.Constant(dtype, 1));
      });
    }
    if (c.Has(2)) {
      weight = c.Add1("gather", {c.In(2), safe}, {{"axis", int64_t{0}}});
      if (counts.valid()) weight = c.b().Binary(ScalarOp::kMul, weight, counts);
    } else {
      weight = counts;
    }
    loss = c.b().Binary(ScalarOp::kMul, loss, weight);
  }
  const std::string reduction = c.String("reduction", "mean");
  if (reduction == "none") {
    c.Out(0, c.Reshape(loss, labels.dims));
    return;
  }
  const ValueId sum = c.b().Reduce("sum", loss, {0});
  if (reduction == "sum") {
    c.Out(0, sum);
    return;
  }
  if (reduction != "mean") Fail(fmt::format("reduction '{}'", reduction));
  if (!weight.valid()) {
    c.Out(0, c.b().BinaryConstant(ScalarOp::kDiv, sum, static_cast<double>(rows)));
    return;
  }
  // Without a label that counts the loss is 0 and so is its gradient, as for losses of the
  // strategy; the standard leaves 0 / 0 open.
  c.Out(0, c.MapValues({sum, c.b().Reduce("sum", weight, {0})}, [&](ExprBuilder& e, Args a) {
    const int none = e.Binary(ScalarOp::kEq, a[1], e.Constant(dtype, 0));
    return e.Binary(ScalarOp::kDiv, a[0], e.Select(none, e.Constant(dtype, 1), a[1]));
  }));
}

void SoftmaxCrossEntropyLoss(NodeContext& c) {
  const Labels labels = ReadLabels(c);
  const auto loss = c.Add("cross_entropy", {Rows(c, c.In(0)), labels.value},
                          {{"ignore_index", labels.ignore}, {"has_ignore", labels.has_ignore}});
  Reduce(c, loss[0], labels);
  if (c.HasOutput(1)) c.Out(1, c.Add1("log_softmax", {c.In(0)}, {{"axis", int64_t{1}}}));
}

void NegativeLogLikelihoodLoss(NodeContext& c) {
  const Labels labels = ReadLabels(c);
  const ValueId rows = Rows(c, c.In(0));
  ValueId safe = labels.value;
  if (labels.has_ignore) {
    safe = c.MapValues({safe}, [&](ExprBuilder& e, Args a) {
      const int ignored = e.Binary(ScalarOp::kEq, a[0], e.ConstantInt(DType::kI64, labels.ignore));
      return e.Select(ignored, e.ConstantInt(DType::kI64, 0), a[0]);
    });
  }
  const int64_t count = c.b().type(safe).dims[0];
  const ValueId picked =
      c.Add1("gather_elements", {rows, c.Reshape(safe, {count, 1})}, {{"axis", int64_t{1}}});
  Reduce(c, c.b().Unary(ScalarOp::kNeg, c.Reshape(picked, {count})), labels);
}

}  // namespace

void RegisterLossImporters(ImportTable& t) {
  t.Add({"SoftmaxCrossEntropyLoss", 12, 13, SoftmaxCrossEntropyLoss,
         "cross_entropy; mean divides by the weights of the labels that count"});
  t.Add({"NegativeLogLikelihoodLoss", 12, 22, NegativeLogLikelihoodLoss,
         "gather_elements, map, reduce"});
}

}  // namespace hyper::onnx_frontend
