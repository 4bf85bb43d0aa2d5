// If, Loop and Scan whose condition or number of steps is known at compile time: the branch that is
// taken, or the body once per step. Nothing of them is left in the program.
#include <fmt/format.h>

#include <algorithm>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {
namespace {

using ir::HostTensor;

Tensor KnownTensor(HostTensor value) { return {value.type(), {}, std::move(value), true}; }

const onnx::GraphProto& Subgraph(const NodeContext& c, std::string_view name) {
  const onnx::AttributeProto* a = c.Attribute(name);
  if (a == nullptr || !a->has_g()) Fail(fmt::format("attribute '{}' is missing", name));
  return a->g();
}

bool KnownCondition(const Tensor& condition, std::string_view what) {
  if (!condition.is_tensor() || condition.type.elements() != 1 ||
      condition.type.dtype != DType::kBool) {
    Fail(fmt::format("{} is {}; one bool is expected", what, condition.type.ToString()));
  }
  if (!condition.known) {
    Refuse(Refusal::kDataControlFlow, fmt::format("{} is computed from data", what),
           condition.value);
  }
  return condition.constant.ElementAsInt(0) != 0;
}

void Reserve(NodeContext& c, const onnx::GraphProto& body, int64_t step, std::string_view steps) {
  if (c.services().reserve_nodes(std::max(1, body.node_size()))) return;
  Unsupported(
      fmt::format("unrolling makes too many nodes: step {} of {} of a body of {} nodes does not "
                  "fit any more",
                  step, steps, body.node_size()));
}

// Refuses at once what cannot fit in the end, instead of half a million nodes later.
void CheckSteps(const onnx::GraphProto& body, int64_t steps) {
  const int64_t nodes = std::max(1, body.node_size());
  if (steps > kMaxUnrolledNodes / nodes) {
    Unsupported(fmt::format("unrolling {} steps of a body of {} nodes makes more than {} nodes",
                            steps, nodes, kMaxUnrolledNodes));
  }
}

// The condition that a loop's body returns is the one it got: nothing in it ends the loop.
bool PassesConditionOn(const onnx::GraphProto& body) {
  std::string name = body.output(0).name();
  for (int n = body.node_size() - 1; n >= 0; --n) {
    const onnx::NodeProto& node = body.node(n);
    if (node.op_type() == "Identity" && node.domain().empty() && node.input_size() == 1 &&
        node.output_size() == 1 && node.output(0) == name) {
      name = node.input(0);
    }
  }
  return name == body.input(1).name();
}

void If(NodeContext& c) {
  const bool taken =
      KnownCondition(c.AnyOperand(0), fmt::format("the condition ('{}')", c.node().input(0)));
  const std::string name = taken ? "then_branch" : "else_branch";
  const onnx::GraphProto& branch = Subgraph(c, name);
  if (branch.output_size() < c.node().output_size()) {
    Fail(fmt::format("{} has {} outputs, the node {}", name, branch.output_size(),
                     c.node().output_size()));
  }
  const std::vector<Tensor> outputs = c.services().subgraph(branch, {}, "its " + name);
  for (int i = 0; i < c.node().output_size(); ++i) {
    c.OutTensor(i, outputs[static_cast<size_t>(i)]);
  }
}

// One tensor per step, stacked along a new dim `axis` of the result (below zero: from its end).
// `declared`: the subgraph's output, for its type when there is no step.
Tensor Stack(NodeContext& c, std::vector<Tensor> steps, int64_t axis,
             const onnx::ValueInfoProto& declared) {
  if (steps.empty()) {
    const auto& type = declared.type().tensor_type();
    const auto dtype = DTypeFromOnnx(type.elem_type());
    if (!dtype.has_value() || !type.has_shape()) {
      Refuse(Refusal::kDataShapes,
             fmt::format("no step is run and '{}' declares no shape", declared.name()));
    }
    Dims dims;
    for (const auto& dim : type.shape().dim()) {
      // Nothing can tell the extent of a dim that is free; there are no elements in any case.
      dims.push_back(dim.has_dim_value() ? dim.dim_value() : 0);
    }
    const int at = NormalAxis(axis, static_cast<int>(dims.size()) + 1);
    dims.insert(dims.begin() + at, 0);
    return KnownTensor(HostTensor::Zeros({*dtype, dims}));
  }
  const ir::TensorType first = steps.front().type;
  const int at = NormalAxis(axis, first.rank() + 1);
  Dims dims = first.dims;
  dims.insert(dims.begin() + at, 1);
  for (Tensor& t : steps) {
    if (!t.is_tensor()) Refuse(Refusal::kSequences, "a scan output is no tensor");
    if (t.type != first) {
      Fail(fmt::format("output '{}' is {} in one step and {} in another", declared.name(),
                       first.ToString(), t.type.ToString()));
    }
    t = c.ComputeReshape(std::move(t), dims);
  }
  if (steps.size() == 1) return steps.front();
  return c.Compute("concat", std::move(steps), {{"axis", int64_t{at}}});
}

void Loop(NodeContext& c) {
  const onnx::GraphProto& body = Subgraph(c, "body");
  const int carried = std::max(0, c.input_count() - 2);
  const int scans = body.output_size() - 1 - carried;
  if (body.input_size() != carried + 2 || scans < 0 || c.node().output_size() > carried + scans) {
    Fail(fmt::format("the body has {} inputs and {} outputs, which does not fit {} carried values",
                     body.input_size(), body.output_size(), carried));
  }
  std::optional<int64_t> trips;
  if (c.Has(0)) {
    if (c.Known(0) == nullptr) {
      Refuse(Refusal::kDataControlFlow,
             fmt::format("the trip count ('{}') is computed from data", c.node().input(0)),
             c.Operand(0).value);
    }
    if (c.Type(0).elements() != 1) Fail("one trip count is expected");
    trips = c.Ints(0, "the trip count")[0];
  }
  bool more = !c.Has(1) || KnownCondition(c.AnyOperand(1), "the first condition");
  const bool to_the_end = !c.Has(1) || (more && PassesConditionOn(body));
  if (!trips.has_value() && to_the_end) {
    Fail(c.Has(1) ? "the body passes on the condition it gets, which is true: the loop does not end"
                  : "neither a trip count nor a condition is given: the loop does not end");
  }
  // Else a known trip count is an upper bound only: the condition may end the loop before it.
  if (trips.has_value() && to_the_end) CheckSteps(body, *trips);
  std::vector<Tensor> values;
  for (int i = 0; i < carried; ++i) values.push_back(c.AnyOperand(i + 2));
  std::vector<std::vector<Tensor>> collected(static_cast<size_t>(scans));
  const std::string of = trips.has_value() ? std::to_string(*trips) : "a loop without a trip count";
  for (int64_t step = 0; more && step < trips.value_or(step + 1); ++step) {
    Reserve(c, body, step, of);
    std::vector<Tensor> inputs = {
        KnownTensor(HostTensor::ScalarI64(step)),
        KnownTensor(HostTensor::FromVector<uint8_t>(DType::kBool, {}, std::vector<uint8_t>{1}))};
    inputs.insert(inputs.end(), values.begin(), values.end());
    const std::vector<Tensor> outputs =
        c.services().subgraph(body, std::move(inputs), fmt::format("iteration {}", step));
    for (int i = 0; i < carried; ++i) {
      values[static_cast<size_t>(i)] = outputs[static_cast<size_t>(i) + 1];
    }
    for (int k = 0; k < scans; ++k) {
      collected[static_cast<size_t>(k)].push_back(outputs[static_cast<size_t>(carried + 1 + k)]);
    }
    // Without an initial condition those of the body are not looked at; the last one decides
    // nothing.
    if (c.Has(1) && (!trips.has_value() || step + 1 < *trips)) {
      more = KnownCondition(outputs[0], fmt::format("the condition ('{}') after iteration {}",
                                                    body.output(0).name(), step));
    }
  }
  for (int i = 0; i < carried; ++i) c.OutTensor(i, values[static_cast<size_t>(i)]);
  for (int k = 0; k < scans; ++k) {
    if (!c.HasOutput(carried + k)) continue;
    c.OutTensor(carried + k, Stack(c, std::move(collected[static_cast<size_t>(k)]), 0,
                                   body.output(carried + 1 + k)));
  }
}

// Row `index` of dim `axis`, which goes away.
Tensor Row(NodeContext& c, const Tensor& x, int axis, int64_t index) {
  Dims starts(x.type.dims.size(), 0);
  Dims limits = x.type.dims;
  const size_t at = static_cast<size_t>(axis);
  starts[at] = index;
  limits[at] = index + 1;
  const Tensor slice = c.Compute(
      "slice", {x}, {{"starts", starts}, {"limits", limits}, {"strides", Dims(starts.size(), 1)}});
  Dims dims = x.type.dims;
  dims.erase(dims.begin() + axis);
  return c.ComputeReshape(slice, dims);
}

struct ScanPlan {
  const onnx::GraphProto* body = nullptr;
  int states = 0, inputs = 0, outputs = 0;
  std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
};

std::vector<int64_t> ScanList(const NodeContext& c, std::string_view name, int count) {
  std::vector<int64_t> list = c.IntList(name, std::vector<int64_t>(static_cast<size_t>(count), 0));
  if (static_cast<int>(list.size()) != count) {
    Fail(fmt::format("{} has {} entries, expected {}", name, list.size(), count));
  }
  return list;
}

// Runs the body over `steps` rows of the scan inputs; appends the final states, then the stacked
// outputs, of which rows beyond `steps` up to `padded` are zero.
std::vector<Tensor> RunScan(NodeContext& c, const ScanPlan& plan, std::vector<Tensor> states,
                            const std::vector<Tensor>& inputs, int64_t steps, int64_t padded,
                            const std::string& prefix) {
  std::vector<std::vector<Tensor>> collected(static_cast<size_t>(plan.outputs));
  CheckSteps(*plan.body, steps);
  for (int64_t step = 0; step < steps; ++step) {
    Reserve(c, *plan.body, step, std::to_string(steps));
    std::vector<Tensor> operands = states;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int axis = NormalAxis(plan.input_axes[i], inputs[i].type.rank());
      operands.push_back(
          Row(c, inputs[i], axis, plan.input_directions[i] != 0 ? steps - 1 - step : step));
    }
    std::vector<Tensor> results = c.services().subgraph(
        *plan.body, std::move(operands), fmt::format("{}iteration {}", prefix, step));
    for (size_t i = 0; i < states.size(); ++i) states[i] = std::move(results[i]);
    for (size_t k = 0; k < collected.size(); ++k) {
      collected[k].push_back(std::move(results[states.size() + k]));
    }
  }
  for (size_t k = 0; k < collected.size(); ++k) {
    if (plan.output_directions[k] != 0) std::reverse(collected[k].begin(), collected[k].end());
    for (int64_t step = steps; step < padded && !collected[k].empty(); ++step) {
      collected[k].push_back(KnownTensor(HostTensor::Zeros(collected[k].front().type)));
    }
    states.push_back(Stack(c, std::move(collected[k]), plan.output_axes[k],
                           plan.body->output(plan.states + static_cast<int>(k))));
  }
  return states;
}

