#include "codegen/validate.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "codegen/bundle.h"
#include "codegen/call_record.h"

namespace hyper::codegen {
namespace {

constexpr int64_t kMaxBytes = kMaxArenaBytes;
constexpr int kMaxRank = 32;

class Validator {
 public:
  Validator(const program::Program& program, const ProgramContext& context)
      : program_(program), context_(context) {}

  Status Run() {
    HYPER_RETURN_IF_ERROR(CheckHeader());
    HYPER_RETURN_IF_ERROR(CheckRegions());
    for (int i = 0; i < program_.slots_size(); ++i) {
      HYPER_RETURN_IF_ERROR(CheckSlot(program_.slots(i), fmt::format("slot {}", i)));
    }
    HYPER_RETURN_IF_ERROR(CheckBuckets());
    std::set<std::string> names;
    for (const program::SubProgram& sub : program_.subprograms()) {
      if (sub.name().empty() || !names.insert(sub.name()).second) {
        return DataLoss(
            fmt::format("program: subprogram name '{}' is empty or used twice", Short(sub.name())));
      }
      HYPER_RETURN_IF_ERROR(CheckSubProgram(sub));
    }
    for (const program::LossTerm& loss : program_.losses()) {
      if (!std::isfinite(loss.weight()) || loss.constant_count() < 0) {
        return DataLoss(fmt::format("program: loss '{}' has weight {} and count {}",
                                    Short(loss.name()), loss.weight(), loss.constant_count()));
      }
    }
    return Status::Ok();
  }

 private:
  // Names come from the file: keep messages short.
  static std::string Short(const std::string& name) { return name.substr(0, 80); }

  Status CheckHeader() const {
    if (program_.format_version() != kBundleFormatVersion) {
      return FailedPrecondition(fmt::format("program: format version {}, this program reads {}",
                                            program_.format_version(), kBundleFormatVersion));
    }
    if (program_.target() != "cpu") {
      return FailedPrecondition(
          fmt::format("program: target '{}', this program runs 'cpu'", Short(program_.target())));
    }
    if (program_.arena_bytes() < 0 || program_.arena_bytes() > kMaxBytes) {
      return DataLoss(fmt::format("program: arena of {} bytes, accepted are 0 to {}",
                                  program_.arena_bytes(), kMaxBytes));
    }
    if (program_.micro_batch() < 0) {
      return DataLoss(fmt::format("program: micro-batch of {} samples", program_.micro_batch()));
    }
    if (program_.threads() < 0) {
      return DataLoss(fmt::format("program: planned for {} threads", program_.threads()));
    }
    if (program_.compute_dtype() != program::F32 && program_.compute_dtype() != program::F64) {
      return DataLoss(fmt::format("program: compute dtype {} is neither F32 nor F64",
                                  static_cast<int>(program_.compute_dtype())));
    }
    return Status::Ok();
  }

  Status CheckRegions() {
    int64_t end = 0;
    std::set<int> seen;
    for (const program::Region& region : program_.regions()) {
      const int storage = static_cast<int>(region.storage());
      if (!program::Storage_IsValid(storage) || !seen.insert(storage).second) {
        return DataLoss(
            fmt::format("program: region of storage class {} is unknown or twice", storage));
      }
      if (region.begin() < end || region.end() < region.begin() ||
          region.end() > program_.arena_bytes()) {
        return DataLoss(
            fmt::format("program: region {} is [{}, {}), expected one behind byte {} of {}",
                        program::Storage_Name(region.storage()), region.begin(), region.end(), end,
                        program_.arena_bytes()));
      }
      end = region.end();
    }
    return Status::Ok();
  }

  const program::Region* FindRegion(program::Storage storage) const {
    for (const program::Region& region : program_.regions()) {
      if (region.storage() == storage) return &region;
    }
    return nullptr;
  }

  static bool Inside(int64_t begin, int64_t end, const program::Region& region) {
    return region.begin() <= begin && begin <= end && end <= region.end();
  }

