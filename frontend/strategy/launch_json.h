// Between checked JSON (check.h) and LaunchConfig, and the rules that span several launch keys.
// Internal to this folder. Pure functions.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "frontend/strategy/launch_config.h"

namespace hyper::strategy {

// Tolerates refused (null) values, which keep their zero; use the result only without errors.
LaunchConfig LaunchFromChecked(const nlohmann::ordered_json& checked);
nlohmann::ordered_json LaunchToJson(const LaunchConfig& config);

// path of the value at fault, message, help (may be empty)
using RuleReport = std::function<void(const std::string&, std::string, std::string)>;

// Rules across keys: batch keys, schedule, data sources. Values already refused are not judged.
void CheckLaunchRules(const nlohmann::ordered_json& checked, const RuleReport& report);

}  // namespace hyper::strategy
