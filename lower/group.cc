#include "lower/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/op_def.h"

namespace hyper::lower {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

AtomList Group::all() const {
  AtomList list(extents.size());
  std::iota(list.begin(), list.end(), 0);
  return list;
}

std::vector<int> Flatten(const ValueAtoms& atoms) {
  std::vector<int> list;
  for (const AtomList& dim : atoms) list.insert(list.end(), dim.begin(), dim.end());
  return list;
}

namespace {

class GroupBuilder {
 public:
  GroupBuilder(const Analysis& analysis, std::vector<Member> members, bool joined) : a_(analysis) {
    group_.joined = joined;
    std::sort(members.begin(), members.end(), [&](const Member& x, const Member& y) {
      return std::pair(a_.Position(x.node), x.finish) < std::pair(a_.Position(y.node), y.finish);
    });
    group_.members = std::move(members);
    for (const Member& m : group_.members) {
      const Node& node = a_.function().node(m.node);
      const bool terminal = node.op->name == "reduce" && !m.finish && IsTerminal(m.node);
      if (!terminal)
        in_group_.insert(node.outputs[0]);
      else
        incomplete_.insert(node.outputs[0]);
    }
  }

  Result<Group> Run() {
    for (const Member& m : group_.members) HYPER_RETURN_IF_ERROR(Place(m));
    return Finish();
  }

 private:
  bool IsTerminal(NodeId reduce) const {
    return !group_.joined && a_.Reduce(reduce) == ReduceKind::kTerminal;
  }

  // ---- atoms: a forest of equal atoms (parent) and splits

  struct Atom {
    int64_t extent;
    int parent = -1;
    int first = -1, second = -1;  // outer and inner half after a split
  };
  int NewAtom(int64_t extent) {
    atoms_.push_back({extent});
    return static_cast<int>(atoms_.size()) - 1;
  }
  ValueAtoms Fresh(const ir::Dims& dims) {
    ValueAtoms v;
    for (int64_t d : dims) {
      v.push_back(d == 1 ? AtomList{} : AtomList{NewAtom(d)});
    }
    return v;
  }
  void Expand(int a, AtomList* out) const {
    while (atoms_[static_cast<size_t>(a)].parent >= 0) a = atoms_[static_cast<size_t>(a)].parent;
    const Atom& atom = atoms_[static_cast<size_t>(a)];
    if (atom.first < 0) {
      out->push_back(a);
      return;
    }
    Expand(atom.first, out);
    Expand(atom.second, out);
  }
  AtomList Resolve(const AtomList& list) const {
    AtomList out;
    for (int a : list) Expand(a, &out);
    return out;
  }
  // Splits a leaf into (outer, extent / outer).
  bool Split(int a, int64_t outer) {
    const int64_t extent = atoms_[static_cast<size_t>(a)].extent;
    if (outer <= 1 || extent % outer != 0) return false;
    const int first = NewAtom(outer), second = NewAtom(extent / outer);
    atoms_[static_cast<size_t>(a)].first = first;
    atoms_[static_cast<size_t>(a)].second = second;
    return true;
  }
  bool Unify(const AtomList& x, const AtomList& y) {
    for (;;) {
      const AtomList l = Resolve(x), r = Resolve(y);
      size_t i = 0;
      while (i < l.size() && i < r.size() && l[i] == r[i]) ++i;
      if (i == l.size() || i == r.size()) return l.size() == r.size();
      const int64_t el = atoms_[static_cast<size_t>(l[i])].extent;
      const int64_t er = atoms_[static_cast<size_t>(r[i])].extent;
      if (el == er) {
        atoms_[static_cast<size_t>(r[i])].parent = l[i];
      } else if (el > er ? !Split(l[i], er) : !Split(r[i], el)) {
        return false;
      }
    }
  }
  bool Unify(const ValueAtoms& x, const ValueAtoms& y) {
    for (size_t d = 0; d < x.size(); ++d)
      if (!Unify(x[d], y[d])) return false;
    return true;
  }