  // Checks the view against its byte range and the range against one region. `dense`: the view
  // must have a place of its own for each element.
  Status CheckOperand(const program::Operand& o, const std::string& where, bool dense) const {
    const auto wrong = [&](const std::string& what) {
      return DataLoss(fmt::format("program: {} ('{}'): {}", where, Short(o.name()), what));
    };
    if (!program::DType_IsValid(o.dtype())) return wrong("unknown element type");
    if (!program::Access_IsValid(o.access())) return wrong("unknown access");
    if (o.dims_size() != o.strides_size() || o.dims_size() > kMaxRank) {
      return wrong(fmt::format("{} dims and {} strides", o.dims_size(), o.strides_size()));
    }
    const std::vector<int64_t> dims(o.dims().begin(), o.dims().end());
    const std::vector<int64_t> strides(o.strides().begin(), o.strides().end());
    const Result<int64_t> elements = CheckedElements(dims);
    if (!elements.ok()) return wrong(elements.status().message());
    const int64_t bytes = DTypeBytes(o.dtype());
    const auto touched = TouchedBytes(dims, strides, bytes);
    if (!touched.ok()) return wrong(touched.status().message());
    if (o.offset() < 0 || o.offset() > program_.arena_bytes() || o.offset() % bytes != 0) {
      return wrong(fmt::format("offset {} is not a multiple of {} in an arena of {} bytes",
                               o.offset(), bytes, program_.arena_bytes()));
    }
    // Both summands are far below 2^62: no overflow.
    const int64_t begin = o.offset() + touched->first;
    const int64_t end = o.offset() + touched->second;
    if (o.begin() != begin || o.end() != end) {
      return wrong(fmt::format("touches bytes [{}, {}) but is said to touch [{}, {})", begin, end,
                               o.begin(), o.end()));
    }
    const bool inside =
        std::any_of(program_.regions().begin(), program_.regions().end(),
                    [&](const program::Region& region) { return Inside(begin, end, region); });
    if (!inside) {
      return wrong(fmt::format("bytes [{}, {}) lie in no region of the arena of {} bytes", begin,
                               end, program_.arena_bytes()));
    }
    if (dense && !DistinctElements(dims, strides)) {
      return wrong("several elements share a place");
    }
    return Status::Ok();
  }

  // True when strides, sorted, each reach beyond what the smaller ones span.
  static bool DistinctElements(const std::vector<int64_t>& dims,
                               const std::vector<int64_t>& strides) {
    std::vector<std::pair<int64_t, int64_t>> axes;  // |stride|, extent
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 0) return true;
      if (dims[i] > 1) axes.emplace_back(std::abs(strides[i]), dims[i]);
    }
    std::sort(axes.begin(), axes.end());
    int64_t span = 0;  // largest index so far; bounded by TouchedBytes
    for (const auto& [stride, extent] : axes) {
      if (stride <= span) return false;
      span += stride * (extent - 1);
    }
    return true;
  }

