// The lowered form of a module: every value has a physical place in some root buffer (strides and
// offset, not yet an address), every remaining operation is one kernel call. Views (transpose,
// slice, broadcast, most reshapes) cost nothing: they only re-stride their root.
// Thread safety: value types.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/types.h"

namespace hyper::lower {

// Where one operand's elements lie inside its root buffer, in elements of its dtype.
struct View {
  ir::TensorType type;  // logical dims of this operand
  ir::Dims strides;     // one per dim; 0 where broadcast
  int64_t offset = 0;   // of logical element (0,..,0)
  bool operator==(const View&) const = default;
};

struct RootId {
  int32_t index = -1;
  bool valid() const { return index >= 0; }
  auto operator<=>(const RootId&) const = default;
};

// Storage classes in the order in which they lie in the arena.
enum class Storage : uint8_t {
  kParameter,
  kGradient,
  kOptimizer,
  kFrozen,
  kState,
  kStatistic,
  kInput,      // data of one micro-batch
  kScalar,     // runtime scalars, rng key
  kConstant,   // tensors known at compile time, filled at load
  kResult,     // loss sums and model outputs: live after the function returned
  kTemporary,  // planned by lifetime; includes workspaces
};

struct Root {
  std::string name;  // logical name for arguments, source tensor or "%v" otherwise
  Storage storage = Storage::kTemporary;
  ir::DType dtype = ir::DType::kF32;
  int64_t elements = 0;      // dense size of the buffer
  std::string slot;          // optimizer slot
  ir::TensorType logical;    // arguments and results: type in the module
  ir::Dims logical_strides;  // how the logical tensor lies in the buffer
  ir::HostTensor constant;   // kConstant
};

enum class Access : uint8_t {
  kRead,
  kWrite,       // overwrites all of its view
  kAccumulate,  // adds to what is there
  kReadWrite,   // in-place update
  kWorkspace,   // scratch, content undefined before and after
};

struct Operand {
  RootId root;
  View view;
  Access access = Access::kRead;
};

// oneDNN and the like: `primitive` names the runtime's kernel ("onednn.matmul"), `op`/`attributes`
// the core op it implements on the operands' views.
struct LibraryKernel {
  std::string primitive;
  std::string op;
  ir::Attributes attributes;
};

// A fused group: a tiny Function whose arguments are the read operands and whose results are the
// written ones, in operand order; the emitter turns it and the views into one loop nest.
struct GeneratedKernel {
  std::string form;  // "map", "reduce", "row", ... chooses the emitter's template
  ir::Function body{"kernel"};
  int64_t lower_bound_bytes = 0;  // this call's part of its group's unavoidable traffic (traffic.h)
};

struct ReferenceKernel {
  std::string op;
  ir::Attributes attributes;
  int64_t op_id = -1;
};

// "The gradient of these parameters is complete": fires the data-parallel reduce.
struct MarkerKernel {
  std::vector<std::string> parameters;
};

using Kernel = std::variant<LibraryKernel, GeneratedKernel, ReferenceKernel, MarkerKernel>;

struct LoweredOp {
  Kernel kernel;
  std::vector<Operand> operands;  // in the order of the kernel's contract
  std::string source;             // source node names, '+'-joined for fused groups
  ir::Role role = ir::Role::kForward;
  double flops = 0;
  int64_t bytes_moved = 0;  // what the kernel reads and writes
  int group = 0;            // generated kernels: fused group, from 1 in each function
};

struct LoweredFunction {
  std::string name;            // count, step_first, step_next, stat_weight, grad_norm, update, eval
  std::vector<LoweredOp> ops;  // execution order
  struct Named {               // results in the module's order
    std::string name;
    Operand operand;
  };
  std::vector<Named> results;
  std::vector<std::string> unfused;  // stated reasons: "a | b: different shapes ..."
  // Per node of the decomposed function the kernel that computes it, -1: none of its own. For
  // checks of `unfused`.
  std::vector<int> node_kernels;
};

struct LoweredModule {
  std::string name;
  std::vector<Root> roots;  // shared by all functions (arguments) or local to one
  std::vector<LoweredFunction> functions;
  // Parameters in storage order: the order in which gradients become ready in backward.
  std::vector<std::string> parameter_order;
  ir::Module source;  // for the bundle's text form
};

// Bytes of workspace that a library kernel needs at most on the target. `operands`: those of the
// call without the workspace; pure.
using WorkspaceQuery =
    std::function<Result<int64_t>(const LibraryKernel& kernel, std::span<const Operand> operands)>;

struct LowerOptions {
  bool reference_kernels = false;  // one reference call per op, no fusion (the oracle)
  int64_t vector_bytes = 64;       // alignment the emitter may assume for dense roots
  // Empty: library kernels get no workspace; loading refuses such a program where one is needed.
  WorkspaceQuery workspace;
};

// Contracts of library kernels, operand order:
//   onednn.matmul (dot)                 a, b, y
//   onednn.conv                         conv: x, w, y; conv_grad_input: g, w, dx;
//                                       conv_grad_weight: g, x, dw
// A workspace, where the kernel needs one, is the last operand: bytes (u8) of a temporary of its
// own that lives for this call only. Update ops (sgd, momentum, adam, running_update, ...) are
// generated kernels of form "map".
Result<LoweredModule> Lower(const ir::Module& module, const LowerOptions& options);

}  // namespace hyper::lower
