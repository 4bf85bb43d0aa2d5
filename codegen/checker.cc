#include "codegen/checker.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/validate.h"

namespace hyper::codegen {
namespace {

constexpr size_t kMaxRuns = 256;

using Range = std::pair<int64_t, int64_t>;  // bytes [first, second) of the arena

// A set of bytes as disjoint, non-adjacent ranges.
class ByteSet {
 public:
  void Add(Range range) {
    if (range.first >= range.second) return;
    auto next = ranges_.upper_bound(range.first);
    if (next != ranges_.begin() && std::prev(next)->second >= range.first) --next;
    while (next != ranges_.end() && next->first <= range.second) {
      range.first = std::min(range.first, next->first);
      range.second = std::max(range.second, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace(range.first, range.second);
  }
  bool Covers(Range range) const {
    if (range.first >= range.second) return true;
    const auto next = ranges_.upper_bound(range.first);
    return next != ranges_.begin() && std::prev(next)->second >= range.second;
  }
  void Clear() { ranges_.clear(); }

 private:
  std::map<int64_t, int64_t> ranges_;
};

// The separate contiguous pieces of an operand; empty when it has no elements or too many pieces.
std::vector<Range> Runs(const program::Operand& operand) {
  const int64_t element = DTypeBytes(operand.dtype());
  if (operand.begin() == operand.end()) return {};
  std::vector<Range> axes;  // (stride in bytes, extent), broadcasts left out
  for (int i = 0; i < operand.dims_size(); ++i) {
    const int64_t stride = std::abs(operand.strides(i)) * element;
    if (operand.dims(i) > 1 && stride > 0) axes.emplace_back(stride, operand.dims(i));
  }
  std::sort(axes.begin(), axes.end());
  int64_t run = element;
  size_t inner = 0;
  while (inner < axes.size() && axes[inner].first <= run) {
    run = std::max(run, axes[inner].first * (axes[inner].second - 1) + run);
    ++inner;
  }
  std::vector<Range> runs = {{operand.begin(), operand.begin() + run}};
  for (; inner < axes.size(); ++inner) {
    const auto [stride, extent] = axes[inner];
    if (runs.size() * static_cast<size_t>(extent) > kMaxRuns) return {};
    const size_t count = runs.size();
    for (int64_t k = 1; k < extent; ++k) {
      for (size_t i = 0; i < count; ++i) {
        runs.emplace_back(runs[i].first + k * stride, runs[i].second + k * stride);
      }
    }
  }
  return runs;
}

class FunctionChecker {
 public:
  FunctionChecker(const offload::PlacedModule& placed, const program::Program& program, size_t f)
      : placed_(placed),
        program_(program),
        function_(placed.module.functions[f]),
        sub_(program.subprograms(static_cast<int>(f))) {}

  Status Run() {
    if (sub_.name() != function_.name ||
        sub_.instructions_size() != static_cast<int>(function_.ops.size()) ||
        sub_.results_size() != static_cast<int>(function_.results.size())) {
      return Internal(
          fmt::format("checker: @{} and subprogram '{}' differ", function_.name, sub_.name()));
    }
    HYPER_RETURN_IF_ERROR(CheckPlaces());
    HYPER_RETURN_IF_ERROR(CheckOverlap());
    HYPER_RETURN_IF_ERROR(CheckWrites());
    return CheckMarkers();
  }

 private:
  const lower::Root& root(size_t index) const { return placed_.module.roots[index]; }
  Range Place(size_t index) const {
    const int64_t begin = placed_.offsets[index];
    return {begin, begin + root(index).elements * ir::DTypeBytes(root(index).dtype)};
  }
  Status Wrong(int instruction, const std::string& what) const {
    return Internal(fmt::format("checker: @{} instruction {} ({}): {}", function_.name, instruction,
                                sub_.instructions(instruction).source(), what));
  }
  // Content that exists only while the function runs.
  static bool IsLocal(const lower::Root& root) {
    return root.storage == lower::Storage::kTemporary || root.storage == lower::Storage::kResult;
  }

  Status CheckPlaces() const {
    for (int i = 0; i < sub_.instructions_size(); ++i) {
      const auto& operands = function_.ops[static_cast<size_t>(i)].operands;
      if (sub_.instructions(i).operands_size() != static_cast<int>(operands.size())) {
        return Wrong(i, "lost operands");
      }
      for (size_t k = 0; k < operands.size(); ++k) {
        const Range place = Place(static_cast<size_t>(operands[k].root.index));
        const program::Operand& o = sub_.instructions(i).operands(static_cast<int>(k));
        if (o.begin() < place.first || o.end() > place.second) {
          return Wrong(i, fmt::format("operand {} touches bytes [{}, {}), '{}' lies at [{}, {})", k,
                                      o.begin(), o.end(), o.name(), place.first, place.second));
        }
      }
    }
    return Status::Ok();
  }

  // Sweeps over the instructions with the set of temporaries that are alive.
  Status CheckOverlap() const {
    std::map<size_t, std::pair<int, int>> alive;  // root -> first and last instruction
    for (int i = 0; i < sub_.instructions_size(); ++i) {
      for (const lower::Operand& operand : function_.ops[static_cast<size_t>(i)].operands) {
        const auto index = static_cast<size_t>(operand.root.index);
        if (root(index).storage != lower::Storage::kTemporary) continue;
        alive.try_emplace(index, i, i).first->second.second = i;
      }
    }
    std::vector<std::vector<size_t>> starts(function_.ops.size());
    std::vector<std::vector<size_t>> ends(function_.ops.size());
    for (const auto& [index, life] : alive) {
      starts[static_cast<size_t>(life.first)].push_back(index);
      ends[static_cast<size_t>(life.second)].push_back(index);
    }
    std::map<int64_t, size_t> at;  // first byte -> root, of what is alive and not empty
    for (int i = 0; i < sub_.instructions_size(); ++i) {
      for (const size_t index : starts[static_cast<size_t>(i)]) {
        const Range place = Place(index);
        if (place.first == place.second) continue;
        const auto next = at.lower_bound(place.first);
        const bool hits_next = next != at.end() && next->first < place.second;
        const bool hits_previous =
            next != at.begin() && Place(std::prev(next)->second).second > place.first;
        if (hits_next || hits_previous) {
          const size_t other = hits_next ? next->second : std::prev(next)->second;
          return Wrong(i, fmt::format("'{}' at byte {} overlaps '{}', which is alive",
                                      root(index).name, place.first, root(other).name));
        }
        at.emplace(place.first, index);
      }
      for (const size_t index : ends[static_cast<size_t>(i)]) at.erase(Place(index).first);
    }
    return Status::Ok();
  }

  Status CheckWrites() const {
    std::map<size_t, ByteSet> written;
    for (int i = 0; i < sub_.instructions_size(); ++i) {
      const auto& operands = function_.ops[static_cast<size_t>(i)].operands;
      // Everything is read before anything is written.
      for (size_t k = 0; k < operands.size(); ++k) {
        const auto index = static_cast<size_t>(operands[k].root.index);
        const program::Operand& o = sub_.instructions(i).operands(static_cast<int>(k));
        if (!IsLocal(root(index)) || o.access() == program::WRITE ||
            o.access() == program::WORKSPACE) {
          continue;
        }
        if (!CoversRead(written[index], o)) {
          return Wrong(i, fmt::format("reads '{}' before it is written", root(index).name));
        }
      }
      for (size_t k = 0; k < operands.size(); ++k) {
        const auto index = static_cast<size_t>(operands[k].root.index);
        const program::Operand& o = sub_.instructions(i).operands(static_cast<int>(k));
        if (!IsLocal(root(index)) || o.access() == program::READ) continue;
        if (o.access() == program::WORKSPACE) {
          written[index].Clear();  // content is undefined from here on
        } else {
          AddWrite(written[index], o);
        }
      }
    }
    for (size_t k = 0; k < function_.results.size(); ++k) {
      const auto index = static_cast<size_t>(function_.results[k].operand.root.index);
      const program::Operand& o = sub_.results(static_cast<int>(k));
      if (IsLocal(root(index)) && !CoversRead(written[index], o)) {
        return Internal(
            fmt::format("checker: @{}: result '{}' is never written", function_.name, o.name()));
      }
    }
    return Status::Ok();
  }

  static bool CoversRead(const ByteSet& written, const program::Operand& o) {
    const std::vector<Range> runs = Runs(o);
    if (runs.empty()) {  // nothing to read, or too many runs
      if (o.begin() == o.end()) return true;
      const int64_t element = DTypeBytes(o.dtype());
      return written.Covers({o.begin(), o.begin() + element}) &&
             written.Covers({o.end() - element, o.end()});
    }
    return std::all_of(runs.begin(), runs.end(),
                       [&](const Range& run) { return written.Covers(run); });
  }

  static void AddWrite(ByteSet& written, const program::Operand& o) {
    const std::vector<Range> runs = Runs(o);
    if (runs.empty()) written.Add({o.begin(), o.end()});
    for (const Range& run : runs) written.Add(run);
  }

  Status CheckMarkers() const {
    const bool step = function_.name == "step_first" || function_.name == "step_next";
    std::vector<int> at(static_cast<size_t>(program_.buckets_size()), -1);
    for (int i = 0; i < sub_.instructions_size(); ++i) {
      if (!sub_.instructions(i).has_marker()) continue;
      const int bucket = sub_.instructions(i).marker().bucket();
      if (bucket < 0 || bucket >= program_.buckets_size()) return Wrong(i, "unknown bucket");
      if (!step) return Wrong(i, "a marker outside a step");
      int& place = at[static_cast<size_t>(bucket)];
      if (place >= 0) return Wrong(i, fmt::format("second marker of bucket {}", bucket));
      place = i;
    }
    if (!step) return Status::Ok();
    for (int b = 0; b < program_.buckets_size(); ++b) {
      const int marker = at[static_cast<size_t>(b)];
      if (marker < 0) {
        return Internal(fmt::format("checker: @{}: bucket {} has no marker", function_.name, b));
      }
      for (int i = marker + 1; i < sub_.instructions_size(); ++i) {
        for (const program::Operand& o : sub_.instructions(i).operands()) {
          if (o.access() == program::READ || o.begin() >= program_.buckets(b).end() ||
              o.end() <= program_.buckets(b).begin()) {
            continue;
          }
          return Wrong(
              i, fmt::format("writes gradient '{}' behind the marker of bucket {}", o.name(), b));
        }
      }
    }
    return Status::Ok();
  }

  const offload::PlacedModule& placed_;
  const program::Program& program_;
  const lower::LoweredFunction& function_;
  const program::SubProgram& sub_;
};

// Roots that keep their content between functions have places of their own, away from temporaries.
Status CheckPersistentPlaces(const offload::PlacedModule& placed) {
  struct Entry {
    Range place;
    size_t root;
    bool temporary;
  };
  std::vector<Entry> entries;
  for (size_t i = 0; i < placed.module.roots.size(); ++i) {
    const lower::Root& root = placed.module.roots[i];
    const int64_t bytes = root.elements * ir::DTypeBytes(root.dtype);
    const int64_t begin = placed.offsets[i];
    if (begin < 0 || bytes == 0) continue;
    if (begin + bytes > placed.arena_bytes) {
      return Internal(fmt::format("checker: '{}' ends at byte {} of an arena of {}", root.name,
                                  begin + bytes, placed.arena_bytes));
    }
    entries.push_back({{begin, begin + bytes}, i, root.storage == lower::Storage::kTemporary});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.place < b.place; });
  Entry far{{0, 0}, 0, true};         // reaches furthest so far
  Entry persistent{{0, 0}, 0, true};  // the same among those that are not temporary
  for (const Entry& entry : entries) {
    const Entry& other = entry.temporary ? persistent : far;
    if (entry.place.first < other.place.second) {
      return Internal(fmt::format("checker: '{}' at byte {} overlaps '{}'",
                                  placed.module.roots[entry.root].name, entry.place.first,
                                  placed.module.roots[other.root].name));
    }
    if (entry.place.second > far.place.second) far = entry;
    if (!entry.temporary && entry.place.second > persistent.place.second) persistent = entry;
  }
  return Status::Ok();
}

}  // namespace

Status CheckProgram(const offload::PlacedModule& placed, const program::Program& program) {
  if (program.subprograms_size() != static_cast<int>(placed.module.functions.size()) ||
      program.buckets_size() != static_cast<int>(placed.buckets.size())) {
    return Internal("checker: the program lacks functions or buckets of the module");
  }
  HYPER_RETURN_IF_ERROR(CheckPersistentPlaces(placed));
  for (size_t f = 0; f < placed.module.functions.size(); ++f) {
    HYPER_RETURN_IF_ERROR(FunctionChecker(placed, program, f).Run());
  }
  return Status::Ok();
}

}  // namespace hyper::codegen
