// From a cluster of map and reduce nodes to one generated kernel: builds the body function over the
// group's atoms and the operand views.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/op_def.h"
#include "lower/lowering.h"
#include "lower/view.h"

namespace hyper::lower {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

double Flops(const ir::Expr& expr) {
  double n = 0;
  for (const ir::ExprNode& node : expr.nodes()) {
    if (node.op != ir::ScalarOp::kInput && node.op != ir::ScalarOp::kConstant) n += 1;
  }
  return n;
}

}  // namespace

class FusedEmitter {
 public:
  FusedEmitter(FunctionLowering& l, const Group& group) : l_(l), a_(l.a_), f_(l.f_), g_(group) {}

  Status Run() {
    const bool columns = g_.joined || (g_.has_finish && !g_.all().empty());
    kernel_.form = columns                                          ? "cols"
                   : g_.has_row || g_.has_terminal || g_.has_finish ? "rows"
                                                                    : "map";
    for (const Member& m : g_.members) HYPER_RETURN_IF_ERROR(AddMember(m));
    HYPER_RETURN_IF_ERROR(AddResults());
    LoweredOp op;
    op.source = Sources();
    op.role = f_.node(g_.members.back().node).role;
    op.flops = flops_;
    reads_.insert(reads_.end(), writes_.begin(), writes_.end());
    op.operands = std::move(reads_);
    op.kernel = std::move(kernel_);
    l_.out_.ops.push_back(std::move(op));
    return {};
  }

 private:
  static size_t I(ValueId v) { return static_cast<size_t>(v.index); }
  ir::Function& body() { return kernel_.body; }

  AtomList Sorted(const ValueAtoms& atoms) const {
    AtomList flat = Flatten(atoms);
    std::sort(flat.begin(), flat.end());
    return flat;
  }
  ir::Dims Extents(const AtomList& atoms) const {
    ir::Dims dims;
    for (int a : atoms) dims.push_back(g_.extents[static_cast<size_t>(a)]);
    return dims;
  }
  // The view over sorted atoms of a view over the value's dims.
  View OverAtoms(const View& v, const ValueAtoms& atoms) const {
    std::map<int, int64_t> stride_of;
    for (size_t d = 0; d < atoms.size(); ++d) {
      int64_t stride = v.strides[d];
      for (size_t k = atoms[d].size(); k-- > 0;) {
        stride_of[atoms[d][k]] = stride;
        stride *= g_.extents[static_cast<size_t>(atoms[d][k])];
      }
    }
    View out{{v.type.dtype, {}}, {}, v.offset};
    for (const auto& [atom, stride] : stride_of) {
      out.type.dims.push_back(g_.extents[static_cast<size_t>(atom)]);
      out.strides.push_back(stride);
    }
    return out;
  }

  ValueId AddNode(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes,
                  ir::TensorType type, int64_t op_id = -1) {
    for (NodeId id : body().order()) {  // equal nodes once
      const Node& n = body().node(id);
      if (n.op->name == op && n.inputs == inputs && n.attributes == attributes &&
          n.op_id == op_id && body().type(n.outputs[0]) == type) {
        return n.outputs[0];
      }
    }
    const ir::TensorType types[] = {std::move(type)};
    const NodeId id =
        body().AddNode(ir::CoreOp(op), std::move(inputs), std::move(attributes), types);
    body().node(id).op_id = op_id;
    return body().node(id).outputs[0];
  }

  ValueId AddRead(const Place& place, const View& view) {
    for (size_t i = 0; i < reads_.size(); ++i) {
      if (reads_[i].root == place.root && reads_[i].view == view) {
        return body().arguments()[i].value;
      }
    }
    reads_.push_back({place.root, view, Access::kRead});
    return body().AddArgument(view.type, ir::ArgumentKind::kInput, "");
  }

