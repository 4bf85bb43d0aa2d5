// Lowers one decomposed function: decides where values lie and emits kernel calls cluster by
// cluster. Roots of arguments and constants are shared by the functions of a module.
// Thread safety: none.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lower/analysis.h"
#include "lower/cluster.h"
#include "lower/lowered.h"

namespace hyper::lower {

struct Place {
  RootId root;
  View view;
  bool operator==(const Place&) const = default;
};

// Roots shared by all functions of a module.
class RootTable {
 public:
  explicit RootTable(std::vector<Root>* roots) : roots_(*roots) {}
  RootId New(Root root);
  Root& operator[](RootId id) { return roots_[static_cast<size_t>(id.index)]; }
  const Root& operator[](RootId id) const { return roots_[static_cast<size_t>(id.index)]; }
  int size() const { return static_cast<int>(roots_.size()); }
  const std::vector<Root>& all() const { return roots_; }
  Result<RootId> Argument(const ir::Argument& argument, const ir::TensorType& type);
  RootId Constant(const ir::HostTensor& value);

 private:
  std::vector<Root>& roots_;
  std::map<std::tuple<int, std::string, std::string>, RootId> arguments_;
  std::map<const void*, std::vector<RootId>> constants_;  // by the address of their bytes
};

class FunctionLowering {
 public:
  // `markers`: emit "gradient complete" after each kGradient result (training steps).
  FunctionLowering(const ir::Function& function, RootTable* roots, const LowerOptions& options,
                   bool markers);
  Result<LoweredFunction> Run(std::string name);
  const std::vector<std::string>& gradients() const { return gradient_order_; }

 private:
  // ---- places.cc
  Status PlaceArguments();
  void ForceResults();
  bool Force(ir::ValueId v, const Place& place, bool accumulate);
  void ForceConcats();
  Place NewRoot(const ir::TensorType& type, const View& view, std::string name);
  Place NewLike(ir::ValueId v);
  Place OutputPlace(ir::ValueId v);
  Result<Place> PlaceOf(ir::ValueId v);
  Result<Place> MaterializeCheap(ir::ValueId v);
  // Dense row-major copy when the place is anything else.
  Result<Place> RowMajor(ir::ValueId v);
  Result<Place> CopyTo(const Place& from, const View& layout, std::string name);
  void EmitCopy(const Place& from, const Place& to);
  void Record(ir::ValueId base, const Place& place);
  int LastUse(RootId root) const;
  // Results that are `base` or views of it.
  const std::vector<int>& ResultsOf(ir::ValueId base) const { return results_of_[I(base)]; }
  Status FinishResults();
  void EmitMarkers(const ir::Node& node);
  void EmitMarker(const std::string& gradient);

  // ---- fused.cc
  Status EmitFused(const Cluster& cluster);

  // ---- single.cc
  Status EmitSingle(ir::NodeId id);
  Status EmitDot(const ir::Node& node);
  Status EmitConv(const ir::Node& node);
  Status EmitConcat(const ir::Node& node);
  Status EmitPad(const ir::Node& node);
  Status EmitAccumulate(const ir::Node& node);
  Status EmitGenerated(const ir::Node& node, const std::string& form);
  Status EmitReference(ir::NodeId id);
  Status RunReferenceMode();
  void AddOp(LoweredOp op, const ir::Node& node);
  // AddOp of a library kernel, with the workspace that the target asks for.
  Status AddLibraryOp(LoweredOp op, const ir::Node& node);
  Operand Out(ir::ValueId v, const Place& place) const;

  static size_t I(ir::ValueId v) { return static_cast<size_t>(v.index); }
  static size_t I(ir::NodeId v) { return static_cast<size_t>(v.index); }

  friend class FusedEmitter;

  const ir::Function& f_;
  Analysis a_;
  RootTable& roots_;
  LowerOptions options_;
  bool markers_;
  LoweredFunction out_;
  std::vector<std::vector<int>> results_of_;           // per base value: results, in order
  std::vector<std::optional<Place>> place_;            // per value
  std::vector<std::optional<Place>> forced_;           // per value
  std::vector<bool> accumulates_;                      // forced values that add to their place
  std::vector<std::vector<ir::NodeId>> extra_;         // per node: must run before
  std::vector<std::vector<ir::NodeId>> base_readers_;  // per base value: kernels that read it
  std::vector<int> part_, finish_;                     // per node: position of its cluster
  std::map<RootId, std::vector<ir::ValueId>> in_root_;
  int at_ = 0;                             // cluster being emitted
  std::map<ir::ValueId, Place> partials_;  // terminal reductions: chunk sums
  std::map<ir::NodeId, std::vector<std::string>> marker_after_;
  std::vector<std::string> gradient_order_;
  std::set<std::string> gradients_done_;  // the same names
};

// Operand helpers.
Operand Read(const Place& place);
Operand Write(const Place& place);
int64_t OperandBytes(const std::vector<Operand>& operands);

}  // namespace hyper::lower
