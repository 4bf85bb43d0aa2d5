// Characters to tokens for the text form, with positions for messages. The first error sticks.
// Thread safety: none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostics.h"
#include "base/status.h"
#include "ir/types.h"

namespace hyper::ir {

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view file_name) : text_(text), file_(file_name) {}

  // Skips blanks, line ends and // comments.
  void Skip();
  bool AtEnd();
  // The next character that is not blank, '\0' at the end.
  char Peek();
  // Offset of the next token, to point an error at it later.
  size_t Position();

  // Consumes `token` if it comes next (words: only as a whole word).
  bool Accept(std::string_view token);
  Status Expect(std::string_view token);
  // [A-Za-z_][A-Za-z0-9_]*, empty if there is none.
  std::string_view Word();
  // Name after a sigil: characters of value names, or empty. No blanks before it.
  std::string_view Name();
  // "quoted", with \" \\ \n \t \xHH.
  Result<std::string> Quoted();
  // [+-]?[0-9.eE+-]* or inf/nan; the raw characters.
  std::string_view Number();
  Result<int64_t> Integer();
  // "[1,2]"
  Result<Dims> DimList();
  // Raw text up to `end`, which is consumed.
  Result<std::string_view> Until(char end);

  // An error at `position` (default: the next token).
  Status Error(std::string message, std::optional<size_t> position = std::nullopt);

 private:
  std::string_view text_;
  std::string_view file_;
  size_t position_ = 0;
};

bool IsNameCharacter(char c);              // may occur in %names
bool IsIdentifier(std::string_view name);  // may stand unquoted after % or @
std::string QuoteText(std::string_view text);

}  // namespace hyper::ir
