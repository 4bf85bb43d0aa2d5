#include "frontend/strategy/scalar.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::strategy {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Long or odd text is shown cut, so that a message stays one line.
std::string Shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  return fmt::format("'{}{}'", out, text.size() > 60 ? "..." : "");
}

ScalarResult Refuse(std::string message, std::string help = {}) {
  return {std::nullopt, std::move(message), std::move(help)};
}

ScalarResult WrongType(const Setting& setting, std::string_view text, std::string help = {}) {
  return Refuse(fmt::format("is {}; expected {}", Shown(text), DescribeType(setting)),
                std::move(help));
}

bool InRange(const Setting& setting, double value) {
  if (setting.min_excluded ? value <= setting.min : value < setting.min) return false;
  return !(setting.max_excluded ? value >= setting.max : value > setting.max);
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// [-+]? (0 | [1-9][0-9]*)
bool IsIntegerSyntax(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  return std::all_of(text.begin(), text.end(), IsDigit);
}

// An integer, then optionally .[0-9]* and an exponent.
bool IsNumberSyntax(std::string_view text) {
  const size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    std::string_view digits = text.substr(exponent + 1);
    if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
    if (digits.empty() || !std::all_of(digits.begin(), digits.end(), IsDigit)) return false;
    text = text.substr(0, exponent);
  }
  const size_t point = text.find('.');
  if (point != std::string_view::npos) {
    const std::string_view digits = text.substr(point + 1);
    if (!std::all_of(digits.begin(), digits.end(), IsDigit)) return false;
    text = text.substr(0, point);
  }
  return IsIntegerSyntax(text);
}

// Call with number syntax only. Out of the double range gives infinity.
double ToDouble(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    // Underflow and overflow are told apart by the exponent's sign.
    const size_t exponent = text.find_first_of("eE");
    const bool tiny = exponent != std::string_view::npos && text[exponent + 1] == '-';
    return tiny ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return value;
}

// What the writer of something that is almost a number probably meant, or empty.
std::string SuggestNumber(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != '_' && c != ',' && c != ' ') plain += c;
  }
  std::string sign;
  if (!plain.empty() && (plain[0] == '-' || plain[0] == '+')) {
    if (plain[0] == '-') sign = "-";
    plain.erase(0, 1);
  }
  while (plain.size() > 1 && plain[0] == '0' && IsDigit(plain[1])) plain.erase(0, 1);
  if (plain.starts_with('.')) plain = "0" + plain;
  return IsNumberSyntax(plain) ? sign + plain : std::string();
}

std::string NumberHelp(std::string_view text, bool integer) {
  const std::string suggestion = SuggestNumber(text);
  if (suggestion.empty()) return {};
  if (integer && !IsIntegerSyntax(suggestion)) {
    const double value = ToDouble(suggestion);
    if (value != std::floor(value) || std::abs(value) > 1e15) return {};
    return fmt::format("write {}", static_cast<long long>(value));
  }
  if (text.size() > 1 && IsDigit(text[1]) && (text[0] == '0')) {
    return fmt::format("write {} (no leading zeros)", suggestion);
  }
  return fmt::format("write {}", suggestion);
}

ScalarResult OutOfRange(const Setting& setting, std::string_view text) {
  return Refuse(
      fmt::format("is {}, out of range; expected {}", Shown(text), DescribeType(setting)));
}

ScalarResult NotYet(const Setting& setting, std::string_view text) {
  return Refuse(fmt::format("is {}, which is not available in this version; {} now", Shown(text),
                            setting.choices.find('|') == std::string_view::npos
                                ? fmt::format("only {} works", setting.choices)
                                : fmt::format("what works is {}", DescribeType(setting))));
}

ScalarResult Quoted(const Setting& setting, std::string_view text) {
  return Refuse(fmt::format("is text because of its quotes; expected {}", DescribeType(setting)),
                fmt::format("write {} without quotes", text));
}

ScalarResult ParseInt(const Setting& setting, std::string_view text) {
  if (!IsIntegerSyntax(text)) return WrongType(setting, text, NumberHelp(text, true));
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc()) return OutOfRange(setting, text);
  if (HasChoice(setting.later, text)) return NotYet(setting, text);
  if (!setting.choices.empty() && !HasChoice(setting.choices, text)) {
    return WrongType(setting, text);
  }
  if (!InRange(setting, static_cast<double>(value))) return OutOfRange(setting, text);
  return {value, {}, {}};
}