  // ---- views

  Status Through(const Node& view, ValueAtoms* atoms) {
    const auto& attributes = view.attributes;
    const std::string_view op = view.op->name;
    const ir::Dims& shape = a_.function().type(view.outputs[0]).dims;
    if (op == "slice") return Unfit("a slice lies between");
    ValueAtoms out(shape.size());
    if (op == "transpose") {
      const ir::Dims& perm = attributes.GetDims("perm");
      for (size_t d = 0; d < perm.size(); ++d) out[d] = (*atoms)[static_cast<size_t>(perm[d])];
    } else if (op == "broadcast") {
      out = Fresh(shape);
      const ir::Dims& dims = attributes.GetDims("dims");
      const ir::Dims& from = a_.function().type(view.inputs[0]).dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        const size_t to = static_cast<size_t>(dims[d]);
        if (from[d] == shape[to]) out[to] = (*atoms)[d];
      }
    } else {
      AtomList flat = Flatten(*atoms);
      for (size_t d = 0; d < shape.size(); ++d) {
        int64_t left = shape[d];
        while (left != 1) {
          flat = Resolve(flat);
          if (flat.empty()) return Unfit("shapes without common factors");
          const int a = flat.front();
          const int64_t extent = atoms_[static_cast<size_t>(a)].extent;
          if (extent == 0 || left == 0) return Unfit("a reshape without elements lies between");
          if (extent <= left && left % extent == 0) {
            out[d].push_back(a);
            flat.erase(flat.begin());
            left /= extent;
          } else if (extent <= left || !Split(a, left)) {
            return Unfit("shapes without common factors");
          }
        }
      }
    }
    *atoms = std::move(out);
    return {};
  }
  static Status Unfit(std::string why) { return InvalidArgument(std::move(why)); }

  // Atoms of an operand that a member produces, or nullopt for one from outside.
  Result<std::optional<ValueAtoms>> Inside(ValueId v) {
    const ValueId base = a_.Base(v);
    if (incomplete_.count(base) != 0 && in_group_.count(base) == 0) {
      return Unfit("needs the complete reduction first");
    }
    if (in_group_.count(base) == 0) return std::optional<ValueAtoms>();
    ValueAtoms atoms = group_.produced.at(base);
    for (const Node* view : a_.Chain(v)) HYPER_RETURN_IF_ERROR(Through(*view, &atoms));
    return std::optional<ValueAtoms>(std::move(atoms));
  }

  Status Place(const Member& m) {
    const Node& node = a_.function().node(m.node);
    const ValueId y = node.outputs[0];
    if (m.finish) {
      group_.has_finish = true;
      // Combinations of equal shape line up dim by dim.
      const ir::Dims& dims = a_.function().type(y).dims;
      const auto it = finish_atoms_.find(dims);
      if (it == finish_atoms_.end()) finish_atoms_[dims] = Fresh(dims);
      group_.produced[y] = finish_atoms_[dims];
      return {};
    }
    const ir::Dims& shape = a_.function().type(node.inputs[0]).dims;
    ValueAtoms space = Fresh(shape);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId x = node.inputs[i];
      HYPER_ASSIGN_OR_RETURN(const std::optional<ValueAtoms> inside, Inside(x));
      if (inside) {
        if (!Unify(space, *inside)) return Unfit("shapes without common factors");
        continue;
      }
      group_.read[{m.node, static_cast<int>(i)}] = space;
      const auto [it, fresh] = outside_.try_emplace(x, space);
      if (!fresh && !Unify(it->second, space)) return Unfit("read in two shapes");
    }
    if (node.op->name != "reduce") {
      group_.produced[y] = space;
      return {};
    }
    ValueAtoms kept, reduced;
    const ir::Dims& axes = node.attributes.GetDims("axes");
    for (size_t d = 0; d < space.size(); ++d) {
      const bool out = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
      (out ? reduced : kept).push_back(space[d]);
    }
    reduces_.push_back({m.node, space, kept, Flatten(reduced)});
    if (!IsTerminal(m.node)) group_.produced[y] = kept;
    return {};
  }

