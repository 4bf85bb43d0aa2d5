// JSON value -> YAML text: block maps, lists of scalars in one line. Pure function.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace hyper::strategy {

// `json` is an object without null values; texts are quoted unless they are plain words, so that
// every YAML version reads them the same.
std::string WriteYaml(const nlohmann::ordered_json& json);

}  // namespace hyper::strategy
