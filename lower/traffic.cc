#include "lower/traffic.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lower/lowering.h"
#include "lower/view.h"

namespace hyper::lower {
namespace {

bool Reads(const Operand& o) {
  return o.access == Access::kRead || o.access == Access::kAccumulate ||
         o.access == Access::kReadWrite;
}
bool Writes(const Operand& o) {
  return o.access == Access::kWrite || o.access == Access::kAccumulate ||
         o.access == Access::kReadWrite;
}

// The set of elements of one root that some views touch. Thread safety: none.
class Touched {
 public:
  explicit Touched(int64_t root_elements) : root_elements_(root_elements) {}

  // Adds the view's elements and returns how many are new.
  int64_t Add(const View& view) {
    if (view.type.elements() == 0) return 0;
    bool apart = true;
    for (const View& v : views_) {
      if (SameElements(v, view)) return 0;
      const auto [low, high] = Range(view);
      const auto [other_low, other_high] = Range(v);
      apart = apart && (high < other_low || other_high < low);
    }
    views_.push_back(view);
    if (apart && marks_.empty()) return DistinctElements(view);
    // Views that interleave: only marks tell what they share.
    if (marks_.empty()) {
      marks_.assign(static_cast<size_t>(root_elements_), false);
      for (size_t i = 0; i + 1 < views_.size(); ++i) Mark(views_[i], 0, views_[i].offset);
    }
    return Mark(view, 0, view.offset);
  }

 private:
  static std::pair<int64_t, int64_t> Range(const View& v) {
    int64_t low = v.offset, high = v.offset;
    for (size_t d = 0; d < v.strides.size(); ++d) {
      (v.strides[d] < 0 ? low : high) += v.strides[d] * (v.type.dims[d] - 1);
    }
    return {low, high};
  }
  int64_t Mark(const View& v, size_t d, int64_t at) {
    if (d == v.strides.size()) {
      const auto mark = marks_[static_cast<size_t>(at)];
      const int64_t fresh = mark ? 0 : 1;
      marks_[static_cast<size_t>(at)] = true;
      return fresh;
    }
    if (v.strides[d] == 0) return Mark(v, d + 1, at);
    int64_t fresh = 0;
    for (int64_t i = 0; i < v.type.dims[d]; ++i) fresh += Mark(v, d + 1, at + i * v.strides[d]);
    return fresh;
  }

  int64_t root_elements_;
  std::vector<View> views_;
  std::vector<bool> marks_;
};

int64_t Bytes(const Operand& o) {
  return DistinctElements(o.view) * ir::DTypeBytes(o.view.type.dtype);
}

int64_t Moved(const std::vector<Operand>& operands) {
  int64_t bytes = 0;
  for (const Operand& o : operands) bytes += (Reads(o) + Writes(o)) * Bytes(o);
  return bytes;
}

// Loop nests over the whole of their operands; other forms may touch data-dependent parts only, and
// state what they move.
bool IsNest(const GeneratedKernel& kernel) {
  return kernel.form == "map" || kernel.form == "rows" || kernel.form == "cols";
}

class Accountant {
 public:
  Accountant(const std::vector<Root>& roots, LoweredFunction& f) : roots_(roots), f_(f) {}

  void Run() {
    Number();
    for (size_t i = 0; i < f_.ops.size(); ++i) {
      for (const Operand& o : f_.ops[i].operands) {
        std::vector<size_t>& list = accesses_[o.root];
        if (list.empty() || list.back() != i) list.push_back(i);
      }
    }
    for (const std::vector<size_t>& ops : groups_) Account(ops);
  }

 private:
  const Root& RootOf(RootId id) const { return roots_[static_cast<size_t>(id.index)]; }

  void Number() {
    std::map<int, size_t> known;
    for (size_t i = 0; i < f_.ops.size(); ++i) {
      LoweredOp& op = f_.ops[i];
      if (!std::holds_alternative<GeneratedKernel>(op.kernel)) {
        op.group = 0;
        continue;
      }
      size_t at = groups_.size();
      if (op.group != 0) at = known.emplace(op.group, at).first->second;
      if (at == groups_.size()) groups_.emplace_back();
      groups_[at].push_back(i);
      op.group = static_cast<int>(at) + 1;
    }
  }

  // Is what the group leaves in the root read by another op or by the caller?
  bool NeededBehind(RootId root, const std::vector<size_t>& ops) const {
    if (RootOf(root).storage != Storage::kTemporary) return true;
    size_t last = 0;  // write of the group
    for (size_t i : ops) {
      for (const Operand& o : f_.ops[i].operands)
        if (o.root == root && Writes(o)) last = i;
    }
    for (size_t i : accesses_.at(root)) {
      if (i <= last || f_.ops[i].group == f_.ops[last].group) continue;
      bool overwritten = false;
      for (const Operand& o : f_.ops[i].operands) {
        if (o.root != root) continue;
        if (Reads(o)) return true;
        overwritten = overwritten || (o.access == Access::kWrite &&
                                      DistinctElements(o.view) == RootOf(root).elements);
      }
      if (overwritten) return false;
    }
    return false;
  }

  void Account(const std::vector<size_t>& ops) {
    std::map<RootId, Touched> read, written;
    const auto add = [&](std::map<RootId, Touched>& sets, const Operand& o) {
      return sets.try_emplace(o.root, RootOf(o.root).elements).first->second.Add(o.view) *
             ir::DTypeBytes(o.view.type.dtype);
    };
    for (size_t i : ops) {
      LoweredOp& op = f_.ops[i];
      auto& kernel = std::get<GeneratedKernel>(op.kernel);
      int64_t bound = 0;
      if (IsNest(kernel)) {
        op.bytes_moved = Moved(op.operands);
      } else {
        bound = op.bytes_moved - OperandBytes(op.operands);
      }
      for (const Operand& o : op.operands) {
        if (Reads(o) && written.count(o.root) == 0) bound += add(read, o);
      }
      for (const Operand& o : op.operands) {
        if (!Writes(o)) continue;
        const int64_t fresh = add(written, o);
        if (NeededBehind(o.root, ops)) bound += fresh;
      }
      kernel.lower_bound_bytes = std::max<int64_t>(bound, 0);
    }
  }

  const std::vector<Root>& roots_;
  LoweredFunction& f_;
  std::vector<std::vector<size_t>> groups_;         // ops of each
  std::map<RootId, std::vector<size_t>> accesses_;  // ops that touch a root
};

}  // namespace

void AccountTraffic(const std::vector<Root>& roots, LoweredFunction* function) {
  Accountant(roots, *function).Run();
}

}  // namespace hyper::lower