  Status CheckSlot(const program::Slot& slot, const std::string& index) {
    const std::string where = fmt::format("{} '{}'", index, Short(slot.name()));
    const program::Region* region =
        program::Storage_IsValid(slot.storage()) ? FindRegion(slot.storage()) : nullptr;
    if (region == nullptr) return DataLoss(fmt::format("program: {} has no region", where));
    if (!slots_.emplace(static_cast<int>(slot.storage()), slot.name(), slot.slot()).second) {
      return DataLoss(fmt::format("program: {} is there twice", where));
    }
    HYPER_RETURN_IF_ERROR(CheckOperand(slot.place(), where, /*dense=*/true));
    if (!Inside(slot.place().begin(), slot.place().end(), *region)) {
      return DataLoss(fmt::format("program: {} lies outside its region {}", where,
                                  program::Storage_Name(slot.storage())));
    }
    const std::vector<int64_t> dims(slot.place().dims().begin(), slot.place().dims().end());
    HYPER_ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims));
    const int64_t bytes = elements * DTypeBytes(slot.place().dtype());
    const bool stored = slot.data_bytes() != 0;
    const bool must = slot.storage() == program::PARAMETER || slot.storage() == program::FROZEN ||
                      slot.storage() == program::STATE || slot.storage() == program::CONSTANT;
    if ((stored || must) && slot.data_bytes() != bytes) {
      return DataLoss(fmt::format("program: {} has {} bytes of data, expected {}", where,
                                  slot.data_bytes(), bytes));
    }
    if (slot.data_offset() < 0 || slot.data_offset() > context_.tensors_bytes ||
        slot.data_bytes() > context_.tensors_bytes - slot.data_offset()) {
      return DataLoss(fmt::format("program: {}: data at byte {} of {} in tensors.bin of {} bytes",
                                  where, slot.data_offset(), slot.data_bytes(),
                                  context_.tensors_bytes));
    }
    return Status::Ok();
  }

  Status CheckBuckets() const {
    const program::Region* region = FindRegion(program::GRADIENT);
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (int i = 0; i < program_.buckets_size(); ++i) {
      const program::Bucket& bucket = program_.buckets(i);
      const bool valid = region != nullptr && program::DType_IsValid(bucket.dtype()) &&
                         Inside(bucket.begin(), bucket.end(), *region) &&
                         bucket.begin() % DTypeBytes(bucket.dtype()) == 0 &&
                         bucket.end() % DTypeBytes(bucket.dtype()) == 0;
      if (!valid) {
        return DataLoss(fmt::format("program: bucket {} [{}, {}) is no range of gradients", i,
                                    bucket.begin(), bucket.end()));
      }
      ranges.emplace_back(bucket.begin(), bucket.end());
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].first < ranges[i - 1].second) {
        return DataLoss(fmt::format("program: buckets overlap at byte {}", ranges[i].first));
      }
    }
    return Status::Ok();
  }

  Status CheckSubProgram(const program::SubProgram& sub) const {
    const std::string at = fmt::format("@{}", Short(sub.name()));
    for (int i = 0; i < sub.instructions_size(); ++i) {
      HYPER_RETURN_IF_ERROR(
          CheckInstruction(sub.instructions(i), fmt::format("{} instruction {}", at, i)));
    }
    for (const program::Operand& result : sub.results()) {
      HYPER_RETURN_IF_ERROR(CheckOperand(result, at + " result", /*dense=*/false));
    }
    const program::Region* region = FindRegion(program::TEMPORARY);
    const int64_t available = region == nullptr ? 0 : region->end() - region->begin();
    if (sub.temporary_peak() < 0 || sub.temporary_peak() > available ||
        sub.live_lower_bound() < 0) {
      return DataLoss(fmt::format("program: {} uses {} bytes of {} for temporaries", at,
                                  sub.temporary_peak(), available));
    }
    return Status::Ok();
  }

  Status CheckInstruction(const program::Instruction& instruction, const std::string& where) const {
    const auto wrong = [&](const std::string& what) {
      return DataLoss(fmt::format("program: {}: {}", where, what));
    };
    for (int i = 0; i < instruction.operands_size(); ++i) {
      HYPER_RETURN_IF_ERROR(CheckOperand(instruction.operands(i),
                                         fmt::format("{} operand {}", where, i),
                                         /*dense=*/false));
    }
    const auto workspaces =
        std::count_if(instruction.operands().begin(), instruction.operands().end(),
                      [](const program::Operand& o) { return o.access() == program::WORKSPACE; });
    const int last = instruction.operands_size() - 1;
    if (workspaces > 1 ||
        (workspaces == 1 && instruction.operands(last).access() != program::WORKSPACE)) {
      return wrong("a workspace must be the last operand");
    }
    switch (instruction.kernel_case()) {
      case program::Instruction::kLibrary:
        if (instruction.library().primitive().empty()) return wrong("library call without a name");
        HYPER_RETURN_IF_ERROR(CheckAttributes(instruction.library().attributes(), where));
        return CheckRecord(instruction.library(), instruction, where);
      case program::Instruction::kGenerated:
        if (instruction.generated().symbol().empty()) return wrong("kernel without a name");
        if (!context_.has_kernels) return wrong("generated kernel but no kernels.so");
        return Status::Ok();
      case program::Instruction::kReference:
        if (instruction.reference().op().empty()) return wrong("reference call without an op");
        HYPER_RETURN_IF_ERROR(CheckAttributes(instruction.reference().attributes(), where));
        return CheckRecord(instruction.reference(), instruction, where);
      case program::Instruction::kMarker:
        if (instruction.marker().bucket() < 0 ||
            instruction.marker().bucket() >= program_.buckets_size()) {
          return wrong(fmt::format("marker of bucket {} of {}", instruction.marker().bucket(),
                                   program_.buckets_size()));
        }
        return Status::Ok();
      case program::Instruction::KERNEL_NOT_SET: break;
    }
    return wrong("no kernel");
  }

  template <typename Call>
  static Status CheckRecord(const Call& call, const program::Instruction& instruction,
                            const std::string& where) {
    const Status status = CheckCall(call.op(), call.attributes(), instruction.operands());
    return status.ok() ? status : DataLoss(fmt::format("program: {}: {}", where, status.message()));
  }

  template <typename List>
  Status CheckAttributes(const List& attributes, const std::string& where) const {
    std::set<std::string> names;
    for (const program::Attribute& a : attributes) {
      const auto wrong = [&](std::string_view what) {
        return DataLoss(
            fmt::format("program: {}: attribute '{}': {}", where, Short(a.name()), what));
      };
      if (!names.insert(a.name()).second) return wrong("there twice");
      if (a.value_case() == program::Attribute::VALUE_NOT_SET) return wrong("no value");
      if (a.value_case() == program::Attribute::kDtypeValue &&
          !program::DType_IsValid(a.dtype_value())) {
        return wrong("unknown element type");
      }
      if (a.value_case() != program::Attribute::kTensorValue) continue;
      if (!program::DType_IsValid(a.tensor_dtype())) return wrong("unknown element type");
      const std::vector<int64_t> dims(a.tensor_dims().begin(), a.tensor_dims().end());
      const Result<int64_t> elements = CheckedElements(dims);
      if (!elements.ok()) return wrong(elements.status().message());
      const auto bytes = static_cast<int64_t>(a.tensor_value().size());
      if (*elements * DTypeBytes(a.tensor_dtype()) != bytes) {
        return wrong("its data has another size than its type");
      }
    }
    return Status::Ok();
  }

  const program::Program& program_;
  const ProgramContext& context_;
  std::set<std::tuple<int, std::string, std::string>> slots_;
};

}  // namespace

