// Text of a lowered module for people and golden tests; not parsed back.
#pragma once

#include <string>

#include "lower/lowered.h"

namespace hyper::lower {

std::string Print(const LoweredModule& module);
// One line per kernel: name, written views <- read views.
std::string Print(const LoweredModule& module, const LoweredFunction& function);

}  // namespace hyper::lower
