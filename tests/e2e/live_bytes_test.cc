// Packing is close to the live bytes. They are recomputed here from the text of the lowered program
// alone: which instruction touches which buffer, and how large that is. Nothing of the planner's
// own accounting (offload/) takes part.
#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "codegen/bundle.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/plan_jobs.h"

namespace hyper::e2e {
namespace {

// The text, see lower/print.h:
//   root #3 temporary %12 f32[1024]
//   function step_first
//     onednn.matmul.dot =%12#3 f32[32,32]:[32,1], x#0 f32[32,64]:[64,1], scratch %w#9 u8[640]:[1]
//     result loss %20#7 f32[]:[]
// A view names its root by number, so aliases need no resolving beyond it.
struct TextRoot {
  bool temporary = false;
  int64_t bytes = 0;
};

struct Touch {
  int64_t root = 0;
  bool reads = false;  // needs what was there before
};

struct TextFunction {
  std::vector<std::vector<Touch>> instructions;
  std::vector<int64_t> results;  // roots
};

struct TextProgram {
  std::map<int64_t, TextRoot> roots;
  std::map<std::string, TextFunction> functions;
};

int64_t BytesOf(const std::string& dtype) {
  static const std::map<std::string, int64_t> kBytes = {
      {"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2}, {"i8", 1},  {"i16", 2}, {"i32", 4},
      {"i64", 8}, {"u8", 1},  {"u16", 2}, {"u32", 4},  {"u64", 8}, {"bool", 1}};
  const auto found = kBytes.find(dtype);
  if (found == kBytes.end()) throw std::runtime_error("unknown type " + dtype);
  return found->second;
}

int64_t NumberAt(const std::string& text, size_t at, size_t* end = nullptr) {
  int64_t number = -1;
  const auto [next, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  if (error != std::errc()) throw std::runtime_error("no number in: " + text);
  if (end != nullptr) *end = static_cast<size_t>(next - text.data());
  return number;
}

// "root #3 temporary NAME f32[1024]"
void ParseRoot(const std::string& line, TextProgram* program) {
  size_t end = 0;
  const int64_t index = NumberAt(line, line.find('#') + 1, &end);
  const size_t type = line.rfind(' ') + 1;
  const size_t bracket = line.find('[', type);
  program->roots[index] = {
      line.compare(end, 11, " temporary ") == 0,
      NumberAt(line, bracket + 1) * BytesOf(line.substr(type, bracket - type))};
}

// Every "ACCESS NAME#NUMBER TYPE" of a line, in front of the formulas of generated kernels.
std::vector<Touch> ParseTouches(const std::string& line) {
  const std::string text = line.substr(0, line.find(" {"));
  std::vector<Touch> touches;
  for (size_t at = text.find('#'); at != std::string::npos; at = text.find('#', at + 1)) {
    const size_t name = text.rfind(' ', at) + 1;
    const bool writes_first =
        text[name] == '=' || (name >= 8 && text.compare(name - 8, 8, "scratch ") == 0);
    touches.push_back({NumberAt(text, at + 1), !writes_first});
  }
  return touches;
}

TextProgram ParseText(const std::string& text) {
  TextProgram program;
  TextFunction* function = nullptr;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("root ", 0) == 0) {
      ParseRoot(line, &program);
    } else if (line.rfind("function ", 0) == 0) {
      function = &program.functions[line.substr(9)];
    } else if (line.rfind("  result ", 0) == 0) {
      for (const Touch& touch : ParseTouches(line)) function->results.push_back(touch.root);
    } else if (line.rfind("  unfused ", 0) != 0 && line.rfind("  ", 0) == 0) {
      function->instructions.push_back(ParseTouches(line));
    }
  }
  return program;
}

struct Live {
  int64_t bytes = 0;     // largest sum over the instructions
  int64_t granules = 0;  // the same with every buffer rounded up to whole 64-byte granules, bytes
};

// A buffer is alive from the instruction that defines it to the last that uses it, both included.
Live LargestLive(const TextProgram& program, const TextFunction& function) {
  std::map<int64_t, std::pair<size_t, size_t>> lives;
  for (size_t i = 0; i < function.instructions.size(); ++i) {
    for (const Touch& touch : function.instructions[i]) {
      if (!program.roots.at(touch.root).temporary) continue;
      const auto [life, is_new] = lives.try_emplace(touch.root, i, i);
      life->second.second = i;
      EXPECT_FALSE(is_new && touch.reads) << "#" << touch.root << " is used undefined";
    }
  }
  Live largest;
  for (size_t i = 0; i < function.instructions.size(); ++i) {
    Live live;
    for (const auto& [root, life] : lives) {
      if (i < life.first || i > life.second) continue;
      const int64_t bytes = program.roots.at(root).bytes;
      live.bytes += bytes;
      live.granules += (bytes + 63) / 64 * 64;
    }
    largest.bytes = std::max(largest.bytes, live.bytes);
    largest.granules = std::max(largest.granules, live.granules);
  }
  return largest;
}

TEST(LiveBytes, OfATextAreWhatItSays) {
  const TextProgram program = ParseText(
      "module m\n"
      "root #0 input x f32[100]\n"
      "root #1 temporary %a f32[100]\n"
      "root #2 temporary %b bool[10]\n"
      "root #3 temporary %w u8[1000]\n"
      "root #4 temporary %c f64[2]\n"
      "root #5 result y f32[100]\n"
      "function f\n"
      "  generated.map =%a#1 f32[100]:[1], x#0 f32[100]:[1] { (neg #0) } group 1: 8 of 8 bytes\n"
      "  reference.less =%b#2 bool[10]:[1], %a#1 f32[10]:[10]@3\n"
      "  onednn.matmul.dot =%c#4 f64[2]:[1], %b#2 bool[10]:[1], scratch %w#3 u8[1000]:[1]\n"
      "  marker p q\n"
      "  reference.add =y#5 f32[100]:[1], %c#4 f64[2]:[1]\n"
      "  result y y#5 f32[100]:[1]\n"
      "  unfused a | b: different shapes\n");
  const TextFunction& f = program.functions.at("f");
  ASSERT_EQ(f.instructions.size(), 5U);
  EXPECT_EQ(f.results, std::vector<int64_t>{5});
  const Live live = LargestLive(program, f);
  EXPECT_EQ(live.bytes, 10 + 1000 + 16);
  EXPECT_EQ(live.granules, 64 + 1024 + 64);
}

TEST(Plan, PeakIsWithinTenPercentOfTheLiveBytes) {
  std::vector<Job> jobs = Jobs();
  for (const Job& recipe : Recipes()) jobs.push_back(recipe);
  for (const Job& job : jobs) {
    SCOPED_TRACE(job.name);
    const auto path = CompileToBundle(job.name, job.model, job.strategy);
    ASSERT_TRUE(path.ok()) << path.status().ToString();
    const auto bundle = codegen::BundleReader::Open(RealFileSystem(), *path);
    ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
    const TextProgram text = ParseText(ReadFileOrDie(*path + ".txt"));
    const program::Program& program = (*bundle)->program();
    ASSERT_EQ(text.functions.size(), static_cast<size_t>(program.subprograms_size()));
    int64_t largest = 0;
    for (const auto& sub : program.subprograms()) {
      SCOPED_TRACE(sub.name());
      const TextFunction& function = text.functions.at(sub.name());
      ASSERT_EQ(function.instructions.size(), static_cast<size_t>(sub.instructions_size()));
      // Results outlive their function: none may lie among the temporaries.
      for (const int64_t root : function.results) EXPECT_FALSE(text.roots.at(root).temporary);
      const Live live = LargestLive(text, function);
      EXPECT_EQ(sub.live_lower_bound(), live.bytes);
      EXPECT_GE(sub.temporary_peak(), live.bytes);
      // Addresses are multiples of 64, which all programs pay, those of a few scalars too.
      EXPECT_LE(static_cast<double>(sub.temporary_peak()),
                1.1 * static_cast<double>(live.granules));
      // From 64 values of a granule each, what alignment adds is no excuse.
      if (live.bytes < 4096) continue;
      EXPECT_LE(static_cast<double>(sub.temporary_peak()), 1.1 * static_cast<double>(live.bytes));
      Measured("plan_to_live_bytes",
               static_cast<double>(sub.temporary_peak()) / static_cast<double>(live.bytes));
      largest = std::max(largest, live.bytes);
    }
    EXPECT_GT(largest, 1 << 18);  // the steps are among those that were compared
  }
}

}  // namespace
}  // namespace hyper::e2e
