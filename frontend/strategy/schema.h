// The settings table as JSON Schema and as documentation. Pure functions.
#pragma once

#include <string>

namespace hyper::strategy {

// JSON Schema (draft 2020-12); each key has a description, its default, and "x-hyper-phase":
// "compile" or "launch".
std::string StrategySchemaJson();

// A Markdown table of every key: type, default, phase, meaning.
std::string StrategyDocsMarkdown();

}  // namespace hyper::strategy
