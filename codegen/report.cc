#include "codegen/report.h"

#include <algorithm>
#include <cctype>
#include <set>

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
  group["subprograms"] = Json::array();
  for (const program::SubProgram& sub : program.subprograms()) {
    group["subprograms"].push_back(
        {{"name", sub.name()},
         {"instructions", sub.instructions_size()},
         {"temporary_peak_bytes", sub.temporary_peak()},
         {"live_lower_bound_bytes", sub.live_lower_bound()},
         {"ratio", Ratio(sub.temporary_peak(), sub.live_lower_bound())}});
  }
  return {{"peak_bytes", peak}, {"groups", Json::array({group})}};
}

// All calls of one distinct kernel.
struct KernelUse {
  std::string kernel;
  std::string kind;
  int64_t calls = 0;
  int64_t bytes_moved = 0;        // of one call
  int64_t lower_bound_bytes = 0;  // of one call, 0: unknown
  double flops = 0;               // of one call
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

void AddOnce(std::vector<std::string>& list, const std::string& text) {
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end()) {
    list.push_back(text);
  }
}

// In order of first call. Library and reference calls are the same kernel when op and operand types
// are; generated ones when they share a symbol.
std::vector<KernelUse> KernelUses(const program::Program& program) {
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
        use.operands.push_back(OperandType(o));
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
      AddOnce(known.subprograms, sub.name());
      AddOnce(known.sources, instruction.source());
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
                     use.lower_bound_bytes > 0 ? Json(use.lower_bound_bytes) : Json(nullptr)},
                    {"ratio", Ratio(use.bytes_moved, use.lower_bound_bytes)},
                    {"flops", use.flops},
                    {"operands", use.operands},
                    {"subprograms", use.subprograms},
                    {"sources", use.sources}});
  }
  return list;
}

// Traffic of all calls of generated kernels, the figure that fusion is judged by.
Json GeneratedTotals(const std::vector<KernelUse>& uses) {
  int64_t kernels = 0;
  int64_t moved = 0;
  int64_t bound = 0;
  for (const KernelUse& use : uses) {
    if (use.kind != "generated") continue;
    ++kernels;
    moved += use.calls * use.bytes_moved;
    bound += use.calls * use.lower_bound_bytes;
  }
  return {{"kernels", kernels},
          {"bytes_moved", moved},
          {"lower_bound_bytes", bound},
          {"ratio", Ratio(moved, bound)}};
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
  json["kernels"] = Kernels(uses);
  json["generated"] = GeneratedTotals(uses);
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
  json["kernels"] = Kernels(uses);
  json["generated"] = GeneratedTotals(uses);
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
  }
  text += fmt::format("\n{:<18}{:>14}{:>16}{:>18}{:>8}\n", "subprogram", "instructions",
                      "temporaries", "live lower bound", "ratio");
  for (const program::SubProgram& sub : program.subprograms()) {
    text +=
        fmt::format("{:<18}{:>14}{:>16}{:>18}{:>8}\n", Fit(sub.name(), 18), sub.instructions_size(),
                    FormatBytes(sub.temporary_peak()), FormatBytes(sub.live_lower_bound()),
                    RatioText(sub.temporary_peak(), sub.live_lower_bound()));
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
  int64_t moved = 0;
  int64_t bound = 0;
  for (const KernelUse& use : uses) {
    const bool known = use.lower_bound_bytes > 0;
    text += row(use.kernel, fmt::format("{}", use.calls), FormatBytes(use.bytes_moved),
                known ? FormatBytes(use.lower_bound_bytes) : "-",
                RatioText(use.bytes_moved, use.lower_bound_bytes), Join(use.sources, ", "));
    if (use.kind != "generated") continue;
    moved += use.calls * use.bytes_moved;
    bound += use.calls * use.lower_bound_bytes;
  }
  text += fmt::format("\ngenerated kernels move {}, lower bound {}, ratio {}\n", FormatBytes(moved),
                      FormatBytes(bound), RatioText(moved, bound));
  return text;
}

}  // namespace hyper::codegen
