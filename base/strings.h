// Small text helpers shared by all folders: suggestions, globs, sizes. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hyper {

// Fewest letters inserted, removed, replaced or swapped with their neighbour; case-sensitive.
int EditDistance(std::string_view a, std::string_view b);

// The candidates nearest to `word` (at most `limit`, within a third of its length), best first.
std::vector<std::string> NearestNames(std::string_view word,
                                      std::span<const std::string> candidates, int limit = 3);

// "did you mean 'x' or 'y'?" or empty when nothing is near.
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates);

// Shell-style match over the whole text: '*' any run (also across '/' and '.'), '?' one character.
bool GlobMatch(std::string_view pattern, std::string_view text);

// "25MiB", "1.5GiB", "4096" (bytes), KiB/MiB/GiB/TiB and kB/MB/GB/TB -> bytes.
Result<int64_t> ParseBytes(std::string_view text);
// 1536 -> "1.50 KiB"
std::string FormatBytes(int64_t bytes);
// [2, 3] -> "[2,3]"
std::string FormatDims(std::span<const int64_t> dims);
// A text as one YAML value: plain where that is safe, else in double quotes with JSON's escapes.
std::string YamlScalar(std::string_view text);
std::string Join(std::span<const std::string> parts, std::string_view separator);

}  // namespace hyper
