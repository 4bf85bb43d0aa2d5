#include "codegen/report.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace hyper::codegen {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 100;
constexpr size_t kNameColumns = 34;

std::string StorageKey(program::Storage storage) {
  std::string name = program::Storage_Name(storage);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

// End of the highest byte that anything touches.
int64_t PeakBytes(const program::Program& program) {
  int64_t peak = 0;
  for (const program::Slot& slot : program.slots()) peak = std::max(peak, slot.place().end());
  for (const program::SubProgram& sub : program.subprograms()) {
    for (const program::Instruction& instruction : sub.instructions()) {
      for (const program::Operand& o : instruction.operands()) peak = std::max(peak, o.end());
    }
    for (const program::Operand& o : sub.results()) peak = std::max(peak, o.end());
  }
  return peak;
}

int64_t WorkspaceBytes(const program::Instruction& instruction) {
  int64_t bytes = 0;
  for (const program::Operand& o : instruction.operands()) {
    if (o.access() == program::WORKSPACE) bytes += o.end() - o.begin();
  }
  return bytes;
}

// Largest workspace of one instruction.
int64_t WorkspaceBytes(const program::SubProgram& sub) {
  int64_t bytes = 0;
  for (const program::Instruction& instruction : sub.instructions()) {
    bytes = std::max(bytes, WorkspaceBytes(instruction));
  }
  return bytes;
}

int64_t WorkspaceBytes(const program::Program& program) {
  int64_t bytes = 0;
  for (const program::SubProgram& sub : program.subprograms()) {
    bytes = std::max(bytes, WorkspaceBytes(sub));
  }
  return bytes;
}

Json Ratio(int64_t actual, int64_t bound) {
  if (bound <= 0) return nullptr;
  return static_cast<double>(actual) / static_cast<double>(bound);
}

std::string RatioText(int64_t actual, int64_t bound) {
  return bound <= 0
             ? std::string("-")
             : fmt::format("{:.2f}", static_cast<double>(actual) / static_cast<double>(bound));
}

Json Memory(const program::Program& program) {
  const int64_t peak = PeakBytes(program);
  Json group;
  group["group"] = 0;
  group["peak_bytes"] = peak;
  group["tiers"]["arena"] = {{"peak_bytes", peak}, {"allocated_bytes", program.arena_bytes()}};
  group["storage_bytes"] = Json::object();
  for (const program::Region& region : program.regions()) {
    group["storage_bytes"][StorageKey(region.storage())] = region.end() - region.begin();
  }
  group["workspace_bytes"] = WorkspaceBytes(program);
  group["threads"] = program.threads();
  group["subprograms"] = Json::array();
  for (const program::SubProgram& sub : program.subprograms()) {
    group["subprograms"].push_back({{"name", sub.name()},
                                    {"instructions", sub.instructions_size()},
                                    {"temporary_peak_bytes", sub.temporary_peak()},
                                    {"live_lower_bound_bytes", sub.live_lower_bound()},
                                    {"ratio", Ratio(sub.temporary_peak(), sub.live_lower_bound())},
                                    {"workspace_bytes", WorkspaceBytes(sub)}});
  }
  return {{"peak_bytes", peak}, {"groups", Json::array({group})}};
}

// One fused group of a subprogram: the generated calls that compute it.
struct FusedGroup {
  const program::SubProgram* sub = nullptr;
  int32_t id = 0;
  int64_t bytes_moved = 0;
  int64_t lower_bound_bytes = 0;
  std::vector<const program::Instruction*> calls;  // in execution order
  double ratio() const {
    if (bytes_moved == 0) return 1;
    return lower_bound_bytes == 0
               ? std::numeric_limits<double>::infinity()
               : static_cast<double>(bytes_moved) / static_cast<double>(lower_bound_bytes);
  }
};

// In order of first call.
std::vector<FusedGroup> FusedGroups(const program::Program& program) {
  std::vector<FusedGroup> groups;
  for (const program::SubProgram& sub : program.subprograms()) {
    std::map<int32_t, size_t> index;
    for (const program::Instruction& instruction : sub.instructions()) {
      if (!instruction.has_generated()) continue;
      const int32_t id = instruction.fused_group();
      const auto [place, added] = index.emplace(id, groups.size());
      if (added) groups.push_back({&sub, id, 0, 0, {}});
      FusedGroup& group = groups[place->second];
      group.bytes_moved += instruction.bytes_moved();
      group.lower_bound_bytes += instruction.lower_bound_bytes();
      group.calls.push_back(&instruction);
    }
  }
  return groups;
}

// All calls of one distinct kernel.
struct KernelUse {
  std::string kernel;
  std::string kind;
  int64_t calls = 0;
  int64_t bytes_moved = 0;        // of one call
  int64_t lower_bound_bytes = 0;  // of one call, the smallest
  double ratio = 0;               // largest of the fused groups that a call belongs to; 0: none
  double flops = 0;               // of one call
  int64_t workspace_bytes = 0;    // largest of a call
  std::vector<std::string> operands;
  std::vector<std::string> subprograms;
  std::vector<std::string> sources;
};

std::string OperandType(const program::Operand& o) {
  std::string name = program::DType_Name(o.dtype());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name + FormatDims(std::vector<int64_t>(o.dims().begin(), o.dims().end()));
}

// What no node of the model stands behind (the norm of the gradients, ...) is named by where it
// runs.
std::string SourceOf(const program::Instruction& instruction, const program::SubProgram& sub) {
  return instruction.source().empty() ? "@" + sub.name() : instruction.source();
}

void AddOnce(std::vector<std::string>& list, const std::string& text) {
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end()) {
    list.push_back(text);
  }
}