ScanPlan PlanScan(const NodeContext& c, int operands) {
  ScanPlan plan;
  plan.body = &Subgraph(c, "body");
  plan.inputs = static_cast<int>(c.Int("num_scan_inputs", 0));
  plan.states = operands - plan.inputs;
  plan.outputs = plan.body->output_size() - plan.states;
  if (plan.inputs < 1 || plan.states < 0 || plan.outputs < 0 ||
      plan.body->input_size() != operands || c.node().output_size() > plan.body->output_size()) {
    Fail(
        fmt::format("the body has {} inputs and {} outputs, which does not fit {} operands of "
                    "which {} are scanned",
                    plan.body->input_size(), plan.body->output_size(), operands, plan.inputs));
  }
  const bool batched = c.since() < 9;
  plan.input_axes = batched ? std::vector<int64_t>(static_cast<size_t>(plan.inputs), 0)
                            : ScanList(c, "scan_input_axes", plan.inputs);
  plan.input_directions =
      ScanList(c, batched ? "directions" : "scan_input_directions", plan.inputs);
  plan.output_axes = batched ? std::vector<int64_t>(static_cast<size_t>(plan.outputs), 0)
                             : ScanList(c, "scan_output_axes", plan.outputs);
  plan.output_directions = batched ? std::vector<int64_t>(static_cast<size_t>(plan.outputs), 0)
                                   : ScanList(c, "scan_output_directions", plan.outputs);
  return plan;
}

