// hyperc: command line of the compiler. Parses, calls the libraries, maps Status to an exit code.
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/strings.h"

#include "tools/hyperc/commands.h"

namespace hyper::tools {

void WriteOut(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void WriteErr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void WriteNotes(const Diagnostics& diagnostics) {
  if (!diagnostics.items().empty()) WriteErr(diagnostics.Render());
}

namespace {

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

bool IsCommand(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = CommandNames(app);
  return std::find(names.begin(), names.end(), word) != names.end();
}

// The parser would only say that a command is missing.
int UnknownCommand(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = CommandNames(app);
  const std::string hint = DidYouMean(word, names);
  WriteErr(fmt::format("hyperc: error: there is no command '{}'; {}{}commands are {}\n", word, hint,
                       hint.empty() ? "" : " ", Join(names, ", ")));
  return 2;
}

int Main(int argc, char** argv) {
  CLI::App app{"Compiles an ONNX model and a strategy into a bundle that hyperrun trains."};
  app.name("hyperc");
  app.set_version_flag("--version", "hyperc 0.1.0");
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, Command>> commands;
  for (const auto add : {AddInspect, AddCheck, AddCompile, AddShow, AddOps, AddSchema, AddExport}) {
    Command command = add(app);
    commands.emplace_back(app.get_subcommands(nullptr).back(), std::move(command));
  }
  if (argc > 1 && argv[1][0] != '-' && !IsCommand(app, argv[1])) {
    return UnknownCommand(app, argv[1]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (const auto& [subcommand, command] : commands) {
    if (!subcommand->parsed()) continue;
    const Status status = Guard(command);
    if (status.ok()) return 0;
    // Diagnostics render themselves; a single message gets the program's name.
    const bool rendered = status.message().find("error: ") != std::string::npos;
    WriteErr(rendered ? status.message() : "hyperc: error: " + status.message());
    if (status.message().empty() || status.message().back() != '\n') WriteErr("\n");
    return ExitCode(status.code());
  }
  return 2;
}

}  // namespace
}  // namespace hyper::tools

int main(int argc, char** argv) { return hyper::tools::Main(argc, argv); }
