#include "base/strings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace hyper {

int EditDistance(std::string_view a, std::string_view b) {
  // Rows of prefixes of `a` with all prefixes of `b`: the last but one, the last, the current.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::vector<std::string> NearestNames(std::string_view word,
                                      std::span<const std::string> candidates, int limit) {
  const int allowed = std::max<int>(1, static_cast<int>(word.size()) / 3);
  std::vector<std::pair<int, std::string>> ranked;
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(word, candidate);
    if (distance <= allowed) ranked.emplace_back(distance, candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<std::string> names;
  for (const auto& [distance, name] : ranked) {
    if (static_cast<int>(names.size()) == limit) break;
    names.push_back(name);
  }
  return names;
}

std::string DidYouMean(std::string_view word, std::span<const std::string> candidates) {
  const std::vector<std::string> names = NearestNames(word, candidates);
  if (names.empty()) return {};
  std::string out = "did you mean ";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? " or " : ", ";
    out += fmt::format("'{}'", names[i]);
  }
  return out + "?";
}

bool GlobMatch(std::string_view pattern, std::string_view text) {
  // Greedy with one backtrack point: the last '*' seen. Linear in practice, never exponential.
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] != '*' && pattern[p] == text[t]))) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<int64_t> ParseBytes(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits = {{
      {"KiB", 1024.0},
      {"MiB", 1048576.0},
      {"GiB", 1073741824.0},
      {"TiB", 1099511627776.0},
      {"kB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"B", 1.0},
      {"", 1.0},
  }};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (error == std::errc() && number >= 0) {
    for (const auto& [name, factor] : kUnits) {
      if (unit == name && number * factor < 9.2e18) {
        return static_cast<int64_t>(std::llround(number * factor));
      }
    }
  }
  return InvalidArgument(fmt::format(
      "'{}' is not a size; write a number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB", text));
}

std::string FormatBytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kNames[unit]);
}

std::string FormatDims(std::span<const int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ","));
}

std::string YamlScalar(std::string_view text) {
  // Words that some YAML version reads as something other than text.
  static constexpr std::array<std::string_view, 9> kReservedWords = {
      "true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool plain =
      !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
      std::all_of(text.begin(), text.end(),
                  [](unsigned char c) {
                    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
                  }) &&
      std::find(kReservedWords.begin(), kReservedWords.end(), lower) == kReservedWords.end();
  if (plain) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (code < 0x20 || code == 0x7f) {
      quoted += fmt::format("\\u{:04x}", code);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts.begin(), parts.end(), separator));
}

}  // namespace hyper
