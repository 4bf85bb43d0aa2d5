#include <array>
#include <map>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "codegen/compile.h"
#include "codegen/validate.h"

namespace hyper::codegen {
namespace {

using lower::Root;
using lower::Storage;

program::DType ProtoDType(ir::DType dtype) { return static_cast<program::DType>(dtype); }

bool HasSlot(Storage storage) {
  return storage != Storage::kResult && storage != Storage::kTemporary;
}

// Roots that get a slot, in the order of their addresses' classes.
std::vector<size_t> SlotRoots(const offload::PlacedModule& placed) {
  std::vector<size_t> result;
  for (int storage = 0; storage <= static_cast<int>(Storage::kTemporary); ++storage) {
    for (size_t i = 0; i < placed.module.roots.size(); ++i) {
      const Root& root = placed.module.roots[i];
      if (static_cast<int>(root.storage) != storage || !HasSlot(root.storage)) continue;
      if (placed.offsets[i] >= 0) result.push_back(i);
    }
  }
  return result;
}

// Constants are known by number: their logical names need not be unique.
std::string SlotName(const Root& root, size_t index) {
  return root.storage == Storage::kConstant ? fmt::format("constant.{}", index) : root.name;
}

// Type and strides of the logical tensor in a root.
Status SlotView(const Root& root, ir::TensorType* type, ir::Dims* strides) {
  *type = root.storage == Storage::kConstant ? root.constant.type() : root.logical;
  *strides = root.logical_strides;
  if (strides->empty()) *strides = ir::RowMajorStrides(type->dims);
  if (strides->size() != type->dims.size()) {
    return Internal(
        fmt::format("'{}' is {} with {} strides", root.name, type->ToString(), strides->size()));
  }
  return Status::Ok();
}

class Builder {
 public:
  Builder(const offload::PlacedModule& placed, const std::vector<std::vector<std::string>>& symbols)
      : placed_(placed), symbols_(symbols) {}

  Result<program::Program> Run() {
    program_.set_format_version(kBundleFormatVersion);
    program_.set_target("cpu");
    program_.set_arena_bytes(placed_.arena_bytes);
    for (const offload::RegionPlan& plan : placed_.regions) {
      program::Region* region = program_.add_regions();
      region->set_storage(static_cast<program::Storage>(plan.storage));
      region->set_begin(plan.begin);
      region->set_end(plan.end);
    }
    HYPER_RETURN_IF_ERROR(AddSlots());
    AddBuckets();
    for (size_t f = 0; f < placed_.module.functions.size(); ++f) {
      HYPER_RETURN_IF_ERROR(AddFunction(f));
    }
    return std::move(program_);
  }

 private:
  // `view.offset` in elements of the view's type, from the start of the root.
  Status FillOperand(size_t root_index, const lower::View& view, lower::Access access,
                     program::Operand* out) const {
    const Root& root = placed_.module.roots[root_index];
    const int64_t bytes = ir::DTypeBytes(view.type.dtype);
    const int64_t base = placed_.offsets[root_index];
    const int64_t root_bytes = root.elements * ir::DTypeBytes(root.dtype);
    if (view.strides.size() != view.type.dims.size()) {
      return Internal(fmt::format("a view of '{}' has {} dims and {} strides", root.name,
                                  view.type.dims.size(), view.strides.size()));
    }
    HYPER_ASSIGN_OR_RETURN(const auto touched, TouchedBytes(view.type.dims, view.strides, bytes));
    const bool empty = view.type.elements() == 0;
    // A view without elements may point behind its root; it touches nothing there.
    const int64_t offset = empty ? base : base + view.offset * bytes;
    if (offset + touched.first < base || offset + touched.second > base + root_bytes) {
      return Internal(fmt::format("a view {} of '{}' touches bytes [{}, {}) of {}",
                                  view.type.ToString(), root.name, offset + touched.first - base,
                                  offset + touched.second - base, root_bytes));
    }
    out->set_name(root.name);
    out->set_dtype(ProtoDType(view.type.dtype));
    out->mutable_dims()->Add(view.type.dims.begin(), view.type.dims.end());
    out->mutable_strides()->Add(view.strides.begin(), view.strides.end());
    out->set_offset(offset);
    out->set_begin(offset + touched.first);
    out->set_end(offset + touched.second);
    out->set_access(static_cast<program::Access>(access));
    return Status::Ok();
  }

