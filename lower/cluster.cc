#include "lower/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "ir/op_def.h"
#include "lower/ancestry.h"

namespace hyper::lower {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

constexpr size_t kMaxMembers = 96;
constexpr size_t kMaxReads = 28;
constexpr int kSiblingDistance = 48;  // in program order
constexpr int64_t kSiblingElements = 256;
constexpr int64_t kStoredElements = 4096;  // fewer cost less to store than a kernel of their own
constexpr int kNear = 128;        // in program order: a search between the two costs little
constexpr size_t kBranches = 64;  // readers looked at for a short cut of such a search
constexpr std::string_view kCycle = "another kernel lies between";

class ClusterBuilder {
 public:
  ClusterBuilder(const Analysis& analysis, const std::vector<std::vector<NodeId>>& extra)
      : a_(analysis), f_(analysis.function()), extra_(extra), ancestry_(f_) {
    part_.assign(static_cast<size_t>(f_.node_count()), -1);
    finish_.assign(static_cast<size_t>(f_.node_count()), -1);
    readers_.resize(static_cast<size_t>(f_.value_count()));
    for (NodeId id : f_.order()) {
      const Node& node = f_.node(id);
      const bool kernel = a_.Kind(id) == NodeKind::kOpaque && node.op->name != "constant";
      opaque_.push_back((opaque_.empty() ? 0 : opaque_.back()) + (kernel ? 1 : 0));
    }
    sources_.resize(static_cast<size_t>(f_.node_count()));
    for (NodeId id : f_.order()) FindSources(id);
  }

  Result<Clusters> Run() {
    for (NodeId id : f_.order()) {
      const NodeKind kind = a_.Kind(id);
      if (kind == NodeKind::kOpaque) {
        Cluster c;
        c.op = id;
        part_[I(id)] = Add(std::move(c));
      } else if (kind == NodeKind::kFusable) {
        HYPER_RETURN_IF_ERROR(Assign(id));
      }
    }
    JoinSmallReductions();
    return Schedule();
  }

 private:
  static size_t I(NodeId n) { return static_cast<size_t>(n.index); }
  static size_t I(ValueId v) { return static_cast<size_t>(v.index); }

  int Add(Cluster c) {
    clusters_.push_back(std::move(c));
    return static_cast<int>(clusters_.size()) - 1;
  }
  bool IsTerminal(NodeId id) const {
    return f_.node(id).op->name == "reduce" && a_.Reduce(id) == ReduceKind::kTerminal;
  }
  // The cluster that makes the final content of a value, or -1.
  int Source(ValueId v) const {
    const NodeId id = a_.ProducerId(a_.Base(v));
    if (!id.valid()) return -1;
    return finish_[I(id)] >= 0 ? finish_[I(id)] : part_[I(id)];
  }

