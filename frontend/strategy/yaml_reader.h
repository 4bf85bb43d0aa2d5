// YAML text -> ConfigNode tree with positions. Refuses hostile input (size, nesting, alias bombs,
// bytes that are not text) before it costs anything. Exceptions of yaml-cpp end here.
// Thread safety: pure function apart from the collector.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostics.h"
#include "frontend/strategy/config_node.h"

namespace hyper::strategy {

inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;
inline constexpr size_t kMaxYamlLine = 8192;

// Empty after an error, which is then in `diagnostics`. `text`: UTF-8 with \n line ends.
std::optional<ConfigNode> ReadYaml(std::string_view text, const std::string& file,
                                   Diagnostics* diagnostics);

// True when `text` is within the limits and plain UTF-8; else an error with its position, and the
// text should not be quoted to a terminal.
bool IsReadableText(std::string_view text, const std::string& file, Diagnostics* diagnostics);

}  // namespace hyper::strategy