  Status AddSlots() {
    std::optional<int64_t> micro_batch;
    for (const size_t index : SlotRoots(placed_)) {
      const Root& root = placed_.module.roots[index];
      program::Slot* slot = program_.add_slots();
      slot->set_storage(static_cast<program::Storage>(root.storage));
      slot->set_name(SlotName(root, index));
      slot->set_slot(root.slot);
      lower::View view;
      HYPER_RETURN_IF_ERROR(SlotView(root, &view.type, &view.strides));
      HYPER_RETURN_IF_ERROR(
          FillOperand(index, view, lower::Access::kReadWrite, slot->mutable_place()));
      slot->mutable_place()->set_name(slot->name());
      if (root.storage == Storage::kInput) {
        const int64_t samples = view.type.dims.empty() ? 0 : view.type.dims[0];
        micro_batch = micro_batch.value_or(samples) == samples ? samples : 0;
      }
      if (root.storage == Storage::kParameter && root.dtype == ir::DType::kF64) {
        program_.set_compute_dtype(program::F64);
      }
    }
    program_.set_micro_batch(micro_batch.value_or(0));
    return Status::Ok();
  }

  void AddBuckets() {
    for (size_t i = 0; i < placed_.buckets.size(); ++i) {
      const offload::GradientBucket& plan = placed_.buckets[i];
      program::Bucket* bucket = program_.add_buckets();
      bucket->set_begin(plan.begin);
      bucket->set_end(plan.end);
      bucket->set_dtype(ProtoDType(plan.dtype));
      for (const std::string& name : plan.parameters) bucket->add_parameters(name);
      bucket_index_[plan.parameters] = static_cast<int>(i);
    }
  }

  Status AddFunction(size_t f) {
    const lower::LoweredFunction& function = placed_.module.functions[f];
    program::SubProgram* sub = program_.add_subprograms();
    sub->set_name(function.name);
    if (function.name == "step_first") program_.set_training(true);
    sub->set_temporary_peak(placed_.functions[f].temporary_peak);
    sub->set_live_lower_bound(placed_.functions[f].live_lower_bound);
    for (size_t i = 0; i < function.ops.size(); ++i) {
      const Status status = AddInstruction(f, i, sub->add_instructions());
      if (!status.ok()) {
        return status.WithContext(
            fmt::format("@{} op {} ({})", function.name, i, function.ops[i].source));
      }
    }
    for (const lower::LoweredFunction::Named& result : function.results) {
      program::Operand* out = sub->add_results();
      HYPER_RETURN_IF_ERROR(FillOperand(static_cast<size_t>(result.operand.root.index),
                                        result.operand.view, lower::Access::kRead, out));
      out->set_name(result.name);
    }
    return Status::Ok();
  }

  Status AddInstruction(size_t f, size_t i, program::Instruction* out) const {
    const lower::LoweredOp& op = placed_.module.functions[f].ops[i];
    out->set_source(op.source);
    out->set_role(std::string(ir::RoleName(op.role)));
    out->set_flops(op.flops);
    out->set_bytes_moved(op.bytes_moved);
    for (const lower::Operand& operand : op.operands) {
      HYPER_RETURN_IF_ERROR(FillOperand(static_cast<size_t>(operand.root.index), operand.view,
                                        operand.access, out->add_operands()));
    }
    if (const auto* library = std::get_if<lower::LibraryKernel>(&op.kernel)) {
      out->mutable_library()->set_primitive(library->primitive);
      out->mutable_library()->set_op(library->op);
      AddAttributes(library->attributes, out->mutable_library()->mutable_attributes());
    } else if (const auto* generated = std::get_if<lower::GeneratedKernel>(&op.kernel)) {
      if (f >= symbols_.size() || i >= symbols_[f].size() || symbols_[f][i].empty()) {
        return Internal("the generated kernel has no symbol");
      }
      out->mutable_generated()->set_symbol(symbols_[f][i]);
      out->set_lower_bound_bytes(generated->lower_bound_bytes);
      out->set_fused_group(op.group);
    } else if (const auto* reference = std::get_if<lower::ReferenceKernel>(&op.kernel)) {
      out->mutable_reference()->set_op(reference->op);
      out->mutable_reference()->set_op_id(reference->op_id);
      AddAttributes(reference->attributes, out->mutable_reference()->mutable_attributes());
    } else {
      const auto& marker = std::get<lower::MarkerKernel>(op.kernel);
      const auto bucket = bucket_index_.find(marker.parameters);
      if (bucket == bucket_index_.end()) return Internal("a marker belongs to no bucket");
      out->mutable_marker()->set_bucket(bucket->second);
    }
    return Status::Ok();
  }

