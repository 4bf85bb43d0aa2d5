#include "runtime/trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/program_io.h"

namespace hyper::runtime {
namespace {

using Json = nlohmann::ordered_json;

class Events {
 public:
  Events(int rank, int64_t origin_ns) : rank_(rank), origin_ns_(origin_ns) {}

  void Add(int row, std::string name, std::string category, int64_t begin_ns, int64_t end_ns,
           Json arguments) {
    list_.push_back({{"name", std::move(name)},
                     {"cat", std::move(category)},
                     {"ph", "X"},
                     {"pid", rank_},
                     {"tid", row},
                     {"ts", Microseconds(begin_ns - origin_ns_)},
                     {"dur", Microseconds(end_ns - begin_ns)},
                     {"args", std::move(arguments)}});
  }
  void NameRow(int row, const char* name) {
    list_.push_back({{"name", "thread_name"},
                     {"ph", "M"},
                     {"pid", rank_},
                     {"tid", row},
                     {"args", {{"name", name}}}});
  }
  std::string Format() const { return Json{{"traceEvents", list_}}.dump() + "\n"; }

 private:
  static double Microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

  int rank_;
  int64_t origin_ns_;
  Json list_ = Json::array();
};

std::string InstructionName(const program::Instruction& instruction) {
  std::string kernel;
  if (instruction.has_library()) kernel = instruction.library().primitive();
  if (instruction.has_generated()) kernel = instruction.generated().symbol();
  if (instruction.has_reference()) kernel = instruction.reference().op();
  return instruction.source().empty() ? kernel : fmt::format("{} {}", kernel, instruction.source());
}

}  // namespace

std::string FormatTrace(const program::Program& program, int rank, const StepTrace& step,
                        std::span<const TracedRun> runs, std::span<const ReduceRecord> reduces) {
  Events events(rank, step.begin_ns);
  events.NameRow(0, "compute");
  events.NameRow(1, "reduce");
  events.NameRow(2, "step");
  for (const TracedRun& run : runs) {
    const program::SubProgram* subprogram = FindSubProgram(program, run.subprogram);
    if (subprogram == nullptr) continue;
    for (size_t i = 0; i < run.times.size(); ++i) {
      const program::Instruction& instruction = subprogram->instructions(static_cast<int>(i));
      if (instruction.has_marker()) continue;
      events.Add(0, InstructionName(instruction), instruction.role(), run.times[i].begin_ns,
                 run.times[i].end_ns,
                 {{"subprogram", run.subprogram},
                  {"flops", instruction.flops()},
                  {"bytes", instruction.bytes_moved()}});
    }
  }
  for (const ReduceRecord& reduce : reduces) {
    events.Add(1, fmt::format("bucket {}", reduce.bucket), "reduce", reduce.begin_ns, reduce.end_ns,
               {{"bytes", reduce.bytes},
                {"queued_us", static_cast<double>(reduce.queued_ns - step.begin_ns) * 1e-3}});
  }
  events.Add(2, "last micro-batch", "phase", step.backward_begin_ns, step.backward_end_ns,
             Json::object());
  events.Add(2, "wait for reduces", "phase", step.backward_end_ns, step.reduced_ns, Json::object());
  events.Add(2, "update", "phase", step.reduced_ns, step.end_ns, Json::object());
  return events.Format();
}

}  // namespace hyper::runtime
