// Where values lie: argument roots, forced places (results that alias arguments, pieces of a
// concat), fresh buffers, copies.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/op_def.h"
#include "lower/lowering.h"
#include "lower/view.h"

namespace hyper::lower {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

Operand Read(const Place& place) { return {place.root, place.view, Access::kRead}; }
Operand Write(const Place& place) { return {place.root, place.view, Access::kWrite}; }

int64_t OperandBytes(const std::vector<Operand>& operands) {
  int64_t bytes = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].access == Access::kWorkspace) continue;
    bool seen = false;
    for (size_t j = 0; j < i; ++j) {
      seen =
          seen || (operands[j].root == operands[i].root && operands[j].view == operands[i].view &&
                   operands[j].access == operands[i].access);
    }
    const int64_t once =
        DistinctElements(operands[i].view) * ir::DTypeBytes(operands[i].view.type.dtype);
    const bool both =
        operands[i].access == Access::kAccumulate || operands[i].access == Access::kReadWrite;
    if (!seen) bytes += both ? 2 * once : once;
  }
  return bytes;
}

RootId RootTable::New(Root root) {
  roots_.push_back(std::move(root));
  return RootId{size() - 1};
}

namespace {

Storage StorageOf(ir::ArgumentKind kind) {
  switch (kind) {
    case ir::ArgumentKind::kInput: return Storage::kInput;
    case ir::ArgumentKind::kParameter: return Storage::kParameter;
    case ir::ArgumentKind::kFrozen: return Storage::kFrozen;
    case ir::ArgumentKind::kState: return Storage::kState;
    case ir::ArgumentKind::kGradient: return Storage::kGradient;
    case ir::ArgumentKind::kStatistic: return Storage::kStatistic;
    case ir::ArgumentKind::kOptimizer: return Storage::kOptimizer;
    case ir::ArgumentKind::kScalar:
    case ir::ArgumentKind::kRng: return Storage::kScalar;
  }
  HYPER_CHECK(false, "argument kind");
}

}  // namespace

Result<RootId> RootTable::Argument(const ir::Argument& argument, const ir::TensorType& type) {
  const Storage storage = StorageOf(argument.kind);
  const auto key = std::tuple(static_cast<int>(storage), argument.name, argument.slot);
  const auto it = arguments_.find(key);
  if (it != arguments_.end()) {
    if ((*this)[it->second].logical != type) {
      return InvalidArgument(fmt::format("'{}' is {} in one function and {} in another",
                                         argument.name, (*this)[it->second].logical.ToString(),
                                         type.ToString()));
    }
    return it->second;
  }
  Root root;
  root.name = argument.name;
  root.storage = storage;
  root.dtype = type.dtype;
  root.elements = type.elements();
  root.slot = argument.slot;
  root.logical = type;
  root.logical_strides = ir::RowMajorStrides(type.dims);
  const RootId id = New(std::move(root));
  arguments_[key] = id;
  return id;
}

RootId RootTable::Constant(const ir::HostTensor& value) {
  std::vector<RootId>& same_bytes = constants_[value.bytes().data()];
  for (const RootId id : same_bytes) {
    if ((*this)[id].logical == value.type()) return id;
  }
  Root root;
  root.name = fmt::format("constant.{}", size());
  root.storage = Storage::kConstant;
  root.dtype = value.type().dtype;
  root.elements = value.type().elements();
  root.logical = value.type();
  root.logical_strides = ir::RowMajorStrides(value.type().dims);
  root.constant = value;
  const RootId id = New(std::move(root));
  same_bytes.push_back(id);
  return id;
}

void FunctionLowering::Record(ValueId base, const Place& place) {
  place_[I(base)] = place;
  in_root_[place.root].push_back(base);
}

Status FunctionLowering::PlaceArguments() {
  for (const ir::Argument& a : f_.arguments()) {
    HYPER_ASSIGN_OR_RETURN(const RootId root, roots_.Argument(a, f_.type(a.value)));
    Record(a.value, {root, DenseView(f_.type(a.value))});
  }
  return {};
}

// A result that aliases an argument is computed straight into it, where its producer is a kernel.
void FunctionLowering::ForceResults() {
  for (const ir::FunctionResult& r : f_.results()) {
    if (r.alias_argument < 0) continue;
    const ir::Argument& argument = f_.arguments()[static_cast<size_t>(r.alias_argument)];
    if (a_.Base(r.value) == argument.value) continue;
    Force(r.value, *place_[I(argument.value)], false);
  }
}