  // Brings a body value over atoms `have` to atoms `want`.
  ValueId Spread(ValueId v, const AtomList& have, const AtomList& want) {
    if (have == want) return v;
    ir::Dims dims;
    for (int a : have) {
      dims.push_back(std::find(want.begin(), want.end(), a) - want.begin());
    }
    const ir::TensorType type{body().type(v).dtype, Extents(want)};
    return AddNode("broadcast", {v}, {{"shape", type.dims}, {"dims", dims}}, type);
  }

  Result<ValueId> Operand(NodeId node, int input, const AtomList& want) {
    const ValueId x = f_.node(node).inputs[static_cast<size_t>(input)];
    const ValueId base = a_.Base(x);
    if (const auto it = inside_.find(base); it != inside_.end()) {
      return Spread(it->second, Sorted(g_.produced.at(base)), want);
    }
    const ValueAtoms& atoms = g_.read.at({node, input});
    const Node* producer = a_.Producer(base);
    if (producer != nullptr && KindOf(*producer) == NodeKind::kCheap && !l_.place_[I(base)]) {
      HYPER_ASSIGN_OR_RETURN(const std::optional<ValueId> v, Cheap(x, *producer, atoms, want));
      if (v) return *v;
    }
    HYPER_ASSIGN_OR_RETURN(const Place place, l_.PlaceOf(x));
    return AddRead(place, OverAtoms(place.view, atoms));
  }

  // iota, draws and numbers inside the body; nullopt where the views between have no strides.
  Result<std::optional<ValueId>> Cheap(ValueId x, const Node& producer, const ValueAtoms& atoms,
                                       const AtomList& want) {
    const ir::TensorType& type = f_.type(producer.outputs[0]);
    const std::string_view op = producer.op->name;
    if (op == "constant") {
      const ValueId c = AddNode("constant", {}, producer.attributes, type);
      return std::optional(Spread(c, {}, want));
    }
    View index = DenseView(type);
    if (op == "iota") {
      const size_t axis = static_cast<size_t>(producer.attributes.Int("axis"));
      for (size_t d = 0; d < index.strides.size(); ++d) index.strides[d] = d == axis ? 1 : 0;
    }
    for (const Node* view : a_.Chain(x)) {
      const std::optional<View> next = ApplyView(*view, index);
      if (!next) return std::optional<ValueId>();
      index = *next;
    }
    const View over = OverAtoms(index, atoms);
    ir::Attributes attributes = producer.attributes;
    attributes.Set("shape", over.type.dims);
    attributes.Set("index_strides", over.strides);
    attributes.Set("index_offset", over.offset);
    std::vector<ValueId> inputs;
    if (op == "random_uniform") {
      attributes.Set("elements", type.elements());
      HYPER_ASSIGN_OR_RETURN(const Place key, l_.PlaceOf(producer.inputs[0]));
      inputs.push_back(AddRead(key, key.view));
    }
    return std::optional(AddNode(op, std::move(inputs), std::move(attributes),
                                 {type.dtype, over.type.dims},
                                 op == "random_uniform" ? producer.op_id : -1));
  }