  // ---- final checks

  struct Reduction {
    NodeId node;
    ValueAtoms space, kept;
    AtomList reduced;
  };
  static std::set<int> SetOf(const AtomList& list) { return {list.begin(), list.end()}; }

  Status ResolveAll(ValueAtoms* atoms) const {
    for (AtomList& dim : *atoms) dim = Resolve(dim);
    const AtomList flat = Flatten(*atoms);
    if (SetOf(flat).size() != flat.size()) return Unfit("read in two orders of dims");
    return {};
  }

  Result<Group> Finish() {
    for (auto& [v, atoms] : group_.produced) HYPER_RETURN_IF_ERROR(ResolveAll(&atoms));
    for (auto& [key, atoms] : group_.read) HYPER_RETURN_IF_ERROR(ResolveAll(&atoms));
    for (Reduction& r : reduces_) {
      HYPER_RETURN_IF_ERROR(ResolveAll(&r.space));
      HYPER_RETURN_IF_ERROR(ResolveAll(&r.kept));
      r.reduced = Resolve(r.reduced);
    }
    // The space: atoms of the first member that has the most.
    AtomList space;
    for (const Member& m : group_.members) {
      const AtomList flat = MemberSpace(m);
      if (flat.size() > space.size()) space = flat;
    }
    const std::set<int> full = SetOf(space);
    HYPER_RETURN_IF_ERROR(CheckReductions(full));
    std::set<int> row = full;
    for (int a : group_.row_atoms) row.erase(a);
    for (const Member& m : group_.members) {
      const std::set<int> set = SetOf(MemberSpace(m));
      if (set == full || (group_.has_row && set == row)) continue;
      return Unfit("different shapes");
    }
    Renumber(space);
    return std::move(group_);
  }

  AtomList MemberSpace(const Member& m) const {
    const Node& node = a_.function().node(m.node);
    if (node.op->name == "reduce" && !m.finish) {
      for (const Reduction& r : reduces_)
        if (r.node == m.node) return Flatten(r.space);
    }
    return Flatten(group_.produced.at(node.outputs[0]));
  }

  Status CheckReductions(const std::set<int>& full) {
    bool any_row = false;
    for (const Reduction& r : reduces_) {
      if (IsTerminal(r.node)) continue;
      if (SetOf(Flatten(r.space)) != full) return Unfit("a reduction of a reduced value");
      if (any_row && SetOf(r.reduced) != SetOf(group_.row_atoms)) {
        return Unfit("reductions over different axes");
      }
      any_row = true;
      group_.row_atoms = r.reduced;
    }
    group_.has_row = any_row;
    std::set<int> row = full;
    for (int a : group_.row_atoms) row.erase(a);
    const std::set<int> row_axes = SetOf(group_.row_atoms);
    std::optional<std::set<int>> kept;
    for (const Reduction& r : reduces_) {
      if (!IsTerminal(r.node)) continue;
      group_.has_terminal = true;
      const std::set<int> space = SetOf(Flatten(r.space)), keeps = SetOf(Flatten(r.kept));
      if (space != full && !(any_row && space == row && keeps.empty()))
        return Unfit("different shapes");
      if (any_row && !keeps.empty() && keeps != row_axes) {
        return Unfit("reductions over different axes");
      }
      if (!any_row && kept && *kept != keeps) return Unfit("reductions over different axes");
      kept = keeps;
    }
    if (group_.has_finish && !reduces_.empty()) return Unfit("needs the complete reduction first");
    return {};
  }