// In order of first call. Library and reference calls are the same kernel when op and operand types
// are; generated ones when they share a symbol.
std::vector<KernelUse> KernelUses(const program::Program& program) {
  std::map<const program::Instruction*, double> ratios;
  for (const FusedGroup& group : FusedGroups(program)) {
    for (const program::Instruction* call : group.calls) ratios[call] = group.ratio();
  }
  std::vector<KernelUse> uses;
  std::map<std::string, size_t> index;
  for (const program::SubProgram& sub : program.subprograms()) {
    for (const program::Instruction& instruction : sub.instructions()) {
      KernelUse use;
      if (instruction.has_library()) {
        use.kind = "library";
        use.kernel = instruction.library().primitive();
        if (!instruction.library().op().empty()) use.kernel += ":" + instruction.library().op();
      } else if (instruction.has_generated()) {
        use.kind = "generated";
        use.kernel = instruction.generated().symbol();
      } else if (instruction.has_reference()) {
        use.kind = "reference";
        use.kernel = "reference." + instruction.reference().op();
      } else {
        continue;  // markers compute nothing
      }
      for (const program::Operand& o : instruction.operands()) {
        if (o.access() != program::WORKSPACE) use.operands.push_back(OperandType(o));
      }
      const std::string key = use.kernel + " " + Join(use.operands, " ");
      const auto [place, added] = index.emplace(key, uses.size());
      if (added) {
        use.bytes_moved = instruction.bytes_moved();
        use.lower_bound_bytes = instruction.lower_bound_bytes();
        use.flops = instruction.flops();
        uses.push_back(std::move(use));
      }
      KernelUse& known = uses[place->second];
      ++known.calls;
      known.lower_bound_bytes =
          std::min<int64_t>(known.lower_bound_bytes, instruction.lower_bound_bytes());
      if (const auto ratio = ratios.find(&instruction); ratio != ratios.end()) {
        known.ratio = std::max(known.ratio, ratio->second);
      }
      known.workspace_bytes = std::max(known.workspace_bytes, WorkspaceBytes(instruction));
      AddOnce(known.subprograms, sub.name());
      AddOnce(known.sources, SourceOf(instruction, sub));
    }
  }
  return uses;
}

Json Kernels(const std::vector<KernelUse>& uses) {
  Json list = Json::array();
  for (const KernelUse& use : uses) {
    list.push_back({{"group", 0},
                    {"kernel", use.kernel},
                    {"kind", use.kind},
                    {"calls", use.calls},
                    {"bytes_moved", use.bytes_moved},
                    {"lower_bound_bytes",
                     use.kind == "generated" ? Json(use.lower_bound_bytes) : Json(nullptr)},
                    {"ratio", use.kind == "generated" ? Json(use.ratio) : Json(nullptr)},
                    {"flops", use.flops},
                    {"workspace_bytes", use.workspace_bytes},
                    {"operands", use.operands},
                    {"subprograms", use.subprograms},
                    {"sources", use.sources}});
  }
  return list;
}

Json Groups(const std::vector<FusedGroup>& groups) {
  Json list = Json::array();
  for (const FusedGroup& group : groups) {
    Json kernels = Json::array();
    std::vector<std::string> sources;
    for (const program::Instruction* call : group.calls) {
      kernels.push_back(call->generated().symbol());
      AddOnce(sources, SourceOf(*call, *group.sub));
    }
    list.push_back({{"group", 0},
                    {"subprogram", group.sub->name()},
                    {"id", group.id},
                    {"kernels", kernels},
                    {"bytes_moved", group.bytes_moved},
                    {"lower_bound_bytes", group.lower_bound_bytes},
                    {"ratio", group.ratio()},
                    {"sources", sources}});
  }
  return list;
}

// Traffic of all calls of generated kernels, the figure that fusion is judged by.
struct GeneratedTraffic {
  int64_t kernels = 0, groups = 0;
  int64_t moved = 0, bound = 0;
  double worst = 1;
};

GeneratedTraffic Totals(const std::vector<KernelUse>& uses, const std::vector<FusedGroup>& groups) {
  GeneratedTraffic t;
  for (const KernelUse& use : uses) t.kernels += use.kind == "generated";
  t.groups = static_cast<int64_t>(groups.size());
  for (const FusedGroup& group : groups) {
    t.moved += group.bytes_moved;
    t.bound += group.lower_bound_bytes;
    t.worst = std::max(t.worst, group.ratio());
  }
  return t;
}