  // Nodes whose kernels compute what a node reads. Cheap producers are recomputed: what they read
  // counts.
  void FindSources(NodeId id) {
    std::vector<NodeId>& list = sources_[I(id)];
    for (ValueId v : f_.node(id).inputs) {
      const NodeId from = a_.ProducerId(a_.Base(v));
      if (!from.valid()) continue;
      if (a_.Kind(from) == NodeKind::kCheap) {
        list.insert(list.end(), sources_[I(from)].begin(), sources_[I(from)].end());
      } else {
        list.push_back(from);
      }
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }

  // Clusters that one member waits for; repeated ones are listed again.
  void Dependencies(const Member& m, std::vector<int>* out) const {
    const auto add = [&](int c) {
      if (c >= 0) out->push_back(c);
    };
    if (m.finish) {
      add(part_[I(m.node)]);
      return;
    }
    for (NodeId from : sources_[I(m.node)]) {
      add(finish_[I(from)] >= 0 ? finish_[I(from)] : part_[I(from)]);
    }
    for (NodeId before : extra_[I(m.node)]) {
      add(part_[I(before)]);
      add(finish_[I(before)]);
    }
  }
  void Dependencies(const Cluster& c, std::vector<int>* out) const {
    if (!c.fused()) Dependencies(Member{c.op, false}, out);
    for (const Member& m : c.group.members) Dependencies(m, out);
  }

  // Would clusters `merged` plus node `id` as one kernel wait for themselves?
  bool MakesCycle(const std::set<int>& merged, const Member& extra) {
    std::vector<int> stack;
    Dependencies(extra, &stack);
    for (int c : merged) Dependencies(clusters_[static_cast<size_t>(c)], &stack);
    std::erase_if(stack, [&](int c) { return merged.contains(c); });
    // Nothing that ends before the merged clusters begin can wait for them.
    int first = a_.Position(extra.node);
    for (int c : merged) {
      const auto& members = clusters_[static_cast<size_t>(c)].group.members;
      first = std::min(first, a_.Position(members.front().node));
    }
    if (a_.Position(extra.node) - first > kNear && FarCycle(merged, extra)) return true;
    ++search_;
    seen_.resize(clusters_.size(), 0);
    while (!stack.empty()) {
      const int c = stack.back();
      stack.pop_back();
      if (merged.contains(c)) return true;
      if (seen_[static_cast<size_t>(c)] == search_ || Last(c) < first) continue;
      seen_[static_cast<size_t>(c)] = search_;
      Dependencies(clusters_[static_cast<size_t>(c)], &stack);
    }
    return false;
  }

  // A cycle through most of the program, as between a forward kernel and a backward op: is one of
  // the outer sources computed from what the merged clusters compute, or from its nearest readers?
  bool FarCycle(const std::set<int>& merged, const Member& extra) const {
    std::vector<NodeId> targets;
    const auto outer = [&](NodeId from) {
      const int c = finish_[I(from)] >= 0 ? finish_[I(from)] : part_[I(from)];
      if (c >= 0 && !merged.contains(c)) targets.push_back(from);
    };
    const auto look = [&](const Member& m) {
      if (m.finish) return;
      for (NodeId from : sources_[I(m.node)]) outer(from);
    };
    look(extra);
    std::vector<NodeId> from;
    for (int c : merged) {
      for (const Member& m : clusters_[static_cast<size_t>(c)].group.members) {
        look(m);
        from.push_back(m.node);
      }
    }
    const size_t members = from.size();
    for (size_t k = 0; k < from.size() && from.size() < members + kBranches; ++k) {
      for (ValueId v : f_.node(from[k]).outputs) {
        const std::vector<NodeId>& users = a_.Users(v);
        for (size_t u = 0; u < std::min(users.size(), kBranches); ++u) from.push_back(users[u]);
      }
    }
    // The latest first: a source of `extra`, which most likely closes the cycle.
    std::sort(targets.begin(), targets.end(),
              [&](NodeId x, NodeId y) { return a_.Position(x) > a_.Position(y); });
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    for (NodeId target : targets) {
      for (NodeId n : from) {
        if (ancestry_.Covers(n, target)) return true;
      }
    }
    return false;
  }

  // Fused clusters that `id` could join: producers first (latest first), then readers of the same
  // large operand nearby.
  std::vector<int> Candidates(NodeId id, size_t* producers) const {
    std::vector<int> list;
    const auto add = [&](int c) {
      if (c >= 0 && clusters_[static_cast<size_t>(c)].fused() &&
          std::find(list.begin(), list.end(), c) == list.end()) {
        list.push_back(c);
      }
    };
    for (ValueId v : f_.node(id).inputs) add(Source(v));
    std::sort(list.begin(), list.end(), [&](int x, int y) { return Last(x) > Last(y); });
    *producers = list.size();
    for (ValueId v : f_.node(id).inputs) {
      if (f_.type(v).elements() < kSiblingElements) continue;
      const std::vector<NodeId>& readers = readers_[I(v)];
      for (size_t k = readers.size(); k-- > 0;) {
        if (a_.Position(id) - a_.Position(readers[k]) > kSiblingDistance) break;
        const bool forward = f_.node(id).role == ir::Role::kForward;
        if ((f_.node(readers[k]).role == ir::Role::kForward) == forward) add(part_[I(readers[k])]);
      }
    }
    return list;
  }
  int Last(int c) const {
    const Cluster& cluster = clusters_[static_cast<size_t>(c)];
    return cluster.fused() ? a_.Position(cluster.group.members.back().node)
                           : a_.Position(cluster.op);
  }

  Result<Group> TryJoin(const std::set<int>& merged, const Member& m) {
    std::vector<Member> members = {m};
    for (int c : merged) {
      const auto& more = clusters_[static_cast<size_t>(c)].group.members;
      members.insert(members.end(), more.begin(), more.end());
    }
    // Partial sums of one kernel come in equally many chunks; those of two need not.
    std::set<int> parents;
    for (const Member& member : members) {
      if (member.finish) parents.insert(part_[I(member.node)]);
    }
    if (parents.size() > 1) return InvalidArgument("combines sums of two kernels");
    if (members.size() > kMaxMembers) return InvalidArgument("the group is full");
    HYPER_ASSIGN_OR_RETURN(Group group, BuildGroup(a_, std::move(members)));
    if (group.read.size() > 2 * kMaxReads)
      return InvalidArgument("the group has too many operands");
    if (MakesCycle(merged, m)) return InvalidArgument(std::string(kCycle));
    return group;
  }

  // A value of backward that forward alone decides (a normalized input, say): in a forward kernel
  // it would be stored until it is needed, while its inputs are stored anyway.
  bool FarBehind(NodeId id, int c) const {
    const auto& members = clusters_[static_cast<size_t>(c)].group.members;
    const auto forward = [&](NodeId n) { return f_.node(n).role == ir::Role::kForward; };
    return f_.node(id).op->name == "map" && !forward(id) &&
           f_.type(f_.node(id).outputs[0]).elements() >= kStoredElements &&
           forward(members.back().node) &&
           opaque_[static_cast<size_t>(a_.Position(id))] != opaque_[static_cast<size_t>(Last(c))];
  }

  Status Assign(NodeId id) {
    const Member m{id, false};
    std::set<int> merged;
    Result<Group> group = BuildGroup(a_, {m});
    if (!group.ok())
      return Internal(fmt::format("node {}: {}", Name(id), group.status().message()));
    size_t producers = 0;
    const std::vector<int> candidates = Candidates(id, &producers);
    for (size_t k = 0; k < candidates.size(); ++k) {
      // What one reader computes from outside values goes with that reader, not with a sibling:
      // the sibling would have to store it.
      const Node& node = f_.node(id);
      if (k == producers && merged.empty() && node.op->name == "map" &&
          a_.Uses(node.outputs[0]) == 1) {
        break;
      }
      const int c = candidates[k];
      if (FarBehind(id, c)) {
        reasons_[{c, id}] = "computed again in backward, not stored since forward";
        continue;
      }
      std::set<int> wider = merged;
      wider.insert(c);
      Result<Group> joined = TryJoin(wider, m);
      if (joined.ok()) {
        merged = std::move(wider);
        group = std::move(joined);
      } else {
        reasons_[{c, id}] = joined.status().message();
      }
    }
    Commit(merged, std::move(group).value(), &part_, id);
    for (ValueId v : f_.node(id).inputs) readers_[I(v)].push_back(id);
    if (IsTerminal(id)) AssignFinish(id);
    return {};
  }

  // Combinations of the partial sums of one group go together.
  void AssignFinish(NodeId id) {
    const Member m{id, true};
    std::set<int> merged;
    Group group = BuildGroup(a_, {m}).value();
    for (const Member& other : clusters_[static_cast<size_t>(part_[I(id)])].group.members) {
      if (other.node == id || !IsTerminal(other.node) || finish_[I(other.node)] < 0) continue;
      std::set<int> wider = merged;
      wider.insert(finish_[I(other.node)]);
      if (f_.type(f_.node(id).outputs[0]) != f_.type(f_.node(other.node).outputs[0])) continue;
      Result<Group> joined = TryJoin(wider, m);
      if (joined.ok()) {
        merged = std::move(wider);
        group = std::move(joined).value();
      }
    }
    Commit(merged, std::move(group), &finish_, id);
  }

  void Commit(const std::set<int>& merged, Group group, std::vector<int>* slot, NodeId id) {
    int at;
    if (merged.empty()) {
      at = Add({});
    } else {
      at = *merged.begin();
      for (int c : merged) {
        if (c != at) clusters_[static_cast<size_t>(c)] = {};  // merged away
      }
    }
    (*slot)[I(id)] = at;
    for (const Member& m : group.members) {
      if (m.node != id || m.finish == (slot == &finish_)) {
        (m.finish ? finish_ : part_)[I(m.node)] = at;
      }
    }
    clusters_[static_cast<size_t>(at)].group = std::move(group);
  }

  // Two stages become one where the first leaves nothing but sums that one group combines: whatever
  // reads them waits for that group anyway, so no cycle can arise.
  void JoinSmallReductions() {
    for (int c = 0; c < static_cast<int>(clusters_.size()); ++c) {
      Cluster& first = clusters_[static_cast<size_t>(c)];
      if (!first.group.has_terminal) continue;
      std::set<int> finishes;
      for (const Member& m : first.group.members) {
        if (!m.finish && IsTerminal(m.node)) finishes.insert(finish_[I(m.node)]);
      }
      if (finishes.size() != 1) continue;
      Cluster& second = clusters_[static_cast<size_t>(*finishes.begin())];
      Result<Group> joined = JoinStages(a_, first.group, second.group);
      if (!joined.ok()) continue;
      first.group = std::move(joined).value();
      second = {};
      for (const Member& m : first.group.members) {
        part_[I(m.node)] = c;
        finish_[I(m.node)] = -1;
      }
    }
  }

  std::string Name(NodeId id) const {
    const Node& node = f_.node(id);
    std::string what(node.op->name);
    if (node.op->name == "map") what = node.attributes.GetExpr("expr").ToString();
    if (what.size() > 60) what = what.substr(0, 57) + "...";
    return node.source.empty() ? what : fmt::format("{} ({})", what, node.source);
  }

  Result<Clusters> Schedule() {
    std::vector<int> order;
    for (int c = 0; c < static_cast<int>(clusters_.size()); ++c) {
      const Cluster& cluster = clusters_[static_cast<size_t>(c)];
      if (cluster.fused() || cluster.op.valid()) order.push_back(c);
    }
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return Last(x) < Last(y); });
    std::vector<int> state(clusters_.size(), 0);  // 1: open, 2: done
    Clusters out;
    for (int root : order) {
      std::vector<std::pair<int, std::vector<int>>> stack;
      const auto open = [&](int c) {
        std::vector<int> list;
        Dependencies(clusters_[static_cast<size_t>(c)], &list);
        std::sort(list.begin(), list.end(), std::greater<>());
        list.erase(std::unique(list.begin(), list.end()), list.end());
        std::erase(list, c);
        state[static_cast<size_t>(c)] = 1;
        stack.emplace_back(c, std::move(list));
      };
      if (state[static_cast<size_t>(root)] == 0) open(root);
      while (!stack.empty()) {
        auto& [c, deps] = stack.back();
        if (deps.empty()) {
          state[static_cast<size_t>(c)] = 2;
          scheduled_.push_back(c);
          stack.pop_back();
          continue;
        }
        const int next = deps.back();
        deps.pop_back();
        if (state[static_cast<size_t>(next)] == 1) return Internal("kernels wait for each other");
        if (state[static_cast<size_t>(next)] == 0) open(next);
      }
    }
    FindBarriers();
    ReportUnfused(&out);
    for (int c : scheduled_) out.clusters.push_back(std::move(clusters_[static_cast<size_t>(c)]));
    return out;
  }