int64_t DTypeBytes(program::DType dtype) { return ir::DTypeBytes(static_cast<ir::DType>(dtype)); }

Result<int64_t> CheckedElements(std::span<const int64_t> dims) {
  bool empty = false;
  for (const int64_t extent : dims) {
    if (extent < 0) return DataLoss(fmt::format("negative extent {}", extent));
    empty = empty || extent == 0;
  }
  if (empty) return 0;
  int64_t elements = 1;
  for (const int64_t extent : dims) {
    if (extent > kMaxBytes / elements) return DataLoss("more than 2^46 elements");
    elements *= extent;
  }
  return elements;
}

Result<std::pair<int64_t, int64_t>> TouchedBytes(std::span<const int64_t> dims,
                                                 std::span<const int64_t> strides,
                                                 int64_t element_bytes) {
  int64_t low = 0;
  int64_t high = 0;
  for (const int64_t extent : dims) {
    if (extent == 0) return std::pair<int64_t, int64_t>(0, 0);
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    const __int128 reach = static_cast<__int128>(strides[i]) * (dims[i] - 1);
    if (reach > kMaxBytes || reach < -kMaxBytes) return DataLoss("strides reach beyond 2^46");
    (reach < 0 ? low : high) += static_cast<int64_t>(reach);
  }
  return std::pair(low * element_bytes, (high + 1) * element_bytes);
}

Status ValidateProgram(const program::Program& program, const ProgramContext& context) {
  return Validator(program, context).Run();
}

}  // namespace hyper::codegen
