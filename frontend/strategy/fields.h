// Reads and writes typed structs from and to checked JSON, one list of fields for both directions.
// Internal to this folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "frontend/strategy/settings.h"

namespace hyper::strategy {

// Name <-> enumerator by position in the row's `choices`.
inline std::string ChoiceName(std::string_view table_path, int index) {
  const Setting* setting = FindSetting(table_path);
  HYPER_CHECK(setting != nullptr, table_path);
  const std::vector<std::string> names = SplitChoices(setting->choices);
  HYPER_CHECK(index >= 0 && index < static_cast<int>(names.size()), table_path);
  return names[static_cast<size_t>(index)];
}

inline int ChoiceIndex(std::string_view table_path, std::string_view name) {
  const Setting* setting = FindSetting(table_path);
  HYPER_CHECK(setting != nullptr, table_path);
  const std::vector<std::string> names = SplitChoices(setting->choices);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  HYPER_CHECK(false, fmt::format("{} = {}", table_path, name));
  return 0;
}

// Takes what is there: absent and null (refused) values leave the field as it is.
class FieldReader {
 public:
  FieldReader(const nlohmann::ordered_json& json, std::string table_path)
      : json_(json), table_path_(std::move(table_path)) {}

  template <typename T>
  void Field(const char* name, T* field) {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null()) return;
    if constexpr (std::is_enum_v<T>) {
      *field = static_cast<T>(
          ChoiceIndex(ChildPath(table_path_, name), found->template get<std::string>()));
    } else {
      *field = found->template get<T>();
    }
  }
  template <typename T>
  void Field(const char* name, std::optional<T>* field) {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null()) return;
    field->emplace();
    Field(name, &field->value());
  }
  void Pair(const char* name, double* first, double* second) {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null() || found->size() != 2) return;
    if ((*found)[0].is_number()) *first = (*found)[0].get<double>();
    if ((*found)[1].is_number()) *second = (*found)[1].get<double>();
  }

 private:
  const nlohmann::ordered_json& json_;
  std::string table_path_;
};

// Leaves out empty optionals, empty texts and the fields that the struct's kind does not take.
class FieldWriter {
 public:
  FieldWriter(nlohmann::ordered_json* json, std::string table_path)
      : json_(*json), table_path_(std::move(table_path)) {
    json_ = nlohmann::ordered_json::object();
  }

  template <typename T>
  void Field(const char* name, const T* field) {
    if (!Applies(name)) return;
    if constexpr (std::is_enum_v<T>) {
      json_[name] = ChoiceName(ChildPath(table_path_, name), static_cast<int>(*field));
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!field->empty()) json_[name] = *field;
    } else {
      json_[name] = *field;
    }
  }
  template <typename T>
  void Field(const char* name, const std::optional<T>* field) {
    if (field->has_value()) Field(name, &field->value());
  }
  void Pair(const char* name, const double* first, const double* second) {
    if (Applies(name)) json_[name] = {*first, *second};
  }

 private:
  bool Applies(const char* name) const {
    const Setting* setting = FindSetting(ChildPath(table_path_, name));
    HYPER_CHECK(setting != nullptr, ChildPath(table_path_, name));
    const auto kind = json_.find("kind");
    return setting->only_for.empty() || kind == json_.end() ||
           HasChoice(setting->only_for, kind->get<std::string>());
  }

  nlohmann::ordered_json& json_;
  std::string table_path_;
};

}  // namespace hyper::strategy