  // No group holds both an op on this side of the node and one behind it: it has a kernel of its
  // own, or is a reduction that is complete only behind its kernel.
  bool IsBarrier(NodeId n) const { return a_.Kind(n) == NodeKind::kOpaque || finish_[I(n)] >= 0; }

  // For Between, when all clusters stand.
  void FindBarriers() {
    barriers_.assign(static_cast<size_t>(f_.node_count()), 0);
    latest_.assign(static_cast<size_t>(f_.node_count()), -1);
    for (NodeId id : f_.order()) {
      const NodeId up = ancestry_.Parent(id);
      barriers_[I(id)] = (up.valid() ? barriers_[I(up)] : 0) + (IsBarrier(id) ? 1 : 0);
      int latest = -1;
      for (ValueId v : f_.node(id).inputs) {
        const NodeId from = a_.ProducerId(v);
        if (!from.valid()) continue;
        latest = std::max({latest, latest_[I(from)], IsBarrier(from) ? a_.Position(from) : -1});
      }
      // An order of accesses is a barrier itself, wherever the other access stands.
      for (NodeId before : extra_[I(id)]) {
        latest = std::max({latest, latest_[I(before)], a_.Position(before), a_.Position(id)});
      }
      latest_[I(id)] = latest;
    }
  }

  // Does some way from p to id lead through a barrier or an order of accesses to one buffer?
  bool Between(NodeId p, NodeId id) const {
    if (latest_[I(id)] <= a_.Position(p)) return false;
    if (a_.Position(id) - a_.Position(p) > kNear && FarBetween(p, id)) return true;
    std::set<std::pair<NodeId, bool>> seen;
    std::vector<std::pair<NodeId, bool>> stack;  // node, something lies behind it
    const auto push = [&](NodeId n, bool behind) {
      if (n.valid() && a_.Position(n) >= a_.Position(p) && seen.insert({n, behind}).second) {
        stack.emplace_back(n, behind);
      }
    };
    const auto producers = [&](NodeId n, bool behind) {
      for (ValueId v : f_.node(n).inputs) push(a_.ProducerId(v), behind);
      for (NodeId before : extra_[I(n)]) push(before, true);
    };
    producers(id, false);
    while (!stack.empty()) {
      const auto [n, behind] = stack.back();
      stack.pop_back();
      if (n == p) {
        if (behind) return true;
        continue;
      }
      producers(n, behind || IsBarrier(n));
    }
    return false;
  }

