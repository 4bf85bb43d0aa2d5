// How one ONNX op becomes core ops: the record per op, and what an importer function works with.
// Adding an op is one function and one record in importers_<family>.cc.
// Thread safety: the table is immutable; a NodeContext belongs to one import.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "frontend/onnx/refusal.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace hyper::onnx_frontend {

// What every family of importers speaks of.
using ir::Dims;
using ir::DType;
using ir::ExprBuilder;
using ir::ScalarOp;
using ir::ValueId;
using Args = std::span<const int>;  // operands of an expression under construction

class NodeContext;

struct ImportTarget {
  std::string_view op;
  int oldest = 1;  // since-versions understood: oldest <= since-version <= newest
  int newest = 1;
  void (*import)(NodeContext&) = nullptr;
  std::string_view doc;              // which core ops it becomes, what is refused
  std::vector<int> constant_inputs;  // must be known at compile time; never parameters
  std::vector<int> weight_inputs;    // anonymous constants there are trained too
  std::string_view no_gradient;      // why it passes no gradient, or empty
  std::string_view domain;           // "" for the default domain
  // Takes operands that are no tensors (sequences, empty optionals) and runs where all operands are
  // known without being computed apart: operators that only arrange what others compute.
  bool structural = false;
};

class ImportTable {
 public:
  void Add(ImportTarget target) { targets_.push_back(std::move(target)); }
  const ImportTarget* Find(std::string_view domain, std::string_view op) const;
  const std::vector<ImportTarget>& targets() const { return targets_; }

 private:
  std::vector<ImportTarget> targets_;
};
// Every ONNX op with an importer of its own; other ops go through ONNX's function bodies.
const ImportTable& ImportTargets();

void RegisterElementwiseImporters(ImportTable& table);
void RegisterBitsImporters(ImportTable& table);
void RegisterActivationImporters(ImportTable& table);
void RegisterContractionImporters(ImportTable& table);
void RegisterConvolutionImporters(ImportTable& table);
void RegisterPoolingImporters(ImportTable& table);
void RegisterResizeImporters(ImportTable& table);
void RegisterSamplingImporters(ImportTable& table);
void RegisterSignalImporters(ImportTable& table);
void RegisterQuantizationImporters(ImportTable& table);
void RegisterReductionImporters(ImportTable& table);
void RegisterNormalizationImporters(ImportTable& table);
void RegisterShapeImporters(ImportTable& table);
void RegisterDataMovementImporters(ImportTable& table);
void RegisterIndexingImporters(ImportTable& table);
void RegisterScatterImporters(ImportTable& table);
void RegisterLossImporters(ImportTable& table);
void RegisterControlFlowImporters(ImportTable& table);
void RegisterSequenceImporters(ImportTable& table);
void RegisterRecurrentImporters(ImportTable& table);
void RegisterTrainingImporters(ImportTable& table);
void RegisterContribNormImporters(ImportTable& table);
void RegisterContribAttentionImporters(ImportTable& table);

// Raised by importers, caught by the driver, which adds the node's name. Never leaves the library.
class ImportError : public std::exception {
 public:
  // `needed`: the value that must be known at compile time and is not.
  explicit ImportError(Status status, ir::ValueId needed = {})
      : status_(std::move(status)), needed_(needed) {}
  const Status& status() const { return status_; }
  ir::ValueId needed() const { return needed_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
  ir::ValueId needed_;
};
[[noreturn]] void Fail(std::string message);  // the model is wrong
// Right, but refused; `needed` as in ImportError.
[[noreturn]] void Refuse(Refusal reason, std::string_view detail, ir::ValueId needed = {});
// Refusal::kLimit: an attribute or a size that the operator's importer does not take.
[[noreturn]] void Unsupported(std::string_view detail);
// Inside a subgraph that was reported already: nothing more to say about the node that holds it.
class ReportedError : public std::exception {};
template <typename T>
T OrFail(Result<T> result) {
  if (!result.ok()) throw ImportError(result.status());
  return std::move(result).value();
}

// What a tensor name of the model stands for during import.
struct Tensor {
  ir::TensorType type;
  ir::ValueId value;        // invalid until needed as a value (constants are added lazily)
  ir::HostTensor constant;  // defined when known at compile time
  bool known = false;
  // A sequence: its elements; `type` is that of an element, or of none with the dims empty. Then
  // and for an optional without a value (`absent`) there is no value and nothing known.
  std::shared_ptr<const std::vector<Tensor>> sequence = nullptr;
  bool absent = false;

  bool is_tensor() const { return sequence == nullptr && !absent; }
};

// What the importers of nodes with state report back, collected by the driver.
struct ImportEvents {
  struct Statistic {
    std::string state;
    ir::ValueId batch_value;
    double momentum = 0;
  };
  std::vector<Statistic> statistics;
  std::vector<std::string> notes;
};

struct ImportMode {
  bool training = false;           // building @step
  bool literal = false;            // BatchNormalization/Dropout exactly as the file says
  bool unbiased_variance = false;  // running variance as PyTorch keeps it
  bool double_precision = false;   // f32 of the file is f64 of the program
};

// Nodes that unrolled loops may import for one function of the program, over all of them.
inline constexpr int64_t kMaxUnrolledNodes = 500'000;

using ExprFunction = std::function<int(ir::ExprBuilder&, std::span<const int>)>;

// One node while it is imported. Operands are counted from 0; an absent optional operand is one
// with an empty name or beyond the end.
class NodeContext {
 public:
  struct Services {                    // provided by the driver
    std::function<ir::ValueId()> rng;  // the kRng argument
    // How the tensor behind operand i is held across steps.
    std::function<std::optional<ir::ArgumentKind>(int)> persistent_kind;
    std::function<std::string(int)> persistent_name;
    // Imports a subgraph of the node with these operands for its inputs and returns its outputs.
    // `label` ("iteration 3") tells repeated imports of one graph apart in names and messages.
    // Raises ReportedError when something in it failed.
    std::function<std::vector<Tensor>(const onnx::GraphProto&, std::vector<Tensor>,
                                      const std::string& label)>
        subgraph;
    // Takes `nodes` from the number of nodes that unrolling may still make; false: too many.
    std::function<bool(int64_t)> reserve_nodes;
    // The tensor `output` of the graph computed anew with `values` for the tensors `inputs`, and
    // the derivatives of its sum by the first `wanted` of them.
    std::function<std::vector<ir::ValueId>(const std::vector<std::string>& inputs,
                                           std::vector<Tensor> values, int wanted,
                                           const std::string& output)>
        derivatives;
  };

