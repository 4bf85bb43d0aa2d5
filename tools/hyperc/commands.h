// The subcommands of hyperc. Each adds itself to the command line and, when chosen, runs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/diagnostics.h"
#include "base/status.h"

namespace hyper::tools {

using Command = std::function<Status()>;

// Each returns what to run when its subcommand was given.
Command AddInspect(CLI::App& app);
Command AddCheck(CLI::App& app);
Command AddCompile(CLI::App& app);
Command AddShow(CLI::App& app);
Command AddOps(CLI::App& app);
Command AddSchema(CLI::App& app);
Command AddExport(CLI::App& app);

void WriteOut(std::string_view text);  // stdout: results
void WriteErr(std::string_view text);  // stderr: words for people
// Warnings and notes of a step that went well.
void WriteNotes(const Diagnostics& diagnostics);

}  // namespace hyper::tools