  // The same, looking no further than the nearest readers of p.
  bool FarBetween(NodeId p, NodeId id) const {
    std::vector<std::pair<NodeId, bool>> from = {{p, false}};  // node, a barrier up to it
    for (size_t k = 0; k < from.size() && from.size() < kBranches; ++k) {
      const auto [n, behind] = from[k];
      for (ValueId v : f_.node(n).outputs) {
        const std::vector<NodeId>& users = a_.Users(v);
        for (size_t u = 0; u < std::min(users.size(), kBranches); ++u) {
          from.emplace_back(users[u], behind || IsBarrier(users[u]));
        }
      }
    }
    for (ValueId v : f_.node(id).inputs) {
      const NodeId target = a_.ProducerId(v);
      if (!target.valid()) continue;
      for (const auto& [n, behind] : from) {
        if (ancestry_.Covers(n, target) && (behind || barriers_[I(target)] > barriers_[I(n)])) {
          return true;
        }
      }
    }
    return false;
  }

  // Every edge between two fused clusters, with the reason found when joining failed.
  void ReportUnfused(Clusters* out) const {
    for (NodeId id : f_.order()) {
      if (a_.Kind(id) != NodeKind::kFusable) continue;
      std::set<NodeId> told;
      for (ValueId v : f_.node(id).inputs) {
        const NodeId p = a_.ProducerId(a_.Base(v));
        if (!p.valid() || a_.Kind(p) != NodeKind::kFusable || !told.insert(p).second) continue;
        const int c = Source(v);
        if (c == part_[I(id)]) continue;
        std::string why = "needs the complete reduction first";
        if (!IsTerminal(p)) {
          Result<Group> pair = BuildGroup(a_, {{p, false}, {id, false}});
          const auto it = reasons_.find({c, id});
          if (!pair.ok()) {
            why = pair.status().message();
          } else if (Between(p, id)) {
            why = kCycle;
          } else if (it == reasons_.end()) {
            why = "joined another group";
          } else {
            // What lies between the two groups need not lie between the two ops.
            why = it->second == kCycle ? "their groups need each other's values" : it->second;
          }
        }
        out->unfused.push_back(fmt::format("{} | {}: {}", Name(p), Name(id), why));
      }
    }
  }

  const Analysis& a_;
  const ir::Function& f_;
  const std::vector<std::vector<NodeId>>& extra_;
  std::vector<Cluster> clusters_;
  std::vector<int> part_, finish_;            // cluster of a node
  std::vector<int> opaque_;                   // per position: kernels of single ops up to there
  std::vector<std::vector<NodeId>> readers_;  // fusable readers of a value
  std::map<std::pair<int, NodeId>, std::string> reasons_;
  std::vector<int> scheduled_;
  Ancestry ancestry_;
  std::vector<std::vector<NodeId>> sources_;  // of a node, sorted
  std::vector<int> seen_;                     // per cluster: the last search that met it
  int search_ = 0;
  std::vector<int> barriers_;  // of a node and all above it in the forest
  std::vector<int> latest_;    // position of the latest barrier that a node waits for, or -1
};

}  // namespace

Result<Clusters> FormClusters(const Analysis& analysis,
                              const std::vector<std::vector<NodeId>>& extra) {
  return ClusterBuilder(analysis, extra).Run();
}

}  // namespace hyper::lower