  NodeContext(const onnx::NodeProto& node, int opset, int since, const ImportMode& mode,
              ir::Builder* builder, std::vector<Tensor*> inputs, const Services* services,
              ImportEvents* events);

  const onnx::NodeProto& node() const { return node_; }
  int opset() const { return opset_; }
  int since() const { return since_; }  // since-version of the op's schema
  const ImportMode& mode() const { return mode_; }
  const Services& services() const { return *services_; }
  ImportEvents& events() { return *events_; }
  ir::Builder& b() { return *builder_; }

  int input_count() const { return static_cast<int>(inputs_.size()); }
  bool Has(int i) const { return i < input_count() && inputs_[static_cast<size_t>(i)] != nullptr; }
  bool HasOutput(int i) const { return i < node_.output_size() && !node_.output(i).empty(); }
  ir::ValueId In(int i);                    // fails when absent
  const ir::TensorType& Type(int i) const;  // fails when absent
  const ir::Dims& Shape(int i) const { return Type(i).dims; }
  // The operand's value when known at compile time, else null.
  const ir::HostTensor* Known(int i) const;
  // The same, failing with `what` ("the target shape") when it depends on data.
  const ir::HostTensor& RequireKnown(int i, std::string_view what) const;
  std::vector<int64_t> Ints(int i, std::string_view what) const;  // of a known integer operand
  double Scalar(int i, std::string_view what) const;              // of a known one-element operand

  const onnx::AttributeProto* Attribute(std::string_view name) const;
  int64_t Int(std::string_view name, int64_t fallback) const;
  double Float(std::string_view name, double fallback) const;
  std::string String(std::string_view name, std::string fallback) const;
  std::vector<int64_t> IntList(std::string_view name, std::vector<int64_t> fallback) const;
  // Axes given as attribute (older versions) or as operand `input`; nullopt: not given.
  std::optional<std::vector<int64_t>> Axes(int input) const;

  // Checked node builders: the op's own message becomes an import error.
  std::vector<ir::ValueId> Add(std::string_view op, std::vector<ir::ValueId> inputs,
                               ir::Attributes attributes = {});
  ir::ValueId Add1(std::string_view op, std::vector<ir::ValueId> inputs,
                   ir::Attributes attributes = {});
  // Element-wise over operands, broadcast as numpy does; constants of one value become part of
  // the expression.
  ir::ValueId MapInputs(const std::vector<int>& operands, const ExprFunction& body);
  ir::ValueId MapValues(const std::vector<ir::ValueId>& operands, const ExprFunction& body);
  ir::ValueId MapTensors(std::vector<Tensor> operands, const ExprFunction& body);
  ir::ValueId Reshape(ir::ValueId x, ir::Dims dims);  // fails on another number of elements
  ir::ValueId BroadcastTo(ir::ValueId x, const ir::Dims& dims);
  const Tensor& Operand(int i) const;     // fails when absent or no tensor
  const Tensor& AnyOperand(int i) const;  // fails when absent
  // The op over tensors: computed now when all are known and the result is small.
  Tensor Compute(std::string_view op, std::vector<Tensor> operands, ir::Attributes attributes = {});
  Tensor ComputeReshape(Tensor x, const ir::Dims& dims);  // the same number of elements

  void Out(int i, ir::ValueId value);
  void OutConstant(int i, ir::HostTensor value);
  void OutTensor(int i, Tensor tensor);  // known or not, sequences and absent ones too
  // Output i is operand `input`, known or not.
  void Forward(int i, int input);
  const std::vector<Tensor>& outputs() const { return outputs_; }

 private:
  Tensor& Require(int i) const;
  const onnx::NodeProto& node_;
  int opset_;
  int since_;
  const ImportMode& mode_;
  ir::Builder* builder_;
  std::vector<Tensor*> inputs_;
  const Services* services_;
  ImportEvents* events_;
  std::vector<Tensor> outputs_;
};

// axis in [-rank, rank) -> [0, rank); fails naming both.
int NormalAxis(int64_t axis, int rank);
std::vector<int> NormalAxes(std::span<const int64_t> axes, int rank);  // sorted, without repeats
// Fails when `dims` is negative or holds more elements than an address can.
void CheckDims(const ir::Dims& dims);
// Adds the known tensor to the function once. Refuses what is no tensor.
ir::ValueId Materialise(ir::Builder& builder, Tensor& tensor);
// True with the value when every element of a known tensor is the same (and there is one).
std::optional<double> SplatValue(const Tensor& tensor);

}  // namespace hyper::onnx_frontend
