#include "frontend/onnx/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/strings.h"
#include "frontend/onnx/tensor_data.h"
#include "ir/reference/reference.h"

namespace hyper::onnx_frontend {

using ir::Dims;
using ir::HostTensor;
using ir::ValueId;

const ImportTarget* ImportTable::Find(std::string_view domain, std::string_view op) const {
  for (const ImportTarget& target : targets_) {
    if (target.op == op && target.domain == domain) return &target;
  }
  return nullptr;
}

const ImportTable& ImportTargets() {
  static const ImportTable* table = [] {
    auto* t = new ImportTable();
    RegisterElementwiseImporters(*t);
    RegisterBitsImporters(*t);
    RegisterActivationImporters(*t);
    RegisterContractionImporters(*t);
    RegisterConvolutionImporters(*t);
    RegisterPoolingImporters(*t);
    RegisterResizeImporters(*t);
    RegisterSamplingImporters(*t);
    RegisterSignalImporters(*t);
    RegisterQuantizationImporters(*t);
    RegisterReductionImporters(*t);
    RegisterNormalizationImporters(*t);
    RegisterShapeImporters(*t);
    RegisterDataMovementImporters(*t);
    RegisterIndexingImporters(*t);
    RegisterScatterImporters(*t);
    RegisterLossImporters(*t);
    RegisterControlFlowImporters(*t);
    RegisterSequenceImporters(*t);
    RegisterRecurrentImporters(*t);
    RegisterTrainingImporters(*t);
    RegisterContribNormImporters(*t);
    RegisterContribAttentionImporters(*t);
    return t;
  }();
  return *table;
}

void Fail(std::string message) { throw ImportError(InvalidArgument(std::move(message))); }
void Refuse(Refusal reason, std::string_view detail, ValueId needed) {
  throw ImportError(RefusalStatus(reason, detail), needed);
}
void Unsupported(std::string_view detail) { Refuse(Refusal::kLimit, detail); }

int NormalAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    Fail(fmt::format("axis {} of a tensor of rank {}", axis, rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> NormalAxes(std::span<const int64_t> axes, int rank) {
  std::vector<int> normal;
  for (int64_t axis : axes) normal.push_back(NormalAxis(axis, rank));
  std::sort(normal.begin(), normal.end());
  if (std::adjacent_find(normal.begin(), normal.end()) != normal.end()) {
    Fail(fmt::format("axes {} name a dim twice", FormatDims(axes)));
  }
  return normal;
}

void CheckDims(const Dims& dims) { OrFail(CheckedElementCount(dims, int64_t{1} << 40)); }

std::optional<double> SplatValue(const Tensor& tensor) {
  const int64_t elements = tensor.type.elements();
  if (!tensor.known || elements == 0) return std::nullopt;
  const std::span<const std::byte> bytes = tensor.constant.bytes();
  const size_t size = static_cast<size_t>(ir::DTypeBytes(tensor.type.dtype));
  // Equal neighbours everywhere: compare the data with itself shifted by one element.
  if (std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) != 0) return std::nullopt;
  if (ir::IsFloat(tensor.type.dtype)) return tensor.constant.ElementAsDouble(0);
  const int64_t value = tensor.constant.ElementAsInt(0);
  constexpr int64_t kExact = int64_t{1} << 53;
  if (value > kExact || value < -kExact) return std::nullopt;  // not exact as a double
  return static_cast<double>(value);
}

ValueId Materialise(ir::Builder& builder, Tensor& tensor) {
  if (tensor.value.valid()) return tensor.value;
  if (!tensor.is_tensor()) Refuse(Refusal::kSequences, "a tensor is expected");
  HYPER_CHECK(tensor.known, "a tensor is neither computed nor known");
  const std::optional<double> splat = SplatValue(tensor);
  tensor.value = splat.has_value() && tensor.type.elements() > 1
                     ? builder.Splat(tensor.type.dtype, tensor.type.dims, *splat)
                     : builder.Constant(tensor.constant);
  return tensor.value;
}

namespace {

std::vector<ValueId> MaterialiseAll(ir::Builder& builder, std::vector<Tensor>& tensors) {
  std::vector<ValueId> values;
  for (Tensor& t : tensors) values.push_back(Materialise(builder, t));
  return values;
}

}  // namespace

NodeContext::NodeContext(const onnx::NodeProto& node, int opset, int since, const ImportMode& mode,
                         ir::Builder* builder, std::vector<Tensor*> inputs,
                         const Services* services, ImportEvents* events)
    : node_(node),
      opset_(opset),
      since_(since),
      mode_(mode),
      builder_(builder),
      inputs_(std::move(inputs)),
      services_(services),
      events_(events),
      outputs_(static_cast<size_t>(node.output_size())) {}

Tensor& NodeContext::Require(int i) const {
  if (!Has(i)) Fail(fmt::format("operand {} is missing", i));
  Tensor& tensor = *inputs_[static_cast<size_t>(i)];
  if (!tensor.is_tensor()) {
    Refuse(Refusal::kSequences, fmt::format("operand {} is no tensor", i));
  }
  return tensor;
}

ValueId NodeContext::In(int i) { return Materialise(*builder_, Require(i)); }
const ir::TensorType& NodeContext::Type(int i) const { return Require(i).type; }
const Tensor& NodeContext::Operand(int i) const { return Require(i); }
const Tensor& NodeContext::AnyOperand(int i) const {
  if (!Has(i)) Fail(fmt::format("operand {} is missing", i));
  return *inputs_[static_cast<size_t>(i)];
}

const HostTensor* NodeContext::Known(int i) const {
  const Tensor& tensor = Require(i);
  return tensor.known ? &tensor.constant : nullptr;
}

const HostTensor& NodeContext::RequireKnown(int i, std::string_view what) const {
  const HostTensor* known = Known(i);
  if (known == nullptr) {
    Refuse(Refusal::kDataShapes,
           fmt::format("{} ('{}') depends on data; it must be known at compile time", what,
                       node_.input(i)),
           Require(i).value);
  }
  return *known;
}

std::vector<int64_t> NodeContext::Ints(int i, std::string_view what) const {
  const HostTensor& known = RequireKnown(i, what);
  if (!ir::IsInteger(known.type().dtype)) {
    Fail(fmt::format("{} has type {}; integers are expected", what, known.type().ToString()));
  }
  std::vector<int64_t> values;
  for (int64_t k = 0; k < known.type().elements(); ++k) values.push_back(known.ElementAsInt(k));
  return values;
}

double NodeContext::Scalar(int i, std::string_view what) const {
  const HostTensor& known = RequireKnown(i, what);
  if (known.type().elements() != 1) {
    Fail(fmt::format("{} has type {}; one value is expected", what, known.type().ToString()));
  }
  return ir::IsFloat(known.type().dtype) ? known.ElementAsDouble(0)
                                         : static_cast<double>(known.ElementAsInt(0));
}

const onnx::AttributeProto* NodeContext::Attribute(std::string_view name) const {
  for (const onnx::AttributeProto& attribute : node_.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

int64_t NodeContext::Int(std::string_view name, int64_t fallback) const {
  const auto* a = Attribute(name);
  return a == nullptr ? fallback : a->i();
}
double NodeContext::Float(std::string_view name, double fallback) const {
  const auto* a = Attribute(name);
  return a == nullptr ? fallback : static_cast<double>(a->f());
}
std::string NodeContext::String(std::string_view name, std::string fallback) const {
  const auto* a = Attribute(name);
  if (a == nullptr) return fallback;
  return a->s();
}
std::vector<int64_t> NodeContext::IntList(std::string_view name,
                                          std::vector<int64_t> fallback) const {
  const auto* a = Attribute(name);
  if (a == nullptr) return fallback;
  return {a->ints().begin(), a->ints().end()};
}

std::optional<std::vector<int64_t>> NodeContext::Axes(int input) const {
  if (Has(input)) return Ints(input, "the list of axes");
  if (const auto* a = Attribute("axes"); a != nullptr) {
    return std::vector<int64_t>(a->ints().begin(), a->ints().end());
  }
  return std::nullopt;
}

std::vector<ValueId> NodeContext::Add(std::string_view op, std::vector<ValueId> inputs,
                                      ir::Attributes attributes) {
  return OrFail(builder_->TryAdd(op, std::move(inputs), std::move(attributes)));
}

ValueId NodeContext::Add1(std::string_view op, std::vector<ValueId> inputs,
                          ir::Attributes attributes) {
  return Add(op, std::move(inputs), std::move(attributes)).front();
}

ValueId NodeContext::MapTensors(std::vector<Tensor> operands, const ExprFunction& body) {
  Dims dims;
  for (const Tensor& t : operands) dims = OrFail(ir::BroadcastDims(dims, t.type.dims));
  std::vector<std::optional<double>> splats;
  bool any_value = false;
  for (const Tensor& t : operands) {
    splats.push_back(SplatValue(t));
    any_value = any_value || !splats.back().has_value();
  }
  if (!any_value) splats.front() = std::nullopt;  // a map needs an operand
  ir::ExprBuilder e;
  std::vector<int> arguments;
  std::vector<ValueId> values;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::DType dtype = operands[i].type.dtype;
    if (splats[i].has_value()) {
      arguments.push_back(ir::IsFloat(dtype)
                              ? e.Constant(dtype, *splats[i])
                              : e.ConstantInt(dtype, static_cast<int64_t>(*splats[i])));
      continue;
    }
    const ValueId value = b().BroadcastNumpy(Materialise(b(), operands[i]), dims);
    const auto same = std::find(values.begin(), values.end(), value);
    arguments.push_back(e.Input(static_cast<int>(same - values.begin()), dtype));
    if (same == values.end()) values.push_back(value);
  }
  const ir::Expr expr = e.Build(body(e, arguments));
  if (expr.root().op == ir::ScalarOp::kInput) {
    return values[static_cast<size_t>(expr.root().input)];
  }
  return Add1("map", values, {{"expr", expr}});
}

ValueId NodeContext::MapInputs(const std::vector<int>& operands, const ExprFunction& body) {
  std::vector<Tensor> tensors;
  tensors.reserve(operands.size());
  for (int i : operands) tensors.push_back(Require(i));
  return MapTensors(std::move(tensors), body);
}

ValueId NodeContext::MapValues(const std::vector<ValueId>& operands, const ExprFunction& body) {
  std::vector<Tensor> tensors;
  tensors.reserve(operands.size());
  for (ValueId v : operands) tensors.push_back({b().type(v), v, {}, false});
  return MapTensors(std::move(tensors), body);
}

ValueId NodeContext::Reshape(ValueId x, Dims dims) {
  CheckDims(dims);
  const ir::TensorType& type = b().type(x);
  if (ir::ElementCount(dims) != type.elements()) {
    Fail(fmt::format("cannot reshape {} to {}: {} elements against {}", FormatDims(type.dims),
                     FormatDims(dims), type.elements(), ir::ElementCount(dims)));
  }
  return b().Reshape(x, std::move(dims));
}

ValueId NodeContext::BroadcastTo(ValueId x, const Dims& dims) {
  CheckDims(dims);
  const Dims both = OrFail(ir::BroadcastDims(b().type(x).dims, dims));
  if (both != dims) {
    Fail(
        fmt::format("{} does not broadcast to {}", FormatDims(b().type(x).dims), FormatDims(dims)));
  }
  return b().BroadcastNumpy(x, dims);
}

void NodeContext::Out(int i, ValueId value) {
  if (i >= node_.output_size()) return;
  outputs_[static_cast<size_t>(i)] = {b().type(value), value, {}, false};
}

void NodeContext::OutConstant(int i, HostTensor value) {
  if (i >= node_.output_size()) return;
  const ir::TensorType type = value.type();
  outputs_[static_cast<size_t>(i)] = {type, {}, std::move(value), true};
}

void NodeContext::OutTensor(int i, Tensor tensor) {
  if (i >= node_.output_size()) return;
  outputs_[static_cast<size_t>(i)] = std::move(tensor);
}

Tensor NodeContext::Compute(std::string_view op, std::vector<Tensor> operands,
                            ir::Attributes attributes) {
  constexpr int64_t kMaxElements = 1 << 16;
  const bool known = std::all_of(operands.begin(), operands.end(), [](const Tensor& t) {
    return t.known && t.type.elements() <= kMaxElements;
  });
  if (known) {
    ir::Function scratch("fold");
    ir::Builder builder(&scratch);
    std::vector<ValueId> values;
    for (const Tensor& t : operands) values.push_back(builder.Constant(t.constant));
    const ValueId result = OrFail(builder.TryAdd(op, values, attributes)).front();
    if (scratch.type(result).elements() <= kMaxElements) {
      scratch.AddResult(result, "y");
      const HostTensor value = OrFail(ir::Evaluate(scratch, {})).front();
      return {value.type(), {}, value, true};
    }
  }
  const ValueId value = Add1(op, MaterialiseAll(*builder_, operands), std::move(attributes));
  return {b().type(value), value, {}, false};
}

Tensor NodeContext::ComputeReshape(Tensor x, const Dims& dims) {
  if (x.type.dims == dims) return x;
  return Compute("reshape", {std::move(x)}, {{"shape", dims}});
}

void NodeContext::Forward(int i, int input) {
  if (i >= node_.output_size()) return;
  outputs_[static_cast<size_t>(i)] = Require(input);
}

}  // namespace hyper::onnx_frontend