  Status AddMember(const Member& m) {
    const Node& node = f_.node(m.node);
    const ValueId y = node.outputs[0];
    const ir::DType dtype = f_.type(y).dtype;
    if (m.finish) {
      const Place& partial = l_.partials_.at(y);
      View chunk = partial.view;  // [chunks, dims of y...]
      chunk.type.dims.erase(chunk.type.dims.begin());
      chunk.strides.erase(chunk.strides.begin());
      View over = OverAtoms(chunk, g_.produced.at(y));
      over.type.dims.insert(over.type.dims.begin(), partial.view.type.dims[0]);
      over.strides.insert(over.strides.begin(), partial.view.strides[0]);
      const ValueId in = AddRead(partial, over);
      inside_[y] =
          AddNode("reduce", {in}, {{"kind", node.attributes.String("kind")}, {"axes", ir::Dims{0}}},
                  {dtype, Extents(Sorted(g_.produced.at(y)))});
      return {};
    }
    AtomList space = node.op->name == "reduce" ? ReduceSpace(m.node) : Sorted(g_.produced.at(y));
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      HYPER_ASSIGN_OR_RETURN(const ValueId in, Operand(m.node, static_cast<int>(i), space));
      inputs.push_back(in);
    }
    double elements = 1;
    for (int64_t e : Extents(space)) elements *= static_cast<double>(e);
    if (node.op->name == "map") {
      inside_[y] = AddNode("map", inputs, node.attributes, {dtype, Extents(space)});
      flops_ += elements * Flops(node.attributes.GetExpr("expr"));
      return {};
    }
    flops_ += elements;
    const AtomList kept = Sorted(g_.produced.at(y));
    ir::Dims axes;
    for (size_t i = 0; i < space.size(); ++i) {
      if (std::find(kept.begin(), kept.end(), space[i]) == kept.end()) {
        axes.push_back(static_cast<int64_t>(i));
      }
    }
    const ValueId r =
        AddNode("reduce", inputs, {{"kind", node.attributes.String("kind")}, {"axes", axes}},
                {dtype, Extents(kept)});
    if (IsTerminal(m))
      terminals_.emplace_back(m.node, r);
    else
      inside_[y] = r;
    return {};
  }

  // Atoms of a reduction's input: all of the group, or the rows for a total of row values.
  AtomList ReduceSpace(NodeId id) const {
    const ValueId x = f_.node(id).inputs[0];
    const auto it = g_.read.find({id, 0});
    if (it != g_.read.end()) return Sorted(it->second);
    // Inside: the base's atoms plus what broadcasts between add; count elements to tell.
    AtomList rows = g_.all();
    for (int a : g_.row_atoms) rows.erase(std::find(rows.begin(), rows.end(), a));
    int64_t all = 1;
    for (int64_t e : g_.extents) all *= e;
    if (g_.has_row && !g_.joined && a_.Reduce(id) == ReduceKind::kTerminal &&
        f_.type(x).elements() != all) {
      return rows;
    }
    return g_.all();
  }

  // Leaves partial sums.
  bool IsTerminal(const Member& m) const {
    return f_.node(m.node).op->name == "reduce" && !m.finish && !g_.joined &&
           a_.Reduce(m.node) == ReduceKind::kTerminal;
  }

  bool NeededOutside(ValueId v) const {
    if (l_.forced_[I(v)] || !l_.ResultsOf(v).empty()) return true;
    for (NodeId n : l_.base_readers_[I(v)]) {
      const bool here = std::any_of(g_.members.begin(), g_.members.end(),
                                    [&](const Member& m) { return m.node == n && !m.finish; });
      if (!here) return true;
    }
    return false;
  }

  Status AddResults() {
    for (const auto& [id, r] : terminals_) AddPartial(id, r);
    for (const Member& m : g_.members) {
      const ValueId y = f_.node(m.node).outputs[0];
      if (IsTerminal(m) || !NeededOutside(y)) continue;
      const ValueAtoms& atoms = g_.produced.at(y);
      const Place place = ResultPlace(y, atoms);
      const View over = OverAtoms(place.view, atoms);
      body().AddResult(inside_.at(y), "");
      writes_.push_back(
          {place.root, over, l_.accumulates_[I(y)] ? Access::kAccumulate : Access::kWrite});
    }
    return {};
  }

  void AddPartial(NodeId id, ValueId r) {
    const Node& node = f_.node(id);
    const ValueId y = node.outputs[0];
    const ir::TensorType& type = f_.type(y);
    const int64_t elements = f_.type(node.inputs[0]).elements();
    int64_t all = 1;
    for (int64_t e : g_.extents) all *= e;
    // All terminals of a kernel share its chunks.
    if (chunks_ == 0) {
      int64_t kept = std::max<int64_t>(type.elements(), 1);
      if (type.rank() == 0) kept = 1;
      int64_t rows = all / kept;
      if (g_.has_row) {
        rows = all;
        for (int a : g_.row_atoms) rows /= std::max<int64_t>(g_.extents[static_cast<size_t>(a)], 1);
      }
      chunks_ = Chunks(std::max(all, elements), rows);
    }
    View view = DenseViewInOrder(type, OrderOf(a_.Layout(y)));
    View whole = view;
    whole.type.dims.insert(whole.type.dims.begin(), chunks_);
    whole.strides.insert(whole.strides.begin(), std::max<int64_t>(type.elements(), 1));
    const Place place = l_.NewRoot(whole.type, whole, fmt::format("%{}.partial", y.index));
    l_.partials_[y] = place;
    View over = OverAtoms(view, g_.produced.at(y));
    over.type.dims.insert(over.type.dims.begin(), chunks_);
    over.strides.insert(over.strides.begin(), whole.strides[0]);
    body().AddResult(r, "");
    writes_.push_back({place.root, over, Access::kWrite});
  }

  Place ResultPlace(ValueId y, const ValueAtoms& atoms) {
    if (!l_.forced_[I(y)] && !l_.place_[I(y)]) {
      if (const std::optional<Place> reuse = DyingInput(y, atoms)) {
        l_.Record(y, *reuse);
        return *reuse;
      }
    }
    return l_.OutputPlace(y);
  }

  // A read buffer that nobody needs afterwards and that lies as the result would.
  std::optional<Place> DyingInput(ValueId y, const ValueAtoms& atoms) const {
    if (g_.has_row || g_.has_finish) return std::nullopt;
    const Place wanted{RootId{}, DenseViewInOrder(f_.type(y), OrderOf(a_.Layout(y)))};
    const View over = OverAtoms(wanted.view, atoms);
    for (const lower::Operand& read : reads_) {
      const Root& root = l_.roots_[read.root];
      if (root.storage != Storage::kTemporary || root.dtype != f_.type(y).dtype) continue;
      if (root.elements != f_.type(y).elements() || read.view != over) continue;
      if (l_.LastUse(read.root) > l_.at_) continue;
      const bool shared = std::any_of(reads_.begin(), reads_.end(), [&](const lower::Operand& o) {
        return o.root == read.root && o.view != read.view;
      });
      const bool taken = std::any_of(writes_.begin(), writes_.end(),
                                     [&](const lower::Operand& o) { return o.root == read.root; });
      if (!shared && !taken) return Place{read.root, wanted.view};
    }
    return std::nullopt;
  }

  std::string Sources() const {
    std::vector<std::string> names;
    for (const Member& m : g_.members) {
      const std::string& s = f_.node(m.node).source;
      if (!s.empty() && std::find(names.begin(), names.end(), s) == names.end()) names.push_back(s);
    }
    std::string text;
    for (const std::string& n : names) text += (text.empty() ? "" : "+") + n;
    return text;
  }

  FunctionLowering& l_;
  const Analysis& a_;
  const ir::Function& f_;
  const Group& g_;
  GeneratedKernel kernel_;
  std::vector<lower::Operand> reads_, writes_;
  std::map<ValueId, ValueId> inside_;  // function value -> body value
  std::vector<std::pair<NodeId, ValueId>> terminals_;
  int64_t chunks_ = 0;
  double flops_ = 0;
};

Status FunctionLowering::EmitFused(const Cluster& cluster) {
  HYPER_RETURN_IF_ERROR(FusedEmitter(*this, cluster.group).Run());
  for (const Member& m : cluster.group.members) {
    const bool terminal = f_.node(m.node).op->name == "reduce" && !m.finish &&
                          !cluster.group.joined && a_.Reduce(m.node) == ReduceKind::kTerminal;
    if (!terminal) EmitMarkers(f_.node(m.node));
  }
  return {};
}

}  // namespace hyper::lower
