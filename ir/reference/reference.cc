#include "ir/reference/reference.h"

#include "ir/reference/kernel.h"
#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

using reference::Call;
using reference::NamedKernel;

const NamedKernel* FindKernel(std::string_view op) {
  for (auto table :
       {reference::MapKernels, reference::DataMovementKernels, reference::ReductionKernels,
        reference::ContractionKernels, reference::LinearAlgebraKernels,
        reference::ConvolutionKernels, reference::PoolingKernels, reference::NormalizationKernels,
        reference::SoftmaxKernels, reference::IndexingKernels, reference::RandomKernels,
        reference::UpdateKernels}) {
    for (const NamedKernel& k : table()) {
      if (k.op == op) return &k;
    }
  }
  return nullptr;
}

bool IsHalf(DType d) { return d == DType::kF16 || d == DType::kBF16; }

// A tensor in memory of its own.
struct Buffer {
  TensorType type;
  std::vector<uint64_t> words;  // aligned for every element type
  std::byte* data() { return reinterpret_cast<std::byte*>(words.data()); }

  explicit Buffer(TensorType t) : type(std::move(t)) {
    words.resize(static_cast<size_t>(type.bytes() / 8 + 1));
  }
};

void Convert(const TensorType& from_type, const std::byte* from, DType to_type, std::byte* to) {
  for (int64_t i = 0; i < from_type.elements(); ++i) {
    reference::StoreScalar(to_type, to, i, reference::LoadScalar(from_type.dtype, from, i));
  }
}

// f16 and bf16 operands through f32 copies: sums are formed in more precision and rounded once.
Status RunWithHalf(const NamedKernel& kernel, const Attributes& attributes, int64_t op_id,
                   std::span<const ConstTensorRef> inputs, std::span<const TensorRef> outputs) {
  std::vector<Buffer> buffers;
  buffers.reserve(inputs.size() + outputs.size());  // references into it stay valid
  std::vector<ConstTensorRef> in(inputs.begin(), inputs.end());
  std::vector<TensorRef> out(outputs.begin(), outputs.end());
  for (ConstTensorRef& t : in) {
    if (!IsHalf(t.type->dtype)) continue;
    Buffer& b = buffers.emplace_back(TensorType{DType::kF32, t.type->dims});
    Convert(*t.type, t.data, DType::kF32, b.data());
    t = {&b.type, b.data()};
  }
  for (TensorRef& t : out) {
    if (!IsHalf(t.type->dtype)) continue;
    Buffer& b = buffers.emplace_back(TensorType{DType::kF32, t.type->dims});
    t = {&b.type, b.data()};
  }
  HYPER_RETURN_IF_ERROR(kernel.kernel(Call{attributes, op_id, in, out}));
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].type == outputs[i].type) continue;
    Convert(*out[i].type, out[i].data, outputs[i].type->dtype, outputs[i].data);
  }
  return Status::Ok();
}

Status RunKernel(const NamedKernel& kernel, const Attributes& attributes, int64_t op_id,
                 std::span<const ConstTensorRef> inputs, std::span<const TensorRef> outputs) {
  bool half = false;
  for (const ConstTensorRef& t : inputs) half = half || IsHalf(t.type->dtype);
  for (const TensorRef& t : outputs) half = half || IsHalf(t.type->dtype);
  if (half && !kernel.takes_half) return RunWithHalf(kernel, attributes, op_id, inputs, outputs);
  return kernel.kernel(Call{attributes, op_id, inputs, outputs});
}

}  // namespace

bool HasReference(std::string_view op) { return FindKernel(op) != nullptr; }