ScalarResult ParseFloat(const Setting& setting, std::string_view text) {
  std::string_view number = text;
  const bool percent = setting.type == ValueType::kFraction && text.ends_with('%');
  if (percent) number.remove_suffix(1);
  if (!IsNumberSyntax(number)) {
    const std::string lower = Lower(text);
    if (lower.ends_with("inf") || lower.ends_with("nan")) {
      return Refuse(fmt::format("is {}; expected a finite number", Shown(text)));
    }
    return WrongType(setting, text, NumberHelp(text, false));
  }
  double value = ToDouble(number);
  if (percent) value /= 100;
  if (!std::isfinite(value) || !InRange(setting, value)) return OutOfRange(setting, text);
  return {value, {}, {}};
}

ScalarResult ParseBool(const Setting& setting, std::string_view text) {
  if (text == "true") return {true, {}, {}};
  if (text == "false") return {false, {}, {}};
  const std::string lower = Lower(text);
  std::string help;
  if (lower == "yes" || lower == "on" || lower == "y" || lower == "true" || lower == "1") {
    help = "write true";
  } else if (lower == "no" || lower == "off" || lower == "n" || lower == "false" || lower == "0") {
    help = "write false";
  }
  return WrongType(setting, text, std::move(help));
}

ScalarResult ParseEnum(const Setting& setting, std::string_view text) {
  if (HasChoice(setting.choices, text)) return {std::string(text), {}, {}};
  if (HasChoice(setting.later, text)) return NotYet(setting, text);
  const std::vector<std::string> choices = SplitChoices(setting.choices);
  return WrongType(setting, text, DidYouMean(Lower(text), choices));
}

ScalarResult ParseSize(const Setting& setting, std::string_view text) {
  // ParseBytes reads the number with from_chars, which takes more forms than a strategy may hold.
  const size_t unit = text.find_first_not_of("+-.0123456789_,xX");
  std::string_view number = text.substr(0, unit);
  while (number.ends_with(' ')) number.remove_suffix(1);
  if (!IsNumberSyntax(number)) {
    const std::string suggestion = SuggestNumber(number);
    return WrongType(setting, text,
                     suggestion.empty()
                         ? std::string()
                         : fmt::format("write {}{}", suggestion,
                                       unit == std::string_view::npos ? "" : text.substr(unit)));
  }
  if (number.starts_with('-')) return OutOfRange(setting, text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const Result<int64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) {
    return Refuse(fmt::format("is {}; expected {}", Shown(text), DescribeType(setting)),
                  "units are B, KiB, MiB, GiB, TiB, kB, MB, GB and TB");
  }
  if (!InRange(setting, static_cast<double>(*bytes))) return OutOfRange(setting, text);
  return {*bytes, {}, {}};
}

// One number of a tensor: integers stay integers.
ScalarResult ParseElement(const Setting& setting, std::string_view text) {
  if (text == "true" || text == "false") return {text == "true", {}, {}};
  return IsIntegerSyntax(text) ? ParseInt(setting, text) : ParseFloat(setting, text);
}

}  // namespace

ScalarResult ParseScalar(const Setting& setting, std::string_view text, bool quoted) {
  const auto unless_quoted = [&](auto parse) {
    if (!quoted) return parse(setting, text);
    ScalarResult unquoted = parse(setting, text);
    return unquoted.value ? Quoted(setting, text) : WrongType(setting, text, unquoted.help);
  };
  const bool ends_in_unit = !text.empty() && !IsDigit(text.back());
  switch (setting.type) {
    case ValueType::kInt: return unless_quoted(ParseInt);
    case ValueType::kFloat:
    case ValueType::kFloatPair: return unless_quoted(ParseFloat);
    case ValueType::kTensor: return unless_quoted(ParseElement);
    case ValueType::kBool: return unless_quoted(ParseBool);
    // With its unit in quotes, "5%" and "25MiB" are no bare numbers and mean what they say.
    case ValueType::kFraction:
      return ends_in_unit ? ParseFloat(setting, text) : unless_quoted(ParseFloat);
    case ValueType::kBytes:
      return ends_in_unit ? ParseSize(setting, text) : unless_quoted(ParseSize);
    case ValueType::kEnum: return ParseEnum(setting, text);
    case ValueType::kString:
    case ValueType::kStringList:
    case ValueType::kNameGroups:
    case ValueType::kNameOrSection:
      if (text.empty()) return Refuse("is empty text");
      return {std::string(text), {}, {}};
    case ValueType::kSection:
    case ValueType::kSectionOrList:
    case ValueType::kNamedMap:
    case ValueType::kReserved: return WrongType(setting, text);
  }
  return Refuse("has an unknown type");
}

}  // namespace hyper::strategy
