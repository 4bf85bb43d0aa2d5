// Document tree -> typed JSON value, checked against the settings table: unknown, duplicate,
// missing and misplaced keys, types, ranges, defaults. Reports every error, not the first.
// Thread safety: pure functions apart from the collector that is passed in.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/diagnostics.h"
#include "base/status.h"
#include "frontend/strategy/config_node.h"

namespace hyper::strategy {

// kLaunch looks only at the rows of which InLaunchConfig holds; other keys are unknown to it.
enum class Scope { kStrategy, kLaunch };

// Value positions by path ("train.loss[0].logits"); sections are positioned at their key.
using LocationMap = std::map<std::string, SourceLocation>;

// The checked document with defaults filled in, keys in file order. A value that was refused is
// null, so that later checks can tell "missing" from "already reported". `locations` may be null,
// `unknown` too: it receives the sections ("" is the whole) that have a key which is unknown or no
// name, so that another key may be missing there for no other reason.
nlohmann::ordered_json CheckTree(const ConfigNode& root, Scope scope, const std::string& file,
                                 Diagnostics* diagnostics, LocationMap* locations,
                                 std::set<std::string>* unknown = nullptr);

// The position of `path`, or of its nearest ancestor that has one, or just the file.
SourceLocation FindLocation(const LocationMap& locations, const std::string& file,
                            std::string_view path);

// JSON text -> document tree without positions.
Result<ConfigNode> ReadJsonTree(std::string_view json);

}  // namespace hyper::strategy
