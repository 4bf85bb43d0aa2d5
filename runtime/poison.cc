#include "runtime/poison.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace hyper::runtime {
namespace {

constexpr unsigned char kPoison = 0xFF;

bool IsPoison(char byte) { return static_cast<unsigned char>(byte) == kPoison; }

int64_t ElementsOf(const program::Operand& operand) {
  int64_t elements = 1;
  for (int64_t extent : operand.dims()) elements *= extent;
  return elements;
}

// A write that leaves no gaps ends the life of what was there before.
bool IsGapless(const program::Operand& operand) {
  static constexpr int kWidths[] = {4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};  // by DType number
  return operand.end() - operand.begin() == ElementsOf(operand) * kWidths[operand.dtype()];
}

bool IsWritten(const program::Operand& operand) { return operand.access() != program::READ; }

bool IsRead(const program::Operand& operand) {
  return operand.access() != program::WRITE && operand.access() != program::WORKSPACE;
}

}  // namespace

void RangeSet::Add(int64_t begin, int64_t end) {
  if (begin >= end) return;
  auto first = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                [](const Range& r, int64_t at) { return r.end < at; });
  auto last = first;
  for (; last != ranges_.end() && last->begin <= end; ++last) {
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
  }
  ranges_.insert(ranges_.erase(first, last), {begin, end});
}

void RangeSet::Subtract(int64_t begin, int64_t end) {
  std::vector<Range> rest;
  for (const Range& range : ranges_) {
    if (range.begin < std::min(range.end, begin)) {
      rest.push_back({range.begin, std::min(range.end, begin)});
    }
    if (std::max(range.begin, end) < range.end) {
      rest.push_back({std::max(range.begin, end), range.end});
    }
  }
  ranges_ = std::move(rest);
}

RangeSet RangeSet::Complement(int64_t bytes) const {
  RangeSet out;
  int64_t position = 0;
  for (const Range& range : ranges_) {
    out.Add(position, std::min(range.begin, bytes));
    position = std::max(position, range.end);
  }
  out.Add(position, bytes);
  return out;
}

PoisonGuard::PoisonGuard(const program::Program& program, const program::SubProgram& sub,
                         char* arena)
    : sub_(sub) {
  int64_t base = 0;
  for (const program::Region& region : program.regions()) {
    if (region.storage() != program::TEMPORARY) continue;
    base = region.begin();
    bytes_ = region.end() - region.begin();
  }
  region_ = arena + base;
  const auto is_temporary = [&](const program::Operand& operand) {
    return operand.begin() >= base && operand.end() <= base + bytes_;
  };

  // Backwards: a byte is live where a later instruction reads it before it is overwritten.
  const size_t count = static_cast<size_t>(sub.instructions_size());
  untouched_.resize(count);
  dead_after_.resize(count);
  no_workspace_.resize(count);
  workspaces_.resize(count);
  RangeSet live;
  for (size_t i = count; i-- > 0;) {
    const auto& operands = sub.instructions(static_cast<int>(i)).operands();
    dead_after_[i] = live.Complement(bytes_);
    for (const program::Operand& operand : operands) {
      if (is_temporary(operand) && operand.access() == program::WRITE && IsGapless(operand)) {
        live.Subtract(operand.begin() - base, operand.end() - base);
      }
    }
    for (const program::Operand& operand : operands) {
      if (is_temporary(operand) && IsRead(operand)) {
        live.Add(operand.begin() - base, operand.end() - base);
      }
    }
    RangeSet touched = live;
    RangeSet workspaces;
    for (const program::Operand& operand : operands) {
      if (is_temporary(operand) && operand.access() == program::WORKSPACE) {
        workspaces.Add(operand.begin() - base, operand.end() - base);
        workspaces_[i].push_back(marks_.workspaces.size());
        marks_.workspaces.push_back({sub.instructions(static_cast<int>(i)).source(),
                                     operand.begin() - base, operand.end() - operand.begin()});
      }
      if (is_temporary(operand) && IsWritten(operand)) {
        touched.Add(operand.begin() - base, operand.end() - base);
      }
    }
    untouched_[i] = touched.Complement(bytes_);
    no_workspace_[i] = workspaces.Complement(bytes_);
  }
}

int64_t PoisonGuard::WrittenEnd(int64_t begin, int64_t end) const {
  while (end > begin && IsPoison(region_[end - 1])) --end;
  return end;
}

void PoisonGuard::Begin() { std::memset(region_, kPoison, static_cast<size_t>(bytes_)); }

Status PoisonGuard::After(int instruction) {
  const size_t index = static_cast<size_t>(instruction);
  for (const RangeSet::Range& range : untouched_[index].ranges()) {
    const char* begin = region_ + range.begin;
    const char* end = region_ + range.end;
    const char* wrong = std::find_if(begin, end, [](char byte) { return !IsPoison(byte); });
    if (wrong != end) {
      return Internal(
          fmt::format("instruction {} ({}) wrote byte {} of the temporary region, which "
                      "no operand of it owns",
                      instruction, sub_.instructions(instruction).source(), wrong - region_));
    }
  }
  // From the top, and never below what is known: most instructions cost little.
  int64_t& results = marks_.written_by_results;
  const std::vector<RangeSet::Range>& outside = no_workspace_[index].ranges();
  for (auto range = outside.rbegin(); range != outside.rend() && range->end > results; ++range) {
    const int64_t begin = std::max(range->begin, results);
    const int64_t end = WrittenEnd(begin, range->end);
    if (end == begin) continue;
    results = end;
    break;
  }
  marks_.written = std::max(marks_.written, results);
  marks_.planned_touch = std::max(marks_.planned_touch, results);
  for (const size_t w : workspaces_[index]) {
    WorkspaceUse& use = marks_.workspaces[w];
    const int64_t end = use.begin + use.cap;
    use.written = WrittenEnd(use.begin + use.written, end) - use.begin;
    if (use.written > 0) marks_.written = std::max(marks_.written, use.begin + use.written);
    marks_.planned_touch = std::max(marks_.planned_touch, end);
  }
  for (const RangeSet::Range& range : dead_after_[index].ranges()) {
    std::memset(region_ + range.begin, kPoison, static_cast<size_t>(range.end - range.begin));
  }
  return Status::Ok();
}

}  // namespace hyper::runtime