  void Renumber(const AtomList& space) {
    std::map<int, int> number;
    for (size_t i = 0; i < space.size(); ++i) {
      number[space[i]] = static_cast<int>(i);
      group_.extents.push_back(atoms_[static_cast<size_t>(space[i])].extent);
    }
    const auto apply = [&](ValueAtoms& atoms) {
      for (AtomList& dim : atoms)
        for (int& a : dim) a = number.at(a);
    };
    for (auto& [v, atoms] : group_.produced) apply(atoms);
    for (auto& [key, atoms] : group_.read) apply(atoms);
    for (int& a : group_.row_atoms) a = number.at(a);
    std::sort(group_.row_atoms.begin(), group_.row_atoms.end());
    for (const Reduction& r : reduces_) {
      if (!IsTerminal(r.node)) continue;
      ValueAtoms kept = r.kept;
      apply(kept);
      group_.produced[a_.function().node(r.node).outputs[0]] = std::move(kept);
    }
  }

  const Analysis& a_;
  Group group_;
  std::vector<Atom> atoms_;
  std::set<ValueId> in_group_, incomplete_;
  std::map<ValueId, ValueAtoms> outside_;
  std::map<ir::Dims, ValueAtoms> finish_atoms_;
  std::vector<Reduction> reduces_;
};

}  // namespace

Result<Group> BuildGroup(const Analysis& analysis, std::vector<Member> members) {
  return GroupBuilder(analysis, std::move(members), false).Run();
}

int64_t Chunks(int64_t elements, int64_t rows) {
  return std::max<int64_t>(1, std::min({int64_t{64}, elements / 32768, rows / 16}));
}

namespace {

// Is v read by members alone, through views or not?
bool StaysInside(const Analysis& a, ValueId v, const std::set<NodeId>& members) {
  for (const ir::FunctionResult& r : a.function().results())
    if (r.value == v) return false;
  for (NodeId user : a.Users(v)) {
    const Node& node = a.function().node(user);
    if (KindOf(node) == NodeKind::kView ? !StaysInside(a, node.outputs[0], members)
                                        : members.count(user) == 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<Group> JoinStages(const Analysis& a, const Group& first, const Group& finish) {
  constexpr int64_t kManyColumns = 4096;  // enough for the tasks of one stage
  constexpr int64_t kFewRows = 64;
  const ir::Function& f = a.function();
  if (first.has_row) return InvalidArgument("has reductions along rows, too");
  int64_t all = 1;
  for (int64_t e : first.extents) all *= e;
  std::set<NodeId> nodes;
  for (const Member& m : first.members) nodes.insert(m.node);
  std::vector<Member> members = first.members;
  for (const Member& m : first.members) {
    const ValueId y = f.node(m.node).outputs[0];
    if (f.node(m.node).op->name != "reduce") {
      // Its other readers would need it in memory; a joined kernel stores sums only.
      if (!StaysInside(a, y, nodes)) return InvalidArgument("stores values of all rows");
      continue;
    }
    const int64_t columns = f.type(y).elements();
    if (columns <= 1) return InvalidArgument("a single sum");
    const int64_t rows = all / columns;
    if (Chunks(all, rows) > 1 && (columns < kManyColumns || rows > kFewRows)) {
      return InvalidArgument("many rows are summed by more tasks in two stages");
    }
    if (std::find(finish.members.begin(), finish.members.end(), Member{m.node, true}) ==
        finish.members.end()) {
      return InvalidArgument("sums are combined in two places");
    }
  }
  // Draws are counted along a row of the nest that the column form does not walk.
  for (const Member& m : members) {
    for (ValueId v : f.node(m.node).inputs) {
      const Node* producer = a.Producer(a.Base(v));
      if (producer != nullptr && producer->op->name == "random_uniform") {
        return InvalidArgument("reads random numbers");
      }
    }
  }
  for (const Member& m : finish.members) {
    if (!m.finish) members.push_back(m);
  }
  return GroupBuilder(a, std::move(members), true).Run();
}

}  // namespace hyper::lower