Status RunReference(const OpDef& op, const Attributes& attributes, int64_t op_id,
                    std::span<const ConstTensorRef> inputs, std::span<const TensorRef> outputs,
                    bool accumulate) {
  return Guard([&]() -> Status {
    const NamedKernel* kernel = FindKernel(op.name);
    if (kernel == nullptr) {
      return Unimplemented("no reference kernel for op '" + std::string(op.name) + "'");
    }
    if (!accumulate) return RunKernel(*kernel, attributes, op_id, inputs, outputs);
    HYPER_CHECK(op.accumulates, "op '" + std::string(op.name) + "' does not accumulate");
    std::vector<TensorRef> out(outputs.begin(), outputs.end());
    Buffer sum(*outputs[0].type);
    out[0] = {&sum.type, sum.data()};
    HYPER_RETURN_IF_ERROR(RunKernel(*kernel, attributes, op_id, inputs, out));
    const DType dtype = sum.type.dtype;
    for (int64_t i = 0; i < sum.type.elements(); ++i) {
      const ScalarValue a = reference::LoadScalar(dtype, outputs[0].data, i);
      const ScalarValue b = reference::LoadScalar(dtype, sum.data(), i);
      const Scalar args[2] = {{a.f, a.i}, {b.f, b.i}};
      const Scalar r = EvaluateScalar(ScalarOp::kAdd, dtype, args);
      reference::StoreScalar(dtype, outputs[0].data, i, {r.f, r.i});
    }
    return Status::Ok();
  });
}

Result<std::vector<HostTensor>> Evaluate(const Function& function,
                                         std::span<const HostTensor> arguments) {
  if (arguments.size() != function.arguments().size()) {
    return InvalidArgument("function @" + function.name() + " takes " +
                           std::to_string(function.arguments().size()) + " arguments, got " +
                           std::to_string(arguments.size()));
  }
  std::vector<HostTensor> values(static_cast<size_t>(function.value_count()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& a = function.arguments()[i];
    if (!arguments[i].defined() || arguments[i].type() != function.type(a.value)) {
      return InvalidArgument("argument '" + a.name + "' of @" + function.name() + " is " +
                             function.type(a.value).ToString() + ", got " +
                             (arguments[i].defined() ? arguments[i].type().ToString() : "nothing"));
    }
    values[static_cast<size_t>(a.value.index)] = arguments[i];
  }
  // Values are dropped after their last use, so that long functions do not hold everything.
  std::vector<int> last_use(values.size(), -1);
  for (size_t n = 0; n < function.order().size(); ++n) {
    for (ValueId v : function.node(function.order()[n]).inputs) {
      last_use[static_cast<size_t>(v.index)] = static_cast<int>(n);
    }
  }
  for (const FunctionResult& r : function.results()) {
    last_use[static_cast<size_t>(r.value.index)] = static_cast<int>(function.order().size());
  }
  for (size_t n = 0; n < function.order().size(); ++n) {
    const Node& node = function.node(function.order()[n]);
    std::vector<ConstTensorRef> inputs;
    for (ValueId v : node.inputs) {
      const HostTensor& t = values[static_cast<size_t>(v.index)];
      HYPER_CHECK(t.defined(), "value read before it is computed");
      inputs.push_back({&t.type(), t.bytes().data()});
    }
    std::vector<TensorRef> outputs;
    std::vector<HostTensor> results;
    for (ValueId v : node.outputs) {
      const TensorType& type = function.type(v);
      auto buffer = std::make_shared<Buffer>(type);
      std::byte* data = buffer->data();
      results.emplace_back(type, std::move(buffer), data);
      outputs.push_back({&type, data});
    }
    HYPER_RETURN_IF_ERROR(
        RunReference(*node.op, node.attributes, node.op_id, inputs, outputs)
            .WithContext("@" + function.name() + ", op '" + std::string(node.op->name) + "'"));
    for (size_t i = 0; i < results.size(); ++i) {
      const auto v = static_cast<size_t>(node.outputs[i].index);
      if (last_use[v] > static_cast<int>(n)) values[v] = std::move(results[i]);
    }
    for (ValueId v : node.inputs) {
      const auto i = static_cast<size_t>(v.index);
      if (last_use[i] == static_cast<int>(n)) values[i] = HostTensor();
    }
  }
  std::vector<HostTensor> out;
  for (const FunctionResult& r : function.results()) {
    out.push_back(values[static_cast<size_t>(r.value.index)]);
  }
  return out;
}

}  // namespace hyper::ir