Json GeneratedTotals(const std::vector<KernelUse>& uses, const std::vector<FusedGroup>& groups) {
  const GeneratedTraffic t = Totals(uses, groups);
  return {{"kernels", t.kernels},
          {"groups", t.groups},
          {"bytes_moved", t.moved},
          {"lower_bound_bytes", t.bound},
          {"ratio", Ratio(t.moved, t.bound)},
          {"worst_group_ratio", t.worst}};
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Cuts to `width` columns with the end replaced by "..".
std::string Fit(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

}  // namespace

std::string PlanJson(const program::Program& program, const PlanNotes& notes) {
  const std::vector<KernelUse> uses = KernelUses(program);
  Json json;
  json["format_version"] = 1;
  json["memory"] = Memory(program);
  const std::vector<FusedGroup> groups = FusedGroups(program);
  json["kernels"] = Kernels(uses);
  json["fused_groups"] = Groups(groups);
  json["generated"] = GeneratedTotals(uses, groups);
  json["buckets"] = Json::array();
  for (const program::Bucket& bucket : program.buckets()) {
    json["buckets"].push_back(
        {{"bytes", bucket.end() - bucket.begin()},
         {"parameters",
          std::vector<std::string>(bucket.parameters().begin(), bucket.parameters().end())}});
  }
  json["unfused"] = Json::object();
  for (const auto& [name, reasons] : notes.unfused) json["unfused"][name] = reasons;
  return Dump(json);
}

std::string MemoryJson(const program::Program& program) {
  Json json;
  json["memory"] = Memory(program);
  return Dump(json);
}

std::string KernelsJson(const program::Program& program) {
  const std::vector<KernelUse> uses = KernelUses(program);
  Json json;
  const std::vector<FusedGroup> groups = FusedGroups(program);
  json["kernels"] = Kernels(uses);
  json["fused_groups"] = Groups(groups);
  json["generated"] = GeneratedTotals(uses, groups);
  return Dump(json);
}

std::string MemoryTable(const program::Program& program) {
  std::string text =
      fmt::format("group 0: peak {} of the arena\n\n", FormatBytes(PeakBytes(program)));
  text += fmt::format("{:<18}{:>14}{:>18}\n", "storage", "size", "bytes");
  for (const program::Region& region : program.regions()) {
    const int64_t bytes = region.end() - region.begin();
    if (bytes == 0) continue;
    text += fmt::format("{:<18}{:>14}{:>18}\n", StorageKey(region.storage()), FormatBytes(bytes),
                        bytes);
    const int64_t workspace = WorkspaceBytes(program);
    if (region.storage() != program::TEMPORARY || workspace == 0) continue;
    text += fmt::format("{:<18}{:>14}{:>18}  largest of a call, for up to {} threads\n",
                        "  workspace", FormatBytes(workspace), workspace, program.threads());
  }
  text += fmt::format("\n{:<18}{:>14}{:>16}{:>18}{:>8}{:>14}\n", "subprogram", "instructions",
                      "temporaries", "live lower bound", "ratio", "workspace");
  for (const program::SubProgram& sub : program.subprograms()) {
    text += fmt::format(
        "{:<18}{:>14}{:>16}{:>18}{:>8}{:>14}\n", Fit(sub.name(), 18), sub.instructions_size(),
        FormatBytes(sub.temporary_peak()), FormatBytes(sub.live_lower_bound()),
        RatioText(sub.temporary_peak(), sub.live_lower_bound()), FormatBytes(WorkspaceBytes(sub)));
  }
  return text;
}

std::string KernelTable(const program::Program& program) {
  std::vector<KernelUse> uses = KernelUses(program);
  std::stable_sort(uses.begin(), uses.end(), [](const KernelUse& a, const KernelUse& b) {
    return a.calls * a.bytes_moved > b.calls * b.bytes_moved;
  });
  const auto row = [](const std::string& kernel, const std::string& calls, const std::string& moved,
                      const std::string& bound, const std::string& ratio,
                      const std::string& source) {
    std::string line = fmt::format("{:<34} {:>5} {:>11} {:>11} {:>5}  ", Fit(kernel, kNameColumns),
                                   calls, moved, bound, ratio);
    line += Fit(source, kColumns - line.size());
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = row("kernel", "calls", "moved/call", "bound/call", "ratio", "source");
  for (const KernelUse& use : uses) {
    const bool known = use.kind == "generated";
    text += row(use.kernel, fmt::format("{}", use.calls), FormatBytes(use.bytes_moved),
                known ? FormatBytes(use.lower_bound_bytes) : "-",
                known ? fmt::format("{:.2f}", use.ratio) : "-", Join(use.sources, ", "));
  }
  const GeneratedTraffic t = Totals(uses, FusedGroups(program));
  text += fmt::format(
      "\ngenerated kernels move {}, lower bound {}, ratio {}\n"
      "{} fused groups, the worst ratio of one is {:.2f}\n",
      FormatBytes(t.moved), FormatBytes(t.bound), RatioText(t.moved, t.bound), t.groups, t.worst);
  return text;
}

}  // namespace hyper::codegen
