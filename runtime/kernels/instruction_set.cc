#include "runtime/kernels/instruction_set.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include "base/strings.h"

namespace hyper::runtime {
namespace {

struct Level {
  dnnl_cpu_isa_t isa;
  std::vector<std::string_view> features;  // beyond those of the levels it contains
  int contained;                           // index of a level below, -1: none
};

// The library's levels from small to large. Tile instructions are left out: kernels of the bundle
// never use them, and it computes in f32.
const std::vector<Level>& Levels() {
  static const std::vector<Level> levels = {
      {dnnl_cpu_isa_sse41, {"sse4_1"}, -1},
      {dnnl_cpu_isa_avx, {"avx"}, 0},
      {dnnl_cpu_isa_avx2, {"avx2", "fma"}, 1},
      {dnnl_cpu_isa_avx2_vnni, {"avx_vnni"}, 2},
      {dnnl_cpu_isa_avx512_core, {"avx512f", "avx512bw", "avx512vl", "avx512dq"}, 2},
      {dnnl_cpu_isa_avx512_core_vnni, {"avx512_vnni"}, 4},
      {dnnl_cpu_isa_avx512_core_bf16, {"avx512_bf16"}, 5},
      {dnnl_cpu_isa_avx512_core_fp16, {"avx512_fp16", "avx_vnni"}, 6},
  };
  return levels;
}

bool Reaches(int level, const std::vector<std::string>& features) {
  if (level < 0) return true;
  const Level& wanted = Levels()[static_cast<size_t>(level)];
  return Reaches(wanted.contained, features) &&
         std::all_of(wanted.features.begin(), wanted.features.end(), [&](std::string_view name) {
           return std::find(features.begin(), features.end(), name) != features.end();
         });
}

// Processors below the smallest level get it all the same: the library looks for what is there.
dnnl_cpu_isa_t LevelOf(const std::vector<std::string>& features) {
  dnnl_cpu_isa_t best = dnnl_cpu_isa_sse41;
  for (int level = 0; level < static_cast<int>(Levels().size()); ++level) {
    if (Reaches(level, features)) best = Levels()[static_cast<size_t>(level)].isa;
  }
  return best;
}

std::string NameOf(dnnl_cpu_isa_t isa) {
  std::string name = dnnl_cpu_isa2str(isa);
  constexpr std::string_view kPrefix = "cpu_isa_";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

// Levels are sets of bits; a level contains another when it has all of its bits.
bool Contains(dnnl_cpu_isa_t level, dnnl_cpu_isa_t other) {
  return (static_cast<unsigned>(other) & ~static_cast<unsigned>(level)) == 0;
}

}  // namespace

Status CapInstructionSet(const std::vector<std::string>& features) {
  static std::mutex mutex;
  static std::optional<dnnl_cpu_isa_t> applied;
  const std::lock_guard lock(mutex);
  const dnnl_cpu_isa_t cap = LevelOf(features);
  if (!applied && dnnl_set_max_cpu_isa(cap) == dnnl_success) applied = cap;
  // Asking fixes the choice, so that nothing between here and the first kernel can change it.
  const dnnl_cpu_isa_t effective = dnnl_get_effective_cpu_isa();
  if (applied == cap || effective == cap) return Status::Ok();
  // The same under both caps when only the processor is the limit.
  const bool processor_limits = !applied || Contains(*applied, cap);
  if (Contains(cap, effective) && processor_limits) return Status::Ok();
  return FailedPrecondition(
      fmt::format("the math library of this process uses {}, which a processor with {} asked for; "
                  "one process cannot serve another (which would be {})",
                  NameOf(effective), applied ? NameOf(*applied) : "no limit", NameOf(cap)));
}

std::string InstructionSetName() { return NameOf(dnnl_get_effective_cpu_isa()); }

}  // namespace hyper::runtime
