// A parsed document before its keys are known: what the YAML reader and the JSON reader both give
// to the checker. Values; thread-compatible.
#pragma once

#include <string>
#include <vector>

namespace hyper::strategy {

struct ConfigNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;               // kScalar: as written, quotes and escapes resolved
  bool quoted = false;            // kScalar: written in quotes or as a block, so never a number
  int line = 0;                   // from 1; 0: no position
  int column = 0;                 // from 1, in bytes
  std::vector<ConfigNode> keys;   // kMap: keys[i] belongs to items[i], duplicates kept
  std::vector<ConfigNode> items;  // kMap, kList
};

// Deepest nesting and most nodes (aliases expanded) that readers accept.
inline constexpr int kMaxDepth = 32;
inline constexpr int kMaxNodes = 50000;

}  // namespace hyper::strategy
