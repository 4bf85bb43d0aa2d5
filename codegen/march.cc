// Processor names: what the host compiler knows, and which extensions of /proc/cpuinfo they imply.
#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "base/strings.h"
#include "codegen/compile.h"
#include "codegen/process.h"

namespace hyper::codegen {
namespace {

// Extensions that the compiler may use on its own in compiled loops: predefined macro and the name
// in /proc/cpuinfo. Extensions that need an intrinsic (AES, SHA, AMX tiles ...) are not needed.
constexpr std::array<std::pair<std::string_view, std::string_view>, 32> kFeatures = {{
    {"__SSE3__", "pni"},
    {"__SSSE3__", "ssse3"},
    {"__SSE4_1__", "sse4_1"},
    {"__SSE4_2__", "sse4_2"},
    {"__SSE4A__", "sse4a"},
    {"__POPCNT__", "popcnt"},
    {"__MOVBE__", "movbe"},
    {"__LZCNT__", "abm"},
    {"__BMI__", "bmi1"},
    {"__BMI2__", "bmi2"},
    {"__AVX__", "avx"},
    {"__F16C__", "f16c"},
    {"__FMA__", "fma"},
    {"__FMA4__", "fma4"},
    {"__XOP__", "xop"},
    {"__TBM__", "tbm"},
    {"__AVX2__", "avx2"},
    {"__GFNI__", "gfni"},
    {"__AVXVNNI__", "avx_vnni"},
    {"__AVX512F__", "avx512f"},
    {"__AVX512CD__", "avx512cd"},
    {"__AVX512DQ__", "avx512dq"},
    {"__AVX512BW__", "avx512bw"},
    {"__AVX512VL__", "avx512vl"},
    {"__AVX512IFMA__", "avx512ifma"},
    {"__AVX512VBMI__", "avx512vbmi"},
    {"__AVX512VBMI2__", "avx512_vbmi2"},
    {"__AVX512VNNI__", "avx512_vnni"},
    {"__AVX512BITALG__", "avx512_bitalg"},
    {"__AVX512VPOPCNTDQ__", "avx512_vpopcntdq"},
    {"__AVX512BF16__", "avx512_bf16"},
    {"__AVX512FP16__", "avx512_fp16"},
}};

Status NoCompiler(const std::string& compiler, const std::string& reason) {
  return FailedPrecondition(
      fmt::format("the host compiler '{}' cannot be used: {}; install g++ or name another one",
                  compiler, reason));
}

// What `compiler -march=MARCH -Q --help=target` prints.
Result<std::string> TargetHelp(const std::string& march, const std::string& compiler) {
  const Result<ProcessOutput> output =
      RunProcess({compiler, "-march=" + march, "-Q", "--help=target"});
  if (!output.ok()) return NoCompiler(compiler, output.status().message());
  if (output->exit_code != 0) return NoCompiler(compiler, output->text.substr(0, 400));
  return output->text;
}

std::vector<std::string> KnownNames(const std::string& help) {
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  Known valid arguments for -march=") || !std::getline(lines, line)) {
      continue;
    }
    std::istringstream words(line);
    std::vector<std::string> names;
    for (std::string word; words >> word;) names.push_back(word);
    return names;
  }
  return {};
}

std::string ResolvedName(const std::string& help) {
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string option;
    std::string value;
    if (words >> option >> value && option == "-march=") return value;
  }
  return {};
}

// kInvalidArgument: the compiler does not know the name.
Result<std::vector<std::string>> FeaturesOf(const std::string& march, const std::string& compiler) {
  const Result<ProcessOutput> output =
      RunProcess({compiler, "-march=" + march, "-dM", "-E", "-x", "c++", "/dev/null"});
  if (!output.ok()) return NoCompiler(compiler, output.status().message());
  if (output->exit_code != 0) return InvalidArgument(output->text.substr(0, 200));
  std::set<std::string> macros;
  std::istringstream lines(output->text);
  for (std::string define, name, rest; lines >> define >> name && std::getline(lines, rest);) {
    macros.insert(name);
  }
  std::vector<std::string> features;
  for (const auto& [macro, feature] : kFeatures) {
    if (macros.contains(std::string(macro))) features.emplace_back(feature);
  }
  return features;
}

// The name the compiler gives this processor may imply extensions that the machine does not offer
// (hypervisors mask some), and a processor newer than the compiler gets the name of an older one
// that lacks what it has. So the generic levels stand beside the name: of those that the machine
// offers, the one with the most extensions is meant, the name when they are equal.
Result<MarchInfo> ResolveNative(const std::string& compiler) {
  HYPER_ASSIGN_OR_RETURN(const std::string help, TargetHelp("native", compiler));
  std::vector<std::string> candidates;
  if (std::string name = ResolvedName(help); !name.empty()) candidates.push_back(name);
  for (const char* level : {"x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"}) {
    candidates.emplace_back(level);
  }
  MarchInfo best;
  for (const std::string& candidate : candidates) {
    const Result<std::vector<std::string>> features = FeaturesOf(candidate, compiler);
    if (!features.ok() || !MissingCpuFeatures(*features).empty()) continue;
    if (best.march.empty() || features->size() > best.features.size()) {
      best = MarchInfo{candidate, *features};
    }
  }
  if (!best.march.empty()) return best;
  return FailedPrecondition(
      fmt::format("'{}' does not say which processor this is: name one with --march", compiler));
}

}  // namespace

Result<MarchInfo> ResolveMarch(const std::string& march, const std::string& compiler) {
  if (march == "native") return ResolveNative(compiler);
  const bool plain =
      !march.empty() && march.find_first_not_of(
                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+") ==
                            std::string::npos;
  if (plain) {
    Result<std::vector<std::string>> features = FeaturesOf(march, compiler);
    if (features.ok()) return MarchInfo{march, *std::move(features)};
    if (features.status().code() != StatusCode::kInvalidArgument) return features.status();
  }
  HYPER_ASSIGN_OR_RETURN(const std::string help, TargetHelp("native", compiler));
  const std::vector<std::string> known = KnownNames(help);
  const std::string hint = DidYouMean(march, known);
  return InvalidArgument(fmt::format("'{}' does not know the processor '{}'{}{}; known: {}",
                                     compiler, march, hint.empty() ? "" : ": ", hint,
                                     Join(known, " ")));
}

}  // namespace hyper::codegen
