// A check of a command line's whole numbers that says what is accepted.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace hyper::tools {

inline CLI::Validator WholeNumber(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= low && value <= high) return {};
        return fmt::format("'{}' is not accepted; a whole number from {} to {} is", text, low,
                           high);
      },
      "");
}

}  // namespace hyper::tools
