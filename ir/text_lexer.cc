#include "ir/text_lexer.h"

#include <cctype>

#include "ir/number_text.h"

namespace hyper::ir {
namespace {

bool IsAlpha(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

bool IsNameCharacter(char c) { return IsAlnum(c) || c == '.' || c == '/' || c == '-'; }

bool IsIdentifier(std::string_view name) {
  if (name.empty() || name.size() > 200 || std::isdigit(static_cast<unsigned char>(name[0]))) {
    return false;
  }
  for (char c : name) {
    if (!IsNameCharacter(c)) return false;
  }
  return name.find("//") == std::string_view::npos;  // would read as a comment
}

std::string QuoteText(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (u < 0x20 || u >= 0x7f) {
      out += "\\x";
      out += kHex[u >> 4];
      out += kHex[u & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

void Lexer::Skip() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++position_;
    } else if (text_.substr(position_, 2) == "//") {
      while (position_ < text_.size() && text_[position_] != '\n') ++position_;
    } else {
      return;
    }
  }
}

bool Lexer::AtEnd() {
  Skip();
  return position_ == text_.size();
}

char Lexer::Peek() {
  Skip();
  return position_ < text_.size() ? text_[position_] : '\0';
}

size_t Lexer::Position() {
  Skip();
  return position_;
}

bool Lexer::Accept(std::string_view token) {
  Skip();
  if (text_.substr(position_, token.size()) != token) return false;
  const size_t end = position_ + token.size();
  if (IsAlpha(token[0]) && end < text_.size() && IsAlnum(text_[end])) return false;
  position_ = end;
  return true;
}

Status Lexer::Expect(std::string_view token) {
  if (Accept(token)) return Status::Ok();
  return Error("expected '" + std::string(token) + "'");
}

std::string_view Lexer::Word() {
  Skip();
  const size_t start = position_;
  if (start < text_.size() && IsAlpha(text_[start])) {
    while (position_ < text_.size() && IsAlnum(text_[position_])) ++position_;
  }
  return text_.substr(start, position_ - start);
}

std::string_view Lexer::Name() {
  const size_t start = position_;
  while (position_ < text_.size() && IsNameCharacter(text_[position_]) &&
         text_.substr(position_, 2) != "//") {
    ++position_;
  }
  return text_.substr(start, position_ - start);
}

Result<std::string> Lexer::Quoted() {
  Skip();
  const size_t start = position_;
  if (!Accept("\"")) return Error("expected a quoted string");
  std::string out;
  while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n') {
    char c = text_[position_++];
    if (c != '\\') {
      out += c;
      continue;
    }
    const char kind = position_ < text_.size() ? text_[position_++] : '\0';
    if (kind == '"' || kind == '\\') {
      out += kind;
    } else if (kind == 'n') {
      out += '\n';
    } else if (kind == 't') {
      out += '\t';
    } else if (kind == 'x' && position_ + 2 <= text_.size() && HexDigit(text_[position_]) >= 0 &&
               HexDigit(text_[position_ + 1]) >= 0) {
      out += static_cast<char>(HexDigit(text_[position_]) * 16 + HexDigit(text_[position_ + 1]));
      position_ += 2;
    } else {
      return Error("unknown escape in a quoted string", position_ - 1);
    }
  }
  if (position_ >= text_.size() || text_[position_] != '"') {
    return Error("the quoted string does not end on this line", start);
  }
  ++position_;
  return out;
}

std::string_view Lexer::Number() {
  Skip();
  const size_t start = position_;
  auto at = [&](size_t p) { return p < text_.size() ? text_[p] : '\0'; };
  if (at(position_) == '-') ++position_;
  for (std::string_view word : {"inf", "nan"}) {
    if (text_.substr(position_, 3) == word && !IsAlnum(at(position_ + 3))) {
      position_ += 3;
      return text_.substr(start, position_ - start);
    }
  }
  while (true) {
    const char c = at(position_);
    const bool exponent_sign = (c == '-' || c == '+') && position_ > start &&
                               (at(position_ - 1) == 'e' || at(position_ - 1) == 'E');
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit && c != '.' && !((c == 'e' || c == 'E') && position_ > start) && !exponent_sign) {
      return text_.substr(start, position_ - start);
    }
    ++position_;
  }
}

Result<int64_t> Lexer::Integer() {
  const size_t start = Position();
  const std::string_view text = Number();
  const std::optional<int64_t> value = ParseInt(DType::kI64, text);
  if (!value) return Error("expected an integer", start);
  return *value;
}

Result<Dims> Lexer::DimList() {
  HYPER_RETURN_IF_ERROR(Expect("["));
  Dims dims;
  if (Accept("]")) return dims;
  do {
    HYPER_ASSIGN_OR_RETURN(const int64_t d, Integer());
    dims.push_back(d);
  } while (Accept(","));
  HYPER_RETURN_IF_ERROR(Expect("]"));
  return dims;
}

Result<std::string_view> Lexer::Until(char end) {
  const size_t stop = text_.find(end, position_);
  if (stop == std::string_view::npos) return Error(std::string("expected '") + end + "'");
  const std::string_view raw = text_.substr(position_, stop - position_);
  position_ = stop + 1;
  return raw;
}

Status Lexer::Error(std::string message, std::optional<size_t> position) {
  const size_t at = position.value_or(Position());
  SourceLocation location{std::string(file_), 1, 1};
  for (size_t i = 0; i < at && i < text_.size(); ++i) {
    ++location.column;
    if (text_[i] == '\n') {
      ++location.line;
      location.column = 1;
    }
  }
  Diagnostics diagnostics;
  diagnostics.Error(std::move(location), std::move(message));
  return diagnostics.ToStatus(text_);
}

}  // namespace hyper::ir