bool FunctionLowering::Force(ValueId v, const Place& place, bool accumulate) {
  const Node* node = a_.Producer(v);
  if (node == nullptr || forced_[I(v)] || place_[I(v)]) return false;
  const std::string_view op = node->op->name;
  if (op == "transpose") {
    return Force(node->inputs[0],
                 {place.root, UntransposeView(place.view, node->attributes.GetDims("perm"))},
                 accumulate);
  }
  if (op == "reshape") {
    const std::optional<View> view = ReshapeView(place.view, f_.type(node->inputs[0]).dims);
    return view && Force(node->inputs[0], {place.root, *view}, accumulate);
  }
  const NodeKind kind = KindOf(*node);
  if (kind != NodeKind::kFusable && kind != NodeKind::kOpaque) return false;
  if (op == "constant" || (accumulate && !node->op->accumulates)) return false;
  forced_[I(v)] = place;
  accumulates_[I(v)] = accumulate;
  const NodeId id = a_.ProducerId(v);
  // Old content of an argument must have been read before.
  if (!accumulate) {
    for (ValueId old : in_root_[place.root]) {
      if (f_.value(old).producer.valid()) continue;
      for (NodeId reader : base_readers_[I(old)])
        if (reader != id) extra_[I(id)].push_back(reader);
    }
  }
  if (op == "accumulate") {
    const ValueId sum = node->inputs[0], term = node->inputs[1];
    if (!place_[I(a_.Base(sum))]) Force(sum, place, false);
    if (Force(term, place, true)) {
      const NodeId before = a_.ProducerId(a_.Base(sum));
      const NodeId writer = a_.ProducerId(a_.Base(term));
      if (before.valid()) extra_[I(writer)].push_back(before);
    }
  }
  return true;
}

// Producers of concat inputs write into the joined buffer.
void FunctionLowering::ForceConcats() {
  for (size_t k = f_.order().size(); k-- > 0;) {
    const Node& node = f_.node(f_.order()[k]);
    if (node.op->name != "concat") continue;
    const ValueId y = node.outputs[0];
    const Place whole = forced_[I(y)] ? *forced_[I(y)] : NewLike(y);
    // Registered now, so that in-place reuse sees all values of the buffer.
    Record(y, whole);
    const size_t axis = static_cast<size_t>(node.attributes.Int("axis"));
    int64_t at = 0;
    for (ValueId x : node.inputs) {
      ir::Dims starts(whole.view.strides.size(), 0), limits = whole.view.type.dims;
      const ir::Dims ones(starts.size(), 1);
      starts[axis] = at;
      at += f_.type(x).dims[axis];
      limits[axis] = at;
      Force(x, {whole.root, SliceView(whole.view, starts, limits, ones)}, false);
    }
  }
}

Place FunctionLowering::NewRoot(const ir::TensorType& type, const View& view, std::string name) {
  Root root;
  root.name = std::move(name);
  root.storage = Storage::kTemporary;
  root.dtype = type.dtype;
  root.elements = type.elements();
  root.logical = type;
  root.logical_strides = view.strides;
  return {roots_.New(std::move(root)), view};
}

Place FunctionLowering::NewLike(ValueId v) {
  const ir::TensorType& type = f_.type(v);
  const std::string& source = f_.value(v).name;
  return NewRoot(type, DenseViewInOrder(type, OrderOf(a_.Layout(v))),
                 source.empty() ? fmt::format("%{}", v.index) : source);
}

Place FunctionLowering::OutputPlace(ValueId v) {
  if (!place_[I(v)]) Record(v, forced_[I(v)] ? *forced_[I(v)] : NewLike(v));
  return *place_[I(v)];
}

Result<Place> FunctionLowering::PlaceOf(ValueId v) {
  if (place_[I(v)]) return *place_[I(v)];
  const Node* node = a_.Producer(v);
  HYPER_CHECK(node != nullptr, "argument without a place");
  if (KindOf(*node) == NodeKind::kCheap) return MaterializeCheap(v);
  HYPER_CHECK(KindOf(*node) == NodeKind::kView,
              fmt::format("value of '{}' is read before it is computed", node->op->name));
  HYPER_ASSIGN_OR_RETURN(const Place in, PlaceOf(node->inputs[0]));
  if (const std::optional<View> view = ApplyView(*node, in.view)) {
    place_[I(v)] = Place{in.root, *view};
    return *place_[I(v)];
  }
  // A reshape across unequal strides: one copy in row-major order.
  HYPER_ASSIGN_OR_RETURN(const Place dense,
                         CopyTo(in, DenseView(in.view.type), fmt::format("%{}.copy", v.index)));
  const Place reshaped{dense.root, *ApplyView(*node, dense.view)};
  Record(v, reshaped);
  return reshaped;
}

Result<Place> FunctionLowering::CopyTo(const Place& from, const View& layout, std::string name) {
  const Place to = NewRoot(from.view.type, layout, std::move(name));
  EmitCopy(from, to);
  return to;
}

