// hyperc: command line of the compiler. Parses, calls the libraries, maps Status to an exit code.
#include <cstdio>
#include <utility>
#include <vector>

#include "tools/hyperc/commands.h"

namespace hyper::tools {

void WriteOut(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void WriteErr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void WriteNotes(const Diagnostics& diagnostics) {
  if (!diagnostics.items().empty()) WriteErr(diagnostics.Render());
}

namespace {

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
