// Files made to hurt: each must give an error, quickly, and never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "frontend/strategy/strategy.h"

namespace hyper::strategy {
namespace {

using testing::HasSubstr;

std::string Refusal(std::string_view text) {
  const Result<Strategy> strategy = ParseStrategy(text, "h.yaml", nullptr);
  EXPECT_FALSE(strategy.ok());
  return strategy.ok() ? "" : strategy.status().message();
}

std::string Repeat(std::string_view part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += part;
  return out;
}

TEST(HostileTest, TooLarge) {
  EXPECT_THAT(Refusal("version: 1\n" + Repeat("# padding\n", 200000)),
              HasSubstr("at most 1.00 MiB"));
}

TEST(HostileTest, LongLine) {
  EXPECT_THAT(Refusal("version: 1\n# " + std::string(10000, 'a')), HasSubstr("h.yaml:2:1"));
}

TEST(HostileTest, NotText) {
  EXPECT_THAT(Refusal(std::string("version: 1\nx\0y: 2\n", 18)),
              HasSubstr("h.yaml:2:2: error: control character 0x00"));
  EXPECT_THAT(Refusal("version: 1\nx: \xff\xfe\n"),
              HasSubstr("h.yaml:2:4: error: byte 0xff is not UTF-8"));
  for (const char* bad : {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xe2\x82", "\x80", "\x1b[31m"}) {
    EXPECT_THAT(Refusal(std::string("a: ") + bad), HasSubstr("h.yaml:1:4: error: "));
  }
}

TEST(HostileTest, DeepNesting) {
  EXPECT_THAT(Refusal("x-a: " + Repeat("[", 4000)), HasSubstr("nested more than"));
  EXPECT_THAT(Refusal("x-a: " + Repeat("{a: ", 2000)), HasSubstr("nested more than"));
  EXPECT_THAT(Refusal("x-a:\n  " + Repeat("- ", 4000) + "1\n"), HasSubstr("nested more than"));
  EXPECT_THAT(Refusal("x-a:\n  " + Repeat("? ", 4000) + "1\n"), HasSubstr("nested more than"));
  std::string many_lines;
  for (int i = 0; i < 500; ++i) many_lines += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(Refusal(many_lines), HasSubstr("nested more than"));
  Refusal(Repeat("[\n", 500000));
}

TEST(HostileTest, AliasBomb) {
  std::string bomb = "version: 1\nx-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 20; ++i) {
    bomb += "x-" + std::to_string(i) + ": &a" + std::to_string(i) + " [" +
            Repeat("*a" + std::to_string(i - 1) + ", ", 10) + "]\n";
  }
  EXPECT_THAT(Refusal(bomb), HasSubstr("aliases counted in full"));
  // Deep without being wide.
  std::string chain = "version: 1\nx-0: &a0 [1]\n";
  for (int i = 1; i < 60; ++i) {
    chain += "x-" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" +
             std::to_string(i - 1) + "]\n";
  }
  EXPECT_THAT(Refusal(chain), HasSubstr("nested more than"));
  EXPECT_THAT(Refusal("version: 1\nx-a: &a [*a]\n"), HasSubstr("alias inside the value"));
}

TEST(HostileTest, HugeCollections) {
  EXPECT_THAT(Refusal("version: 1\nx-a: [" + Repeat("1, ", 300000) + "]\n"), HasSubstr("h.yaml:2"));
  EXPECT_THAT(Refusal("version: 1\nx-a:\n" + Repeat("- 1\n", 240000)), HasSubstr("h.yaml:"));
  std::string keys = "version: 1\nx-a:\n";
  for (int i = 0; i < 90000; ++i) keys += "  k" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(Refusal(keys), HasSubstr("h.yaml:"));
}

TEST(HostileTest, ManyErrorsAreCut) {
  std::string text = "version: 1\n";
  for (int i = 0; i < 5000; ++i) text += "unknown_" + std::to_string(i) + ": 1\n";
  const std::string message = Refusal(text);
  EXPECT_THAT(message, HasSubstr("4980 more errors"));
  EXPECT_LT(message.size(), 20000u);
}

// Fixed seeds, so that a failure can be repeated; the assertion is that it returns at all, and that
// what is accepted prints and parses back.
TEST(HostileTest, MutatedFiles) {
  const std::string base =
      "version: 1\nmodel: {dims: {batch: 16}, parameters: {train: [\"*\"]}}\ntrain:\n"
      "  loss: {kind: cross_entropy, logits: z, labels: y}\n"
      "  optimizer: {kind: adamw, lr: 3e-4, betas: [0.9, 0.95]}\n"
      "  schedule: &s {kind: cosine, warmup: 1, total: 20, min_ratio: 10%}\nx-s: *s\n"
      "data:\n  kind: idx\n  inputs:\n    x: {file: 'a', scale: 1}\n    y: \"b\"\n"
      "run: {steps: 10, checkpoint: {every: 5}}\n";
  const std::string alphabet = "{}[]:,-?*&!|>%@`'\"#\n\t ~<=\\.0eE+_ax\x80\xc3\xa9";
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = base;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < edits; ++i) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = alphabet[random() % alphabet.size()]; break;
        case 1: text.insert(at, 1, alphabet[random() % alphabet.size()]); break;
        case 2: text.erase(at, 1 + random() % 5); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
      }
    }
    const Result<Strategy> strategy = ParseStrategy(text, "m.yaml", nullptr);
    if (!strategy.ok()) {
      EXPECT_FALSE(strategy.status().message().empty());
      EXPECT_NE(strategy.status().code(), StatusCode::kInternal) << strategy.status().message();
      continue;
    }
    ++accepted;
    const Result<Strategy> again = ParseStrategy(PrintStrategy(*strategy), "p.yaml", nullptr);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, *strategy) << text;
  }
  EXPECT_GT(accepted, 50);
  EXPECT_LT(accepted, 3000);
}

}  // namespace
}  // namespace hyper::strategy