  template <typename List>
  static void AddAttributes(const ir::Attributes& attributes, List* out) {
    for (const auto& [name, value] : attributes) {
      program::Attribute* a = out->Add();
      a->set_name(name);
      switch (ir::KindOf(value)) {
        case ir::AttributeKind::kInt: a->set_int_value(std::get<int64_t>(value)); break;
        case ir::AttributeKind::kFloat: a->set_float_value(std::get<double>(value)); break;
        case ir::AttributeKind::kBool: a->set_bool_value(std::get<bool>(value)); break;
        case ir::AttributeKind::kString: a->set_string_value(std::get<std::string>(value)); break;
        case ir::AttributeKind::kDims: {
          const ir::Dims& dims = std::get<ir::Dims>(value);
          a->mutable_dims_value()->mutable_values()->Add(dims.begin(), dims.end());
          break;
        }
        case ir::AttributeKind::kDType:
          a->set_dtype_value(ProtoDType(std::get<ir::DType>(value)));
          break;
        case ir::AttributeKind::kExpr:
          a->set_expr_value(std::get<ir::Expr>(value).ToString());
          break;
        case ir::AttributeKind::kTensor: {
          const ir::HostTensor& tensor = std::get<ir::HostTensor>(value);
          a->set_tensor_value(std::string(reinterpret_cast<const char*>(tensor.bytes().data()),
                                          tensor.bytes().size()));
          a->set_tensor_dtype(ProtoDType(tensor.type().dtype));
          a->mutable_tensor_dims()->Add(tensor.type().dims.begin(), tensor.type().dims.end());
          break;
        }
      }
    }
  }

  const offload::PlacedModule& placed_;
  const std::vector<std::vector<std::string>>& symbols_;
  program::Program program_;
  std::map<std::vector<std::string>, int> bucket_index_;
};

}  // namespace

Result<program::Program> BuildProgram(const offload::PlacedModule& placed,
                                      const std::vector<std::vector<std::string>>& symbols) {
  return Builder(placed, symbols).Run();
}

Result<std::vector<ir::HostTensor>> CollectSlotData(const offload::PlacedModule& placed,
                                                    const program::Program& program) {
  const std::vector<size_t> roots = SlotRoots(placed);
  if (roots.size() != static_cast<size_t>(program.slots_size())) {
    return Internal(
        fmt::format("the program has {} slots, the module {}", program.slots_size(), roots.size()));
  }
  std::vector<ir::HostTensor> data(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const Root& root = placed.module.roots[roots[i]];
    if (root.storage == Storage::kConstant) {
      data[i] = root.constant;
    } else if (root.storage == Storage::kParameter || root.storage == Storage::kFrozen ||
               root.storage == Storage::kState) {
      const ir::PersistentTensor* tensor = placed.module.source.FindTensor(root.name);
      if (tensor == nullptr) {
        return Internal(fmt::format("the module has no tensor '{}'", root.name));
      }
      data[i] = tensor->initial;
    } else {
      continue;
    }
    if (!data[i].defined() ||
        data[i].type().dims.size() !=
            static_cast<size_t>(program.slots(static_cast<int>(i)).place().dims_size())) {
      return Internal(fmt::format("'{}' has no initial value", root.name));
    }
  }
  return data;
}

}  // namespace hyper::codegen