Result<Place> FunctionLowering::RowMajor(ValueId v) {
  HYPER_ASSIGN_OR_RETURN(const Place place, PlaceOf(v));
  View at_zero = place.view;
  at_zero.offset = 0;
  if (IsRowMajor(at_zero)) return place;
  return CopyTo(place, DenseView(place.view.type), fmt::format("%{}.dense", v.index));
}

void FunctionLowering::EmitCopy(const Place& from, const Place& to) {
  GeneratedKernel kernel;
  kernel.form = "map";
  std::vector<Operand> operands = {Read(from), Write(to)};
  // Extents of 1 do not count.
  for (Operand& o : operands) {
    View v{{o.view.type.dtype, {}}, {}, o.view.offset};
    for (size_t d = 0; d < o.view.strides.size(); ++d) {
      if (o.view.type.dims[d] == 1) continue;
      v.type.dims.push_back(o.view.type.dims[d]);
      v.strides.push_back(o.view.strides[d]);
    }
    o.view = std::move(v);
  }
  const ValueId x = kernel.body.AddArgument(operands[0].view.type, ir::ArgumentKind::kInput, "");
  kernel.body.AddResult(x, "");
  kernel.lower_bound_bytes = OperandBytes(operands);
  LoweredOp op;
  op.bytes_moved = kernel.lower_bound_bytes;
  op.kernel = std::move(kernel);
  op.operands = std::move(operands);
  op.source = "copy";
  out_.ops.push_back(std::move(op));
}

int FunctionLowering::LastUse(RootId root) const {
  int last = -1;
  const auto it = in_root_.find(root);
  if (it == in_root_.end()) return std::numeric_limits<int>::max();
  for (ValueId v : it->second) {
    // A copied reshape is no base, whatever results there are of it.
    for (const int i : ResultsOf(a_.Base(v))) {
      const ValueId result = f_.results()[static_cast<size_t>(i)].value;
      if (a_.Base(v) == v || result == v) return std::numeric_limits<int>::max();
    }
    for (NodeId n : base_readers_[I(v)]) {
      last = std::max({last, part_[I(n)], finish_[I(n)]});
    }
    // A copied reshape has readers through views of its own.
    if (KindOf(*a_.Producer(v)) == NodeKind::kView) return std::numeric_limits<int>::max();
  }
  return last;
}

Status FunctionLowering::FinishResults() {
  for (const ir::FunctionResult& r : f_.results()) {
    HYPER_ASSIGN_OR_RETURN(Place place, PlaceOf(r.value));
    if (r.alias_argument >= 0) {
      const ir::Argument& argument = f_.arguments()[static_cast<size_t>(r.alias_argument)];
      const Place target = *place_[I(argument.value)];
      if (place.root != target.root || !SameElements(place.view, target.view))
        EmitCopy(place, target);
      place = target;
    } else {
      Root& root = roots_[place.root];
      if (root.storage != Storage::kTemporary || !IsRowMajor(place.view) ||
          root.elements != place.view.type.elements()) {
        HYPER_ASSIGN_OR_RETURN(place, CopyTo(place, DenseView(place.view.type), r.name));
      }
      Root& result = roots_[place.root];
      result.storage = Storage::kResult;
      result.name = r.name;
      result.logical = place.view.type;
      result.logical_strides = place.view.strides;
    }
    out_.results.push_back({r.name, Read(place)});
    if (r.alias_argument >= 0 && markers_) {
      const ir::Argument& argument = f_.arguments()[static_cast<size_t>(r.alias_argument)];
      if (argument.kind != ir::ArgumentKind::kGradient) continue;
      if (!gradients_done_.contains(argument.name)) EmitMarker(argument.name);
    }
  }
  return {};
}

void FunctionLowering::EmitMarker(const std::string& gradient) {
  LoweredOp op;
  op.kernel = MarkerKernel{{gradient}};
  op.role = ir::Role::kWeightGradient;
  out_.ops.push_back(std::move(op));
  gradient_order_.push_back(gradient);
  gradients_done_.insert(gradient);
}

// Gradients that are complete with this node.
void FunctionLowering::EmitMarkers(const Node& node) {
  if (!markers_) return;
  for (ValueId v : node.outputs) {
    if (!forced_[I(v)] || a_.Base(v) != v) continue;
    for (const int i : ResultsOf(v)) {
      const ir::FunctionResult& r = f_.results()[static_cast<size_t>(i)];
      if (r.alias_argument < 0) continue;
      const ir::Argument& argument = f_.arguments()[static_cast<size_t>(r.alias_argument)];
      if (argument.kind == ir::ArgumentKind::kGradient) EmitMarker(argument.name);
    }
  }
}

}  // namespace hyper::lower