// Extent of dim axes[i] + `skip` of every operand behind `first`: all must agree.
int64_t ScanLength(const NodeContext& c, const ScanPlan& plan, int first, int skip) {
  int64_t length = -1;
  for (int i = 0; i < plan.inputs; ++i) {
    const Dims& dims = c.Shape(first + i);
    const int rank = static_cast<int>(dims.size()) - skip;
    const int axis = NormalAxis(plan.input_axes[static_cast<size_t>(i)], rank) + skip;
    const int64_t extent = dims[static_cast<size_t>(axis)];
    if (length >= 0 && extent != length) {
      Fail(fmt::format("scan inputs have {} and {} steps", length, extent));
    }
    length = extent;
  }
  return length;
}

// Version 8: every operand has a batch dim in front and the body sees one sample.
void ScanBatched(NodeContext& c) {
  const ScanPlan plan = PlanScan(c, c.input_count() - 1);
  const int first = 1 + plan.states;
  const int64_t length = ScanLength(c, plan, first, 1);
  const int64_t batch = c.Shape(first)[0];
  if (!c.services().reserve_nodes(batch)) Unsupported(fmt::format("a batch of {}", batch));
  std::vector<int64_t> lengths(static_cast<size_t>(batch), length);
  if (c.Has(0)) {
    if (c.Known(0) == nullptr) {
      Refuse(Refusal::kDataControlFlow,
             fmt::format("the sequence lengths ('{}') depend on data", c.node().input(0)),
             c.Operand(0).value);
    }
    lengths = c.Ints(0, "the list of sequence lengths");
  }
  if (static_cast<int64_t>(lengths.size()) != batch || batch == 0) {
    Fail(fmt::format("{} sequence lengths for a batch of {}", lengths.size(), batch));
  }
  std::vector<std::vector<Tensor>> results(static_cast<size_t>(plan.body->output_size()));
  for (int64_t n = 0; n < batch; ++n) {
    const int64_t steps = lengths[static_cast<size_t>(n)];
    if (steps < 0 || steps > length) Fail(fmt::format("sequence length {} of {}", steps, length));
    std::vector<Tensor> rows;
    for (int i = 1; i < c.input_count(); ++i) {
      if (c.Type(i).rank() < 1 || c.Shape(i)[0] != batch) Fail("operands differ in their batch");
      rows.push_back(Row(c, c.Operand(i), 0, n));
    }
    std::vector<Tensor> states(rows.begin(), rows.begin() + plan.states);
    const std::vector<Tensor> inputs(rows.begin() + plan.states, rows.end());
    std::vector<Tensor> sample =
        RunScan(c, plan, std::move(states), inputs, steps, length, fmt::format("sample {} ", n));
    for (size_t k = 0; k < sample.size(); ++k) results[k].push_back(std::move(sample[k]));
  }
  for (int k = 0; k < c.node().output_size(); ++k) {
    if (!c.HasOutput(k)) continue;
    c.OutTensor(k, Stack(c, std::move(results[static_cast<size_t>(k)]), 0, plan.body->output(k)));
  }
}

void Scan(NodeContext& c) {
  if (c.since() < 9) return ScanBatched(c);
  const ScanPlan plan = PlanScan(c, c.input_count());
  const int64_t length = ScanLength(c, plan, plan.states, 0);
  std::vector<Tensor> states;
  std::vector<Tensor> inputs;
  for (int i = 0; i < c.input_count(); ++i) {
    (i < plan.states ? states : inputs).push_back(c.AnyOperand(i));
  }
  const std::vector<Tensor> results =
      RunScan(c, plan, std::move(states), inputs, length, length, "");
  for (int k = 0; k < c.node().output_size(); ++k) {
    c.OutTensor(k, results[static_cast<size_t>(k)]);
  }
}

}  // namespace

void RegisterControlFlowImporters(ImportTable& t) {
  ImportTarget branch{"If", 1, 25, If, "the branch that is taken", {0}};
  ImportTarget loop{"Loop", 1, 25, Loop, "its body once per iteration", {0, 1}};
  ImportTarget scan{"Scan", 8, 25, Scan, "its body once per step"};
  for (ImportTarget* target : {&branch, &loop, &scan}) {
    target->structural = true;
    t.Add(*target);
  }
}

}  // namespace hyper::onnx_frontend
