// Compiler-style messages: where, what was found, what is accepted, a suggestion. A Diagnostics
// collects all of them so that one run reports every error (up to a limit).
// Thread safety: none; one collector per thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hyper {

// Position in a text file; line and column count from 1, 0 means "no position".
struct SourceLocation {
  std::string file;
  int line = 0;
  int column = 0;
};

enum class Severity { kNote, kWarning, kError };

struct Diagnostic {
  Severity severity = Severity::kError;
  SourceLocation location;  // graph messages put "model.onnx: node 'x' (Conv)" into `file`
  std::string message;      // what was asked, the actual value, what would be accepted
  std::vector<std::string> notes;
  std::string help;  // a suggestion that can be pasted, or empty
};

class Diagnostics {
 public:
  void Add(Diagnostic diagnostic) { items_.push_back(std::move(diagnostic)); }
  void Error(SourceLocation location, std::string message, std::string help = {});
  void Warning(SourceLocation location, std::string message, std::string help = {});
  void Note(SourceLocation location, std::string message);

  const std::vector<Diagnostic>& items() const { return items_; }
  int error_count() const;
  bool has_errors() const { return error_count() > 0; }

  // Ok without errors, else kInvalidArgument whose message is the whole rendering.
  // `source`: the text of the file, for the quoted line and caret; may be empty.
  Status ToStatus(std::string_view source = {}) const;
  // "file:3:7: error: ...", the source line with a caret, notes and help; at most `limit` errors.
  std::string Render(std::string_view source = {}, int limit = 20) const;

 private:
  std::vector<Diagnostic> items_;
};

}  // namespace hyper
