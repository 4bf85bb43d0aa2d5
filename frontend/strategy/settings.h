// The one table of strategy keys. Parser, defaults, ranges, JSON Schema, documentation and --set
// all read it; a key exists if and only if it has a row here.
// Thread safety: immutable data and pure functions.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyper::strategy {

enum class ValueType {
  kSection,        // map with the keys that have rows below it
  kSectionOrList,  // one such map, or a list of them
  kNamedMap,       // map whose keys the user chooses; row "path.*" describes the values
  kNameOrSection,  // a string as shorthand, or a map
  kInt,
  kFloat,
  kFraction,  // 0.1 or 10%
  kBool,
  kString,
  kEnum,
  kBytes,       // integer or "25MiB"
  kStringList,  // list of strings (a single string is a list of one)
  kNameGroups,  // list of lists of two or more strings
  kFloatPair,   // [a, b]
  kTensor,      // a number or truth value, nested lists of them, or the name of a .npy file
  kReserved,    // part of the format, refused by this version unless empty
};

// When a value is fixed: by `hyperc compile`, or by the launch (then --set may change it).
enum class Phase { kCompile, kLaunch };

struct Setting {
  std::string_view path;  // "train.optimizer.lr"; a segment '*' stands for a name of the user's
  ValueType type = ValueType::kString;
  Phase phase = Phase::kCompile;
  bool required = false;
  // YAML text of the default; empty: none. "{}" creates a missing section with its defaults.
  std::string_view default_text = {};
  // "adamw=0.01": another default where the sibling `kind` has that value.
  std::string_view kind_default = {};
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  bool max_excluded = false;
  std::string_view choices = {};  // kEnum (and kInt with few values): "a|b|c", what works now
  std::string_view later = {};    // values of the format that this version refuses
  // Values of the sibling `kind` that take this key; empty: all; kNoKind: only without a `kind`.
  std::string_view only_for = {};
  std::string_view description = {};  // one sentence
};

inline constexpr std::string_view kNoKind = "-";

// Every row, in the order in which strategies are printed and documented.
std::span<const Setting> AllSettings();

// The row of a table path, null when there is none.
const Setting* FindSetting(std::string_view table_path);

// Rows directly below a section: "train" -> train.loss, train.optimizer, ...; "" -> top level.
std::vector<const Setting*> ChildSettings(std::string_view table_path);

// The last segment of a path.
std::string_view LeafName(std::string_view path);
// `parent` + "." + `name`, or `name` at the top level.
std::string ChildPath(std::string_view parent, std::string_view name);
// "a|b|c" -> {a, b, c}
std::vector<std::string> SplitChoices(std::string_view choices);
bool HasChoice(std::string_view choices, std::string_view value);

// True for sections and maps, which hold other keys and cannot be set themselves.
bool IsContainer(ValueType type);

// The default of a row where the sibling `kind` has value `kind` (may be empty); empty: none.
std::string_view DefaultFor(const Setting& setting, std::string_view kind);

// True for rows that the bundle hands to the launch: launch keys, and the few compile-time keys
// that say what they mean (train.optimizer.kind).
bool InLaunchConfig(const Setting& setting);

// "an integer, at least 1", "true or false", "one of fp32, fp64": for messages and documentation.
std::string DescribeType(const Setting& setting);

}  // namespace hyper::strategy
